"""softmax: float32 inside, zeros where nothing is allowed."""

import mlx.core as mx
import numpy as np
import pytest

import mlx_tx


def test_by_hand():
    got = np.array(mlx_tx.softmax(mx.array([[0.0, float(np.log(3.0))]])))
    np.testing.assert_allclose(got, [[0.25, 0.75]], rtol=1e-6)


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_sums_to_one_along_the_axis(axis):
    x = mx.array(np.random.default_rng(0).normal(0, 30, (5, 7)).astype(np.float32))
    np.testing.assert_allclose(np.array(mlx_tx.softmax(x, axis=axis).sum(axis=axis)), 1.0, rtol=1e-6)


def test_row_of_minus_infinity_gives_zeros_and_zero_gradient():
    x = mx.array([[-np.inf, -np.inf], [0.0, -np.inf]])
    np.testing.assert_array_equal(np.array(mlx_tx.softmax(x)), [[0, 0], [1, 0]])
    gradient = mx.grad(lambda y: mlx_tx.softmax(y)[:, 0].sum())(x)
    np.testing.assert_array_equal(np.array(gradient), 0)


def test_half_keeps_its_dtype_and_is_rounded_once():
    x = np.random.default_rng(1).normal(0, 8, (4, 300)).astype(np.float16)
    exact = np.exp(x.astype(np.float64) - x.max(axis=-1, keepdims=True))
    exact /= exact.sum(axis=-1, keepdims=True)
    got = mlx_tx.softmax(mx.array(x))
    assert got.dtype == mx.float16
    # half a unit in the last place, plus the spacing of subnormals
    np.testing.assert_allclose(np.array(got).astype(np.float64), exact, rtol=2**-11 * 1.01, atol=2**-25)


def test_integers_are_refused():
    with pytest.raises(TypeError, match="float32"):
        mlx_tx.softmax(mx.array([1, 2]))
