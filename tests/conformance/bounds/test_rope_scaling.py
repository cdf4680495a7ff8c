import numpy as np
import pytest

from mlx_tx_conformance.bounds import bound_call
from mlx_tx_conformance.bounds.classes import precision_class
from mlx_tx_conformance.bounds.rope import rope_errors
from mlx_tx_conformance.bounds.rope_scaling import scaled_rope_errors
from mlx_tx_conformance.call import DTYPES, Call
from mlx_tx_conformance.oracle.rope_scaling import rope_parameters

F = np.float32
RNG = np.random.default_rng(8)
RECIPES = {
    "linear": {"kind": "linear", "factor": 4.0},
    "ntk": {"kind": "ntk", "factor": 6.0},
    "dynamic": {"kind": "dynamic", "factor": 6.0, "original_max_positions": 64},
    "yarn": {"kind": "yarn", "factor": 16.0, "original_max_positions": 4096},
    "llama3": {
        "kind": "llama3",
        "factor": 8.0,
        "original_max_positions": 8192,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
    },
}


def call(recipe, dtype="float32", offset=0, shape=(2, 3, 9, 16)):
    x = RNG.standard_normal(shape).astype(DTYPES[dtype])
    return Call("rope", {"x": x}, {"scaling": RECIPES[recipe], "offset": offset})


def float32_rope(given, shift=0, factor=1.0):
    """Frequencies rounded to float32, the rest in float32."""
    x, offset = given.arrays["x"], given.options["offset"]
    T = x.shape[-2]
    w, attention = rope_parameters(x.shape[-1], 10000.0, given.options["scaling"], length=offset + T)
    angle = (np.arange(T) + offset + shift).astype(F)[:, None] * (w * factor).astype(F)
    cos, sin = F(attention) * np.cos(angle), F(attention) * np.sin(angle)
    half = x.shape[-1] // 2
    a, b = x[..., :half].astype(F), x[..., half:].astype(F)
    return np.concatenate([a * cos - b * sin, a * sin + b * cos], axis=-1).astype(x.dtype)


def headroom(given, actual):
    return float(bound_call(given, "f32-internal")["out"].headroom(actual).max())


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("offset", [0, 3000, 1_000_000])
def test_correct_code_stays_within_the_bound(recipe, dtype, offset):
    given = call(recipe, dtype, offset)
    assert headroom(given, float32_rope(given)) <= 1


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("recipe", RECIPES)
def test_a_position_off_by_one_exceeds_it(recipe, dtype):
    given = call(recipe, dtype)
    assert headroom(given, float32_rope(given, shift=1)) > 1


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_frequency_off_by_a_thousandth_exceeds_it(recipe):
    given = call(recipe, offset=100)
    assert headroom(given, float32_rope(given, factor=1.001)) > 1


def test_without_a_recipe_it_is_the_plain_rotation():
    x, precision = RNG.standard_normal((2, 3, 5, 8)), precision_class("f32-internal")
    value, error = scaled_rope_errors(x, precision, offset=7)
    plain, plain_error = rope_errors(x, precision, offset=7)
    np.testing.assert_allclose(value, plain, rtol=1e-12)
    np.testing.assert_allclose(error, plain_error, rtol=1e-6)


def test_an_incoming_error_turns_along():
    x, precision = np.ones((1, 1, 1, 2)), precision_class("f32-internal")
    own = scaled_rope_errors(x, precision, offset=1)[1]
    both = scaled_rope_errors(x, precision, offset=1, x_error=np.full(x.shape, 0.1))[1]
    np.testing.assert_allclose(both - own, 0.1 * (np.cos(1) + np.sin(1)), rtol=1e-6)
