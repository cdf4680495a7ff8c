import numpy as np
import pytest

from mlx_tx_conformance.bounds import bound_call
from mlx_tx_conformance.bounds.units import UNITS, U
from mlx_tx_conformance.call import DTYPES, Call
from mlx_tx_conformance.oracle.softmax import log_sum_exp, softmax

INF = np.inf


def call(x, **options):
    return Call("softmax", {"x": x}, options)


def float32_softmax(x, dtype, axis=-1, exp=np.exp):
    x = x.astype(np.float32)
    with np.errstate(invalid="ignore"):
        peak = x.max(axis, keepdims=True)
        e = exp(x - np.where(np.isfinite(peak), peak, np.float32(0)))
    total = e.sum(axis, keepdims=True, dtype=np.float32)
    return (e / np.where(total == 0, np.float32(1), total)).astype(dtype)


def test_one_row_is_the_formula_written_out():
    x = np.array([[1.0, 0.25, -3.0]], np.float32)
    p = np.exp(x[0].astype(float) - 1.0)
    p /= p.sum()
    eta = U * (8 + 3 * (1.0 - x[0].astype(float)))
    n = 1 + 3 + 2
    det = p * (eta + (p * eta).sum() + n * U / (1 - n * U) + 4 * U) + np.minimum(p, 2.0**-124)
    prob = p * (eta + 4 * (np.sqrt(((p * eta) ** 2).sum()) + U * np.sqrt(n)) + 4 * U) + np.minimum(p, 2.0**-124)
    held = bound_call(call(x), "f32-internal")["out"]
    tau = UNITS["float32"].tau
    np.testing.assert_allclose(held.det[0], det + U * (p + det) + tau, rtol=1e-9)
    np.testing.assert_allclose(held.prob[0], prob + U * (p + prob) + tau, rtol=1e-9)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("std", [0.0, 0.1, 1.0, 8.0, 40.0])
@pytest.mark.parametrize("T", [1, 2, 33, 1000])
def test_correct_code_stays_within_the_bound(dtype, std, T):
    rng = np.random.default_rng(T)
    x = (rng.standard_normal((20, T)) * std).astype(DTYPES[dtype])
    held = bound_call(call(x), "f32-internal")["out"]
    np.testing.assert_array_equal(held.value, softmax(x))
    assert held.headroom(float32_softmax(x, DTYPES[dtype])).max() <= 1
    assert held.decidable.all()


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_the_axis_is_that_of_the_call(axis):
    x = np.random.default_rng(0).standard_normal((3, 4, 5)).astype(np.float32)
    held = bound_call(call(x, axis=axis), "f32-internal")
    np.testing.assert_array_equal(held["out"].value, softmax(x, axis=axis))
    np.testing.assert_array_equal(held["lse"].value, log_sum_exp(x, axis=axis))
    assert held["out"].headroom(float32_softmax(x, np.float32, axis)).max() <= 1


def test_an_entry_of_minus_infinity_has_weight_exactly_zero_and_so_has_a_row_of_them():
    x = np.array([[0.0, -INF, 1.0], [-INF, -INF, -INF]], np.float32)
    held = bound_call(call(x), "f32-internal")
    assert (held["out"].limit == 0).tolist() == [[False, True, False], [True, True, True]]
    assert held["lse"].limit.tolist()[1] == 0.0
    assert held["lse"].value[1] == -INF


def test_an_exponential_good_to_ten_bits_exceeds_the_bound_in_float32():
    x = np.random.default_rng(0).standard_normal((4, 64)).astype(np.float32)
    held = bound_call(call(x), "f32-internal")["out"]
    coarse = float32_softmax(x, np.float32, exp=lambda y: np.exp(y) * (1 + np.float32(2.0**-10) * np.sin(6 * y)))
    assert held.headroom(coarse).max() > 10


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_a_softmax_in_the_dtype_itself_exceeds_the_bound(dtype):
    x = (np.random.default_rng(0).standard_normal((4, 512)) * 4).astype(DTYPES[dtype])
    held = bound_call(call(x), "f32-internal")["out"]
    e = np.exp((x - x.max(-1, keepdims=True)).astype(DTYPES[dtype]))
    total = np.zeros((4, 1), DTYPES[dtype])
    for j in range(512):
        total = (total + e[:, j : j + 1]).astype(DTYPES[dtype])
    assert held.headroom(e / total).max() > 2


def test_the_log_sum_exp_of_correct_code_stays_within_its_bound():
    x = (np.random.default_rng(0).standard_normal((50, 300)) * 5).astype(np.float32)
    peak = x.max(-1)
    actual = peak + np.log(np.exp(x - peak[:, None]).sum(-1, dtype=np.float32))
    held = bound_call(call(x), "f32-internal")["lse"]
    assert held.headroom(actual).max() <= 1
    assert held.headroom(actual.astype(np.float16)).max() > 10
