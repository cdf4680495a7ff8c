"""RMSNorm and LayerNorm against sums written out."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest

from mlx_tx_conformance.oracle.norms import layer_norm, rms_norm

X = np.random.default_rng(0).normal(size=(2, 3, 5)) * 4 + 1
WEIGHT, BIAS = np.random.default_rng(1).normal(size=(2, 5))


def naive(x, weight, bias, eps, offset, centre):
    out = []
    for row in x.reshape(-1, x.shape[-1]).tolist():
        C = len(row)
        mean = math.fsum(row) / C if centre else 0.0
        spread = math.sqrt(math.fsum((v - mean) ** 2 for v in row) / C + eps)
        for c, v in enumerate(row):
            w = 1.0 if weight is None else weight[c] + offset
            out.append((v - mean) / spread * w + (0.0 if bias is None else bias[c]))
    return np.array(out).reshape(x.shape)


@pytest.mark.parametrize("eps", [1e-5, 1e-6, 0.5])
@pytest.mark.parametrize("weight", [None, WEIGHT], ids=["plain", "weight"])
@pytest.mark.parametrize("offset", [0.0, 1.0])
def test_rms_norm(eps, weight, offset):
    expected = naive(X, weight, None, eps, offset, centre=False)
    np.testing.assert_allclose(rms_norm(X, weight, eps=eps, offset=offset), expected, rtol=1e-14)


@pytest.mark.parametrize("eps", [1e-5, 0.5])
@pytest.mark.parametrize("weight", [None, WEIGHT], ids=["plain", "weight"])
@pytest.mark.parametrize("bias", [None, BIAS], ids=["no-bias", "bias"])
@pytest.mark.parametrize("offset", [0.0, 1.0])
def test_layer_norm(eps, weight, bias, offset):
    expected = naive(X, weight, bias, eps, offset, centre=True)
    np.testing.assert_allclose(layer_norm(X, weight, bias, eps=eps, offset=offset), expected, rtol=1e-12, atol=1e-13)


def test_by_hand():
    np.testing.assert_allclose(rms_norm([3.0, 4.0], eps=0.0), [3 / math.sqrt(12.5), 4 / math.sqrt(12.5)], rtol=1e-15)
    assert layer_norm([1.0, 3.0], eps=0.0).tolist() == [-1, 1]
    # eps under the root: mean of squares 0 and eps 4 divide by 2, not by 4 and not by 2 + 0.
    assert rms_norm([2.0, -2.0], eps=12.0).tolist() == [0.5, -0.5]
    assert layer_norm([2.0, -2.0], eps=12.0).tolist() == [0.5, -0.5]


def test_tiny_rows_show_where_eps_stands():
    x = np.full(8, 1e-4)
    np.testing.assert_allclose(rms_norm(x, eps=1e-5), 1e-4 / math.sqrt(1e-8 + 1e-5), rtol=1e-15)


def test_scale_invariance_without_eps():
    np.testing.assert_allclose(rms_norm(7 * X, eps=0.0), rms_norm(X, eps=0.0), rtol=1e-14)
    np.testing.assert_allclose(layer_norm(7 * X + 3, eps=0.0), layer_norm(X, eps=0.0), rtol=1e-12)


@pytest.mark.parametrize("value", [0.0, 0.1, -3.7e5, 1e30])
def test_constant_rows(value):
    row = np.full(7, value)
    np.testing.assert_array_equal(layer_norm(row, bias=BIAS[:1]), np.full(7, BIAS[0]))
    np.testing.assert_allclose(rms_norm(row), value / math.sqrt(value**2 + 1e-5), rtol=1e-14)


def test_huge_rows_do_not_overflow():
    row = np.array([3e38, -3e38, 1e38])
    assert np.isfinite(rms_norm(row)).all()
    assert np.isfinite(layer_norm(row)).all()


def test_a_large_common_offset_does_not_hide_the_row():
    row = np.array([1.0, 2.0, 4.0, 5.0])
    np.testing.assert_allclose(layer_norm(row + 2.0**40), layer_norm(row), rtol=1e-12)


def test_half_precision_inputs():
    assert rms_norm(np.ones(4, dtype=ml_dtypes.bfloat16)).dtype == np.float64


def test_defaults_are_eps_1e_5_and_no_offset():
    np.testing.assert_array_equal(rms_norm(X, WEIGHT), rms_norm(X, WEIGHT, eps=1e-5, offset=0.0))
    np.testing.assert_array_equal(layer_norm(X, WEIGHT), layer_norm(X, WEIGHT, eps=1e-5, offset=0.0))
