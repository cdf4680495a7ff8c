"""The oracle's position tables, activations, norms and loss against 50-digit arithmetic."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest

from mlx_tx_conformance.oracle.mlp import gelu, gelu_tanh, silu
from mlx_tx_conformance.oracle.model_gradients import cross_entropy
from mlx_tx_conformance.oracle.norms import layer_norm, rms_norm
from mlx_tx_conformance.oracle.rope_scaling import rope_parameters
from mlx_tx_conformance.oracle.sinusoidal import sinusoidal_table

UNIT = 2.0**-53


@pytest.fixture(autouse=True)
def _fifty_digits():
    with mpmath.workdps(50):
        yield


def number(x: float) -> mpmath.mpf:
    return mpmath.mpf(float(x))


@pytest.mark.parametrize("d_model", [2, 15, 64])
@pytest.mark.parametrize("position", [0, 1, 511, 10**6, 123_456_789])
def test_sinusoidal_table(position, d_model):
    table = sinusoidal_table(position, d_model)
    for c in range(d_model):
        angle = position / mpmath.mpf(10000) ** (mpmath.mpf(c - c % 2) / d_model)
        exact = mpmath.cos(angle) if c % 2 else mpmath.sin(angle)
        assert abs(table[c] - exact) <= UNIT * (8 + 16 * angle)


ACTIVATIONS = {
    "gelu": (gelu, lambda x: x * mpmath.erfc(-x / mpmath.sqrt(2)) / 2),
    "gelu-tanh": (
        gelu_tanh,
        lambda x: x / (1 + mpmath.exp(-2 * mpmath.sqrt(2 / mpmath.pi) * (x + number(0.044715) * x**3))),
    ),
    "silu": (silu, lambda x: x / (1 + mpmath.exp(-x))),
}


@pytest.mark.parametrize("name", list(ACTIVATIONS))
def test_activations_keep_their_digits_in_the_left_tail(name):
    ours, exact = ACTIVATIONS[name]
    for x in [-30.0, -8.0, -5.3, -2.0, -1e-3, -1e-9, 1e-9, 0.7, 3.0, 50.0]:
        expected = exact(number(x))
        # Errors of the exponent, about its size, stand beside the roundings of the result.
        allowed = UNIT * (16 + 16 * abs(x) ** 3) * abs(expected)
        assert abs(ours([x])[0] - expected) <= max(allowed, mpmath.mpf(2) ** -1070), x


@pytest.mark.parametrize("offset", [0.0, 2.0**30])
def test_norms(offset):
    x, w, b = np.random.default_rng(0).normal(size=(3, 9))
    x = x + offset
    values = [number(v) for v in x]
    mean = sum(values) / 9
    root = mpmath.sqrt(sum((v - mean) ** 2 for v in values) / 9 + number(1e-5))
    for got, v, wc, bc in zip(layer_norm(x, w, b), values, w, b, strict=True):
        assert abs(got - ((v - mean) / root * number(wc) + number(bc))) < 1e-14 * max(1, offset / 2.0**12)
    root = mpmath.sqrt(sum(v**2 for v in values) / 9 + number(1e-5))
    for got, v, wc in zip(rms_norm(x, w), values, w, strict=True):
        assert abs(got - v / root * number(wc)) < 1e-14


def test_cross_entropy_of_large_logits():
    logits, targets = np.random.default_rng(1).normal(size=(1, 6, 8)) * 200, np.arange(6)[None]
    losses = [
        mpmath.log(sum(mpmath.exp(number(v)) for v in row)) - number(row[t])
        for row, t in zip(logits[0], targets[0], strict=True)
    ]
    assert abs(cross_entropy(logits, targets) - sum(losses) / 6) < 1e-12 * abs(sum(losses))


def test_yarn_and_llama3_frequencies():
    """Seven pairs by the formulas in the docstring, with the ramp's ends in 50 digits."""
    yarn = {"kind": "yarn", "factor": 4.0, "original_max_positions": 4096, "truncate": False}
    llama = {
        "kind": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_positions": 8192,
    }
    found_yarn, found_llama = (rope_parameters(64, 10000.0, scaling)[0] for scaling in (yarn, llama))
    ends = [32 * mpmath.log(4096 / (2 * mpmath.pi * turns), 10000) for turns in (32, 1)]
    for r in range(0, 32, 5):
        w = mpmath.mpf(10000) ** (-mpmath.mpf(2 * r) / 64)
        share = min(max((r - ends[0]) / (ends[1] - ends[0]), 0), 1)
        assert abs(found_yarn[r] / (w * (1 - share) + w / 4 * share) - 1) < 1e-13
        share = min(max((8192 * w / (2 * mpmath.pi) - 1) / 3, 0), 1)
        assert abs(found_llama[r] / (w * share + w / 8 * (1 - share)) - 1) < 1e-13
