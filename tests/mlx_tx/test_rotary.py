"""Scaled rotary embedding equals the papers' formulas (POS-3)."""

import mlx.core as mx
import numpy as np
import pytest

from mlx_tx.config import RopeScaling
from mlx_tx.positions import rope
from mlx_tx.rotary import rope_parameters, scaled_rope
from mlx_tx_conformance.oracle import rope_scaling as oracle

M = 64
SCALINGS = {
    "none": None,
    "linear": {"kind": "linear", "factor": 4.0},
    "ntk": {"kind": "ntk", "factor": 4.0},
    "dynamic": {"kind": "dynamic", "factor": 6.0, "original_max_positions": M},
    "yarn": {"kind": "yarn", "factor": 8.0, "original_max_positions": M, "beta_fast": 4.0, "beta_slow": 0.5},
    "yarn-exact-ends": {"kind": "yarn", "factor": 8.0, "original_max_positions": M, "truncate": False},
    "yarn-mscale": {
        "kind": "yarn", "factor": 8.0, "original_max_positions": M, "mscale": 0.7, "mscale_all_dim": 1.3,
    },
    "yarn-given-factor": {"kind": "yarn", "factor": 8.0, "original_max_positions": M, "attention_factor": 0.9},
    "llama3": {
        "kind": "llama3", "factor": 8.0, "original_max_positions": M, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    },
    "longrope": {
        "kind": "longrope", "factor": 4.0, "original_max_positions": M,
        "short_factor": [1.0 + 0.1 * i for i in range(12)], "long_factor": [1.0 + i for i in range(12)],
    },
}  # fmt: skip


def scaling_of(name):
    return None if SCALINGS[name] is None else RopeScaling.from_dict(SCALINGS[name])


@pytest.fixture(scope="module")
def x():
    return np.random.default_rng(3).normal(size=(2, 3, 7, 32)).astype(np.float32)


@pytest.mark.parametrize("traditional", [False, True], ids=["halves", "neighbours"])
@pytest.mark.parametrize("offset", [0, 10**6, [50, 60], [3, 1000]], ids=str)
@pytest.mark.parametrize("name", SCALINGS)
def test_equals_the_oracle(x, name, offset, traditional):
    options = {"offset": offset, "dims": 24, "traditional": traditional}
    expected = oracle.scaled_rope(x, scaling=SCALINGS[name], **options)
    # Two products and a sum of numbers below 5, of an angle rounded in [-pi, pi]; the oracle's angle at 10^6 is off
    # by 1e-10 at most.
    tolerance = 8 * 5 * 2**-24
    given = scaled_rope(mx.array(x), scaling=scaling_of(name), **options)
    np.testing.assert_allclose(np.array(given), expected, rtol=0, atol=tolerance)
    as_array = scaled_rope(mx.array(x), scaling=scaling_of(name), **{**options, "offset": mx.array(offset)})
    np.testing.assert_allclose(np.array(as_array), expected, rtol=0, atol=tolerance)


@pytest.mark.parametrize("name", SCALINGS)
@pytest.mark.parametrize("length", [None, 5, M, M + 1, 1000])
def test_frequencies_equal_the_oracle(name, length):
    frequencies, factor = rope_parameters(24, 10000.0, scaling_of(name), length=length)
    expected, expected_factor = oracle.rope_parameters(24, 10000.0, SCALINGS[name], length=length)
    np.testing.assert_allclose(frequencies, expected, rtol=1e-13)
    assert factor == pytest.approx(expected_factor, rel=1e-14)


def test_the_dynamic_base_follows_the_factor_by_hand():
    # s = 6, L = 2 M: the base grows by (6 * 2 - 5)^(d / (d - 2)), and the positions stay what they are.
    frequencies, _ = rope_parameters(8, 100.0, scaling_of("dynamic"), length=2 * M)
    base = 100.0 * 7 ** (8 / 6)
    np.testing.assert_allclose(frequencies, [base ** (-2 * i / 8) for i in range(4)], rtol=1e-13)


def test_llama3_leaves_short_waves_and_slows_long_ones_by_hand():
    frequencies, _ = rope_parameters(64, 10000.0, scaling_of("llama3"))
    plain = [10000.0 ** (-2 * i / 64) for i in range(32)]
    assert frequencies[0] == plain[0]  # 64 positions are ten turns
    assert frequencies[-1] == plain[-1] / 8  # not even one turn


def test_without_scaling_it_is_rope(x):
    assert mx.array_equal(scaled_rope(mx.array(x), offset=9), rope(mx.array(x), offset=9)).item()


def test_the_input_is_not_changed():
    x = mx.ones((1, 1, 3, 24))
    scaled_rope(x, scaling=scaling_of("yarn"), offset=5)
    scaled_rope(x, scaling=scaling_of("longrope"), offset=500)
    assert mx.array_equal(x, mx.ones((1, 1, 3, 24))).item()


def test_a_vector_of_offsets_keeps_the_shape_and_rows_are_their_own():
    x = mx.random.normal((2, 4, 1, 32))
    both = scaled_rope(x, offset=mx.array([2, 70]), scaling=scaling_of("dynamic"))
    assert both.shape == x.shape
    for b, offset in enumerate((2, 70)):
        alone = scaled_rope(x[b : b + 1], offset=offset, scaling=scaling_of("dynamic"))
        assert mx.array_equal(both[b : b + 1], alone).item()


def test_channels_beyond_dims_stay_and_take_no_attention_factor():
    x = mx.random.normal((1, 1, 4, 32))
    y = scaled_rope(x, dims=24, scaling=scaling_of("yarn"))
    assert mx.array_equal(y[..., 24:], x[..., 24:]).item()
    norms = mx.linalg.norm(y[..., :24], axis=-1) / mx.linalg.norm(x[..., :24], axis=-1)
    np.testing.assert_allclose(np.array(norms), 0.1 * np.log(8) + 1, rtol=1e-5)


@pytest.mark.parametrize("dtype", [mx.float16, mx.bfloat16])
def test_half_precision_rounds_once(dtype):
    x = mx.random.normal((1, 2, 5, 32)).astype(dtype)
    wide = scaled_rope(x.astype(mx.float32), offset=4000, scaling=scaling_of("yarn"))
    assert mx.array_equal(scaled_rope(x, offset=4000, scaling=scaling_of("yarn")), wide.astype(dtype)).item()


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"dims": 7}, ValueError, "dims must be even and in 2..D=8; got 7"),
        ({"dims": 10}, ValueError, "dims must be even and in 2..D=8; got 10"),
        ({"base": 0.0}, ValueError, "base must be finite and > 0"),
        ({"offset": 1.5}, TypeError, "offset must be an integer"),
        ({"offset": [1, 2, 3]}, ValueError, r"offset must be one integer or have shape \[B\]=\(2,\)"),
        ({"offset": mx.array([1.0])}, TypeError, "offset must hold integers"),
        ({"x": mx.zeros((2, 1, 4, 8), dtype=mx.int32)}, ValueError, "x must be floating"),
        ({"x": [1.0]}, TypeError, "x must be an mlx array"),
    ],
)
def test_bad_arguments_are_named(arguments, error, message):
    with pytest.raises(error, match=message):
        scaled_rope(**{"x": mx.zeros((2, 1, 4, 8)), **arguments})
