"""RoPE and ALiBi: formulas in float64, large positions, layouts, offsets."""

import math

import mlx.core as mx
import numpy as np
import pytest

import mlx_tx
from tests.mlx_tx.problems import normal
from tests.mlx_tx.reference import DTYPES, assert_close, to_numpy

U = 2.0**-24


def rotated(x, offset=0, base=10000.0, dims=None, traditional=False, scale=1.0):
    """RoPE of ``x`` [B, ..., T, D] by complex numbers in float64, angles reduced exactly in integers of 1e-30 turns."""
    x = np.asarray(to_numpy(x), np.float64)
    T, D = x.shape[-2:]
    dims = dims or D
    half = dims // 2
    first = list(range(0, dims, 2)) if traditional else list(range(half))
    second = list(range(1, dims, 2)) if traditional else list(range(half, dims))
    out = x.copy()
    offsets = np.broadcast_to(offset, (x.shape[0],))
    for b in range(x.shape[0]):
        for t in range(T):
            for n in range(half):
                angle = math.remainder((int(offsets[b]) + t) * scale * base ** (-2 * n / dims), 2 * math.pi)
                z = (x[b, ..., t, first[n]] + 1j * x[b, ..., t, second[n]]) * np.exp(1j * angle)
                out[b, ..., t, first[n]], out[b, ..., t, second[n]] = z.real, z.imag
    return out


@pytest.mark.parametrize("traditional", [False, True])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"offset": 5},
        {"offset": [3, 70]},
        {"dims": 4},
        {"base": 100.0},
        {"scale": 0.25},
        {"scale": -2.0, "offset": 9},
    ],
    ids=str,
)
def test_rope_equals_its_formula(options, traditional):
    x = normal(np.random.default_rng(0), 2, 3, 7, 8)
    got = mlx_tx.rope(x, traditional=traditional, **options)
    assert_close(got, rotated(x, traditional=traditional, **options), 1e-6)


@pytest.mark.parametrize("traditional", [False, True])
def test_rope_is_that_of_mx_fast(traditional):
    x = normal(np.random.default_rng(0), 2, 3, 7, 8)
    fast = mx.fast.rope(x, 6, traditional=traditional, base=500.0, scale=0.5, offset=11)
    assert_close(mlx_tx.rope(x, dims=6, base=500.0, scale=0.5, offset=11, traditional=traditional), fast, 5e-6)


@pytest.mark.parametrize("offset", [10**6, 2**31 - 100, -(10**6), 10**12])
def test_rope_is_exact_to_float32_at_large_positions(offset):
    # Computed in float32 throughout, the angle alone would be wrong by 0.06 at a million.
    x = normal(np.random.default_rng(1), 1, 1, 5, 16)
    error = np.abs(to_numpy(mlx_tx.rope(x, offset=offset)) - rotated(x, offset=offset))
    # The angle is within pi and rounded three times, its cosine and the products a few times more; and 2^-53 of the
    # angle itself, which float64 cannot tell.
    assert error.max() < 16 * U * np.abs(to_numpy(x)).max() * math.pi + abs(offset) * 2.0**-52 * 4


@pytest.mark.parametrize("dtype", DTYPES)
def test_rope_keeps_the_dtype_and_computes_in_float32(dtype):
    x = normal(np.random.default_rng(0), 2, 3, 7, 8, dtype=DTYPES[dtype])
    got = mlx_tx.rope(x, offset=3000)
    assert got.dtype == DTYPES[dtype]
    assert_close(got, rotated(x, offset=3000), {"float32": 1e-6, "float16": 2**-10, "bfloat16": 2**-7}[dtype])


@pytest.mark.parametrize("head_size", [64, 128, 256])
@pytest.mark.parametrize("traditional", [False, True])
def test_every_batch_row_of_a_single_token_turns(head_size, traditional):
    # Only the first row did in mlx#3494.
    one = normal(np.random.default_rng(0), 1, 1, 1, head_size)
    x = mx.broadcast_to(one, (3, 2, 1, head_size))
    for rows in (mx.contiguous(x), mx.contiguous(x[:, 0])):
        got = to_numpy(mlx_tx.rope(rows, offset=5, traditional=traditional))
        np.testing.assert_array_equal(got, np.broadcast_to(got[:1, :1], got.shape))
        assert_close(got[0, 0].reshape(-1), rotated(one, 5, traditional=traditional).reshape(-1), 1e-6)


def test_one_offset_for_each_row_keeps_the_shape():
    # The sequence axis grew in mlx-vlm#1883.
    x = normal(np.random.default_rng(0), 2, 3, 1, 8)
    got = mlx_tx.rope(x, offset=mx.array([4, 9]))
    assert got.shape == x.shape
    for b, offset in enumerate((4, 9)):
        assert_close(got[b], mlx_tx.rope(x[b], offset=offset), 1e-7)


def test_offset_continues_a_sequence_exactly():
    x = normal(np.random.default_rng(0), 1, 2, 12, 8)
    whole = to_numpy(mlx_tx.rope(x, offset=100))
    np.testing.assert_array_equal(to_numpy(mlx_tx.rope(x[:, :, 5:], offset=105)), whole[:, :, 5:])
    np.testing.assert_array_equal(to_numpy(mlx_tx.rope(x[:, :, 5:], offset=mx.array(105))), whole[:, :, 5:])


@pytest.mark.parametrize("traditional", [False, True])
def test_layout_does_not_matter_and_the_input_stays(traditional):
    # A donated transposed input (mlx#1340), an input that was scaled in place (mlx-lm#1003).
    x = normal(np.random.default_rng(0), 1, 4, 6, 8)
    before = to_numpy(x).copy()
    want = to_numpy(mlx_tx.rope(x, traditional=traditional))
    turned = mx.contiguous(x.swapaxes(1, 2))
    np.testing.assert_array_equal(to_numpy(mlx_tx.rope((1 * turned).swapaxes(1, 2), traditional=traditional)), want)
    np.testing.assert_array_equal(to_numpy(x), before)


def test_rope_is_differentiable_and_turns_back_its_gradient():
    x, w = normal(np.random.default_rng(0), 2, 2, 5, 8), normal(np.random.default_rng(1), 2, 2, 5, 8)
    gradient = mx.grad(lambda x: (mlx_tx.rope(x, offset=7) * w).sum())(x)
    assert_close(mlx_tx.rope(gradient, offset=7), w, 1e-6)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"dims": 3}, ValueError, r"dims must be even and in 2..D=8; got 3"),
        ({"dims": 10}, ValueError, r"dims must be even"),
        ({"dims": 0}, ValueError, r"dims must be even"),
        ({"base": 0.0}, ValueError, r"base must be finite and > 0; got 0.0"),
        ({"base": -5.0}, ValueError, r"base must be finite and > 0"),
        ({"scale": float("nan")}, ValueError, r"scale must be finite; got nan"),
        ({"offset": [1, 2, 3]}, ValueError, r"offset must be one integer or have shape \[B\]=\(2,\)"),
        ({"offset": mx.array([1, 2, 3])}, ValueError, r"offset must be one integer or have shape \[B\]=\(2,\)"),
        ({"offset": mx.array(1.0)}, TypeError, r"offset must hold integers"),
        ({"offset": 1.5}, TypeError, "integer"),
        ({"offset": True}, TypeError, "offset must be an integer; got True"),
    ],
    ids=str,
)
def test_rope_refuses_by_name(options, error, message):
    with pytest.raises(error, match=message):
        mlx_tx.rope(mx.zeros((2, 3, 4, 8)), **options)


def test_rope_refuses_what_is_no_floating_array():
    with pytest.raises(TypeError, match="x must be an mlx array; got ndarray"):
        mlx_tx.rope(np.zeros((2, 3, 4, 8)))
    with pytest.raises(TypeError, match="x must be float32, float16 or bfloat16; got int32"):
        mlx_tx.rope(mx.zeros((2, 8), dtype=mx.int32))
    with pytest.raises(ValueError, match=r"x must have axes \[..., T, D\]; got shape \(8,\)"):
        mlx_tx.rope(mx.zeros((8,)))


def test_rope_of_two_axes_is_that_of_one_row():
    x = normal(np.random.default_rng(0), 5, 8)
    np.testing.assert_array_equal(to_numpy(mlx_tx.rope(x, offset=3)), to_numpy(mlx_tx.rope(x[None], offset=3)[0]))


@pytest.mark.parametrize("heads", [1, 2, 8, 16, 64])
def test_slopes_of_a_power_of_two_are_a_geometric_row(heads):
    want = [2 ** (-8 * (h + 1) / heads) for h in range(heads)]
    np.testing.assert_array_equal(to_numpy(mlx_tx.alibi_slopes(heads)), np.array(want, np.float32))


def test_slopes_of_other_counts_interleave():
    # Wrong for these in mlx#3071; the paper's code gives, for six and twelve heads:
    six = [2**-2, 2**-4, 2**-6, 2**-8, 2**-1, 2**-3]
    twelve = [2.0**-n for n in range(1, 9)] + [2**-0.5, 2**-1.5, 2**-2.5, 2**-3.5]
    np.testing.assert_array_equal(to_numpy(mlx_tx.alibi_slopes(6)), np.array(six, np.float32))
    np.testing.assert_array_equal(to_numpy(mlx_tx.alibi_slopes(12)), np.array(twelve, np.float32))


def test_slopes_of_71_heads_are_distinct_and_in_range():
    slopes = to_numpy(mlx_tx.alibi_slopes(71))
    assert slopes.shape == (71,)
    np.testing.assert_array_equal(slopes[:64], to_numpy(mlx_tx.alibi_slopes(64)))
    np.testing.assert_array_equal(slopes[64:], to_numpy(mlx_tx.alibi_slopes(128))[0:14:2])
    assert len(set(slopes.tolist())) == 71


@pytest.mark.parametrize(("heads", "error"), [(0, ValueError), (-1, ValueError), (2.0, TypeError), (True, TypeError)])
def test_slopes_refuse_what_is_no_count(heads, error):
    with pytest.raises(error):
        mlx_tx.alibi_slopes(heads)
