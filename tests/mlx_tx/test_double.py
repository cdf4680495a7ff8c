"""float64 inputs and empty heads: the calls that mx.fast takes on the CPU and only the composed path takes here."""

import mlx.core as mx
import numpy as np
import pytest

import mlx_tx


def inputs(D=8, D_v=8, seed=0):
    rng = np.random.default_rng(seed)
    shapes = ((2, 4, 5, D), (2, 2, 7, D), (2, 2, 7, D_v))
    return [mx.array(rng.standard_normal(shape), dtype=mx.float64) for shape in shapes]


def options():
    rng = np.random.default_rng(1)
    return [
        {},
        {"mask": "causal"},
        {"mask": mx.array(rng.random((5, 7)) < 0.7)},
        {"mask": mx.array(rng.standard_normal((2, 1, 5, 7)), dtype=mx.float64)},
        {"sinks": mx.array([0.5, 1.0, -1.0, 0.25], dtype=mx.float64)},
    ]


@pytest.mark.parametrize("given", options(), ids=["plain", "causal", "boolean", "additive", "sinks"])
def test_float64_gives_what_mx_fast_gives(given):
    with mx.stream(mx.cpu):
        q, k, v = inputs()
        ours = mlx_tx.scaled_dot_product_attention(q, k, v, scale=0.25, **given)
        theirs = mx.fast.scaled_dot_product_attention(q, k, v, scale=0.25, **given)
        assert ours.dtype == theirs.dtype == mx.float64
        np.testing.assert_allclose(np.array(ours), np.array(theirs), rtol=1e-12, atol=1e-13)


def test_float64_has_gradients_and_empty_rows_of_zero():
    with mx.stream(mx.cpu):
        q, k, v = inputs()
        mask = mx.array(np.arange(5)[:, None] != 2) & mx.ones((5, 7), dtype=mx.bool_)
        total, d_q = mx.value_and_grad(
            lambda q: mlx_tx.scaled_dot_product_attention(q, k, v, mask=mask).sum(), argnums=0
        )(q)
        out, lse = mlx_tx.scaled_dot_product_attention(q, k, v, mask=mask, return_lse=True)
        assert (out.dtype, lse.dtype, d_q.dtype) == (mx.float64, mx.float32, mx.float64)
        assert np.isfinite(total.item())
        np.testing.assert_array_equal(np.array(out)[:, :, 2], 0)
        np.testing.assert_array_equal(np.array(d_q)[:, :, 2], 0)


@pytest.mark.parametrize(("D", "D_v"), [(0, 5), (4, 0), (0, 0)])
def test_empty_heads_give_the_mean_or_nothing(D, D_v):
    q, k, v = (x.astype(mx.float32, stream=mx.cpu) for x in inputs(D, D_v))
    ours = mlx_tx.scaled_dot_product_attention(q, k, v, scale=1.0)
    theirs = mx.fast.scaled_dot_product_attention(q, k, v, scale=1.0)
    assert ours.shape == theirs.shape == (2, 4, 5, D_v)
    np.testing.assert_allclose(np.array(ours), np.array(theirs), rtol=1e-5, atol=1e-6)


def test_other_paths_say_why_not():
    with mx.stream(mx.cpu):
        q, k, v = inputs()
        with pytest.raises(ValueError, match="float64"):
            mlx_tx.scaled_dot_product_attention(q, k, v, path="blockwise")
        with mlx_tx.record_paths() as record:
            mlx_tx.scaled_dot_product_attention(q, k, v)
    assert [entry.path for entry in record] == ["composed"]


def test_a_size_of_zero_needs_a_scale():
    q, k, v = (x.astype(mx.float32, stream=mx.cpu) for x in inputs(0, 3))
    with pytest.raises(TypeError, match="scale"):
        mlx_tx.scaled_dot_product_attention(q, k, v)
