import numpy as np
import pytest

from mlx_tx_conformance.bounds import bound_call, score_test
from mlx_tx_conformance.bounds.reference import Plain
from mlx_tx_conformance.call import DEFAULT_PRECISION, DTYPES, Call, Result


def call(dtype, T=1024, D=96, softcap=None, seed=0):
    rng = np.random.default_rng(seed)
    arrays = {"q": rng.standard_normal((1, 1, 8, D)), "k": rng.standard_normal((1, 1, T, D))}
    arrays["v"] = arrays["k"]
    options = {"softcap": softcap} if softcap else {}
    return Call("attention", {n: x.astype(DTYPES[dtype]) for n, x in arrays.items()}, options)


def fit(given, factor):
    bounds = bound_call(given, DEFAULT_PRECISION[given.dtype])
    scale = given.arrays["q"].shape[-1] ** -0.5
    outputs = Plain(given.dtype != "float32")(given.with_options(scale=scale * factor))
    return score_test(given, Result(outputs), bounds)


@pytest.mark.parametrize("softcap", [None, 3.0])
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_scale_off_by_a_256th_is_found_and_named(dtype, softcap):
    found = fit(call(dtype, softcap=softcap), 1 + 2.0**-8)
    assert found.z > 2
    assert found.eps == pytest.approx(2.0**-8, rel=0.3)


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_sign_tells_too_large_from_too_small(dtype):
    assert fit(call(dtype), 1 - 2.0**-7).z < -2


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_right_scale_is_not_found_wrong(dtype):
    for seed in range(5):
        assert abs(fit(call(dtype, seed=seed, T=256), 1.0).z) < 1


def test_an_output_that_does_not_depend_on_the_scale_gives_nothing():
    given = call("float32")
    constant = given.with_arrays(v=np.ones_like(given.arrays["v"]))
    one_key = given.with_arrays(k=given.arrays["k"][:, :, :1], v=given.arrays["v"][:, :, :1])
    for flat in (constant, one_key):
        assert abs(fit(flat, 1.5).z) < 0.1
