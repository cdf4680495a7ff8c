"""RMSNorm and LayerNorm: the formulas, in float32 inside, for any magnitude (NRM-1)."""

import math

import mlx.core as mx
import numpy as np
import pytest

from mlx_tx.config import NormConfig
from mlx_tx.norms import Norm, layer_norm, rms_norm
from mlx_tx_conformance.oracle import norms as oracle

UNIT = {mx.float32: 2**-24, mx.float16: 2**-11, mx.bfloat16: 2**-8}
PAIRS = [(rms_norm, oracle.rms_norm), (layer_norm, oracle.layer_norm)]
NORMS = pytest.mark.parametrize(("norm", "reference"), PAIRS, ids=["rms", "layer"])


def wide(x):
    return np.array(x.astype(mx.float32)).astype(np.float64)


@NORMS
@pytest.mark.parametrize("dtype", UNIT, ids=["f32", "f16", "bf16"])
@pytest.mark.parametrize("size", [1e-3, 1.0, 3e4, 1e30])
@pytest.mark.parametrize("C", [1, 2, 63, 512])
def test_equals_the_oracle_within_one_rounding(norm, reference, dtype, size, C):
    if dtype == mx.float16 and size > 6e4:
        size = 6e4
    rng = np.random.default_rng(C)
    x = mx.array(rng.uniform(-size, size, (6, C)).astype(np.float32)).astype(dtype)
    w = mx.array(rng.normal(size=C).astype(np.float32)).astype(dtype)
    expected = reference(wide(x), wide(w))
    # A sum of C float32 terms and ten roundings, then one of the dtype.
    tolerance = (C + 10) * 2**-24 * np.abs(expected) + UNIT[dtype] * np.abs(expected)
    # LayerNorm subtracts a mean that is wrong by C roundings of the mean magnitude.
    tolerance += C * 2**-24 * np.abs(wide(w)) * (norm is layer_norm) + 2**-25 * (dtype == mx.float16)
    assert (np.abs(wide(norm(x, w)) - expected) <= tolerance + 1e-30).all()
    assert norm(x, w).dtype == dtype


def test_squares_of_large_half_numbers_do_not_overflow():
    x = mx.full((1, 64), 60000.0).astype(mx.float16)
    np.testing.assert_array_equal(wide(rms_norm(x)), np.ones((1, 64)))


def test_eps_stands_inside_the_root():
    got = np.array(rms_norm(mx.array([[1e-3, 1e-3]]), eps=1e-5))
    np.testing.assert_allclose(got, 1e-3 / math.sqrt(1e-6 + 1e-5), rtol=1e-6)


@pytest.mark.parametrize("value", [0.0, 1.0, 1e4 / 3, -7.7e8, 3e38])
def test_a_constant_row_gives_the_bias(value):
    bias = mx.random.normal((333,))
    got = layer_norm(mx.full((2, 333), value), mx.ones((333,)), bias)
    np.testing.assert_allclose(np.array(got), np.broadcast_to(np.array(bias), (2, 333)), rtol=0, atol=1e-6)


@NORMS
def test_a_power_of_two_changes_nothing_without_eps(norm, reference):
    x = mx.random.normal((3, 40))
    assert mx.array_equal(norm(x, eps=0.0), norm(x * 2.0**40, eps=0.0)).item()


@NORMS
def test_the_gradient_is_finite_for_huge_and_zero_rows(norm, reference):
    x = mx.array([[0.0] * 8, [1e30, -2e30] * 4, [1.0, 2.0] * 4])
    gradient = mx.grad(lambda x: (norm(x) * mx.arange(8)).sum())(x)
    assert mx.all(mx.isfinite(gradient)).item()


@pytest.mark.parametrize("kind", ["rms", "layer"])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("offset", [0.0, 1.0])
def test_the_module_starts_as_the_bare_norm_and_uses_its_parameters(kind, bias, offset):
    norm = Norm(6, NormConfig(kind=kind, bias=bias, offset=offset))
    x = mx.random.normal((2, 6))
    reference = oracle.rms_norm if kind == "rms" else oracle.layer_norm
    np.testing.assert_allclose(np.array(norm(x)), reference(np.array(x)), rtol=0, atol=1e-5)
    assert set(norm.parameters()) == {"weight", "bias"} if bias else {"weight"}
    norm.weight = mx.arange(6).astype(mx.float32)
    expected = reference(np.array(x), np.arange(6), offset=offset)
    if bias:
        norm.bias = mx.arange(6) * 0.5
        expected = expected + 0.5 * np.arange(6)
    np.testing.assert_allclose(np.array(norm(x)), expected, rtol=0, atol=1e-4)


@NORMS
@pytest.mark.parametrize("dtype", [mx.float16, mx.bfloat16])
def test_weight_and_bias_are_applied_before_the_one_rounding(norm, reference, dtype):
    x, w, b = (mx.random.normal(shape).astype(dtype) for shape in ((4, 64), (64,), (64,)))
    in_float32 = norm(*(a.astype(mx.float32) for a in (x, w, b)))
    assert mx.array_equal(norm(x, w, b), in_float32.astype(dtype)).item()
