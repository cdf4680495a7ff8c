"""Values at the ends of the integer types: huge windows are open, far lengths and offsets in arrays give NaN."""

import mlx.core as mx
import numpy as np
import pytest

import mlx_tx

PATHS = ["composed", "blockwise"]


def inputs():
    rng = np.random.default_rng(0)
    return tuple(mx.array(rng.standard_normal((2, n, t, 8)).astype(np.float32)) for n, t in ((4, 5), (2, 7), (2, 7)))


def attend(path, **options):
    return np.array(mlx_tx.scaled_dot_product_attention(*inputs(), path=path, **options))


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("window", [2**30, 2**31 - 1, 2**31, 2**31 + 5, 2**32, 2**40, 10**30])
def test_huge_window_is_the_causal_mask(path, window):
    offset = mx.array([-3, 2])
    np.testing.assert_array_equal(
        attend(path, window=window, q_offset=offset), attend(path, causal=True, q_offset=offset)
    )
    everything = attend(path, q_offset=offset, window=(window, window))
    np.testing.assert_array_equal(everything, attend(path))


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        (2**40, mx.int64),
        (2**32 + 3, mx.int64),
        (-(2**40), mx.int64),
        (2**32 - 1, mx.uint32),
        (300, mx.uint16),
        (8, mx.int8),
    ],
)
def test_far_length_in_an_array_gives_nan_in_its_row_only(path, value, dtype):
    out = attend(path, kv_lengths=mx.array([value, 3], dtype=dtype))
    assert np.isnan(out[0]).all()
    np.testing.assert_array_equal(out[1], attend(path, kv_lengths=[7, 3])[1])


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("value", [2**31 - 1, -(2**31), 2**40, 2**29 + 1, -(2**29) - 1])
def test_far_offset_in_an_array_gives_nan_in_its_row_only(path, value):
    out = attend(path, causal=True, q_offset=mx.array([value, 2], dtype=mx.int64))
    assert np.isnan(out[0]).all()
    np.testing.assert_array_equal(out[1], attend(path, causal=True, q_offset=[2, 2])[1])


@pytest.mark.parametrize("value", [2**29 + 1, -(2**40)])
def test_far_offset_in_a_list_is_refused(value):
    with pytest.raises(ValueError, match=r"q_offset must be within 2\*\*29"):
        attend("composed", causal=True, q_offset=[value, 0])


@pytest.mark.parametrize("path", PATHS)
def test_scale_may_be_an_array_without_axes(path):
    expected = attend(path, scale=0.3)
    for scale in (mx.array(0.3), np.array(0.3), np.float32(0.3)):
        np.testing.assert_array_equal(attend(path, scale=scale), expected)


def test_scale_beyond_float_is_named():
    with pytest.raises(ValueError, match="scale must be finite"):
        attend("composed", scale=10**400)


def test_traced_scale_says_what_to_pass():
    q, k, v = inputs()
    attention = mx.compile(lambda s: mlx_tx.scaled_dot_product_attention(q, k, v, scale=s))
    with pytest.raises(ValueError, match="pass a Python number"):
        attention(mx.array(0.3))


@pytest.mark.parametrize("path", PATHS)
def test_integers_beside_floats_promote_as_in_mx_fast(path):
    q, k, v = inputs()
    q = (4 * q).astype(mx.int32)
    out = mlx_tx.scaled_dot_product_attention(q, k, v, scale=0.25, sinks=mx.array([1, 0, 2, 0]), path=path)
    expected = mx.fast.scaled_dot_product_attention(q, k, v, scale=0.25, sinks=mx.array([1, 0, 2, 0]))
    assert out.dtype == expected.dtype == mx.float32
    np.testing.assert_allclose(np.array(out), np.array(expected), rtol=1e-5, atol=1e-6)


def test_integers_alone_are_refused():
    q, k, v = (x.astype(mx.int32) for x in inputs())
    with pytest.raises(TypeError, match="together"):
        mlx_tx.scaled_dot_product_attention(q, k, v)
