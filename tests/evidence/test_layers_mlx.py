"""The oracle's quantisation against MLX's, code by code, and its scaled rotation against MLX's rotation.

MLX is what implementations under test are made of, so that this is evidence for one thing only: that the oracle says
what MLX says of quantisation, whose exact rule is MLX's own. Everything runs on the CPU.
"""

from __future__ import annotations

import ml_dtypes
import mlx.core as mx
import numpy as np
import pytest

from mlx_tx_conformance.oracle.quantise import BITS, GROUP_SIZES, quantise
from mlx_tx_conformance.oracle.rope_scaling import rope_parameters, scaled_rope

DTYPES = {
    "float32": (mx.float32, np.float32),
    "float16": (mx.float16, np.float16),
    "bfloat16": (mx.bfloat16, ml_dtypes.bfloat16),
}


def rows(kind: str) -> np.ndarray:
    """Rows of 256 numbers that end in many ways."""
    x = np.random.default_rng(3).normal(size=(24, 256))
    return {
        "normal": x,
        "positive": np.abs(x) + 0.5,
        "negative": -np.abs(x) - 0.5,
        "offset": x / 100 + 3,
        "integers": np.round(3 * x),
        "alike-ends": np.clip(np.round(3 * x), -2, 2),
        "tiny": x * 1e-6,
        "vanishing": x * 2e-8,
        "wide": np.sign(x) * np.exp(2.5 * x),
        "constant": np.full((24, 256), 0.3),
        "zeros": np.zeros((24, 256)),
    }[kind]


@pytest.mark.parametrize("dtype", list(DTYPES))
@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize(
    "kind",
    [
        "normal",
        "positive",
        "negative",
        "offset",
        "integers",
        "alike-ends",
        "tiny",
        "vanishing",
        "wide",
        "constant",
        "zeros",
    ],
)
def test_quantise(kind, bits, dtype):
    theirs, ours = DTYPES[dtype]
    w = rows(kind).astype(ours)
    with mx.stream(mx.cpu):
        for group_size in GROUP_SIZES:
            array = mx.array(w.astype(np.float32)).astype(theirs)
            packed, scales, biases = mx.quantize(array, group_size=group_size, bits=bits)
            expected = quantise(w, bits=bits, group_size=group_size, dtype=ours)
            np.testing.assert_array_equal(np.array(packed), expected.packed())
            np.testing.assert_array_equal(np.array(scales.astype(mx.float32)), expected.scales)
            np.testing.assert_array_equal(np.array(biases.astype(mx.float32)), expected.biases)
            if dtype == "float32":
                values = mx.dequantize(packed, scales, biases, group_size=group_size, bits=bits)
                np.testing.assert_allclose(np.array(values), expected.values(), rtol=2e-6, atol=1e-7 * np.abs(w).max())


@pytest.mark.parametrize("traditional", [False, True], ids=["half-split", "interleaved"])
@pytest.mark.parametrize(
    "scaling",
    [
        {"kind": "linear", "factor": 4.0},
        {"kind": "ntk", "factor": 4.0},
        {"kind": "yarn", "factor": 4.0, "original_max_positions": 64},
        {"kind": "llama3", "factor": 8.0, "low_freq_factor": 1, "high_freq_factor": 4, "original_max_positions": 64},
    ],
    ids=lambda scaling: scaling["kind"],
)
def test_rotation_by_given_frequencies(scaling, traditional):
    """MLX takes periods (the inverse of our frequencies) and has no attention factor."""
    x = np.random.default_rng(1).normal(size=(2, 3, 5, 20)).astype(np.float32)
    frequencies, factor = rope_parameters(16, 1000.0, scaling)
    with mx.stream(mx.cpu):
        turned = mx.fast.rope(
            mx.array(x), 16, traditional=traditional, base=None, scale=1.0, offset=9, freqs=mx.array(1 / frequencies)
        )
    options = {"offset": 9, "dims": 16, "base": 1000.0, "traditional": traditional, "scaling": scaling}
    expected = scaled_rope(x, **options)
    expected[..., :16] /= factor
    np.testing.assert_allclose(np.array(turned), expected, rtol=0, atol=2e-5)
