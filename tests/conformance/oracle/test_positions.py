"""Rotary embedding and ALiBi against complex numbers, published values and hand calculation."""

from __future__ import annotations

import cmath
import math

import ml_dtypes
import numpy as np
import pytest

from mlx_tx_conformance.oracle.positions import alibi_bias, alibi_slopes, rope, rope_frequencies, rotate


def naive_rope(x, *, offset=0, base=10000.0, dims=None, traditional=False, scale=1.0):
    """Each pair as a complex number, multiplied by exp(i angle)."""
    out = np.array(x, dtype=np.float64)
    dims = x.shape[-1] if dims is None else dims
    for *lead, t in np.ndindex(x.shape[:-1]):
        start = offset if np.ndim(offset) == 0 else offset[lead[0]]
        for r in range(dims // 2):
            first, second = (2 * r, 2 * r + 1) if traditional else (r, r + dims // 2)
            angle = scale * (start + t) / base ** (2 * r / dims)
            turned = complex(x[(*lead, t, first)], x[(*lead, t, second)]) * cmath.exp(1j * angle)
            out[(*lead, t, first)], out[(*lead, t, second)] = turned.real, turned.imag
    return out


@pytest.mark.parametrize("traditional", [False, True], ids=["half-split", "interleaved"])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"offset": 5},
        {"offset": -2},
        {"offset": np.array([0, 9])},
        {"base": 500.0},
        {"dims": 4},
        {"dims": 2, "offset": np.array([3, 1])},
        {"scale": 0.25},
        {"scale": 2.0, "offset": 7, "base": 100.0, "dims": 6},
        {"offset": 100_000},
    ],
    ids=str,
)
def test_rope_turns_complex_numbers(options, traditional):
    x = np.random.default_rng(0).normal(size=(2, 3, 4, 8))
    expected = naive_rope(x, traditional=traditional, **options)
    np.testing.assert_allclose(rope(x, traditional=traditional, **options), expected, rtol=0, atol=2e-11)


def test_rope_by_hand():
    x = np.array([[1.0, 2.0, 3.0, 4.0]])
    c, s = math.cos(1.0), math.sin(1.0)
    C, S = math.cos(0.01), math.sin(0.01)
    np.testing.assert_allclose(rope(x, offset=1), [[c - 3 * s, 2 * C - 4 * S, s + 3 * c, 2 * S + 4 * C]], rtol=1e-15)
    np.testing.assert_allclose(
        rope(x, offset=1, traditional=True), [[c - 2 * s, s + 2 * c, 3 * C - 4 * S, 3 * S + 4 * C]], rtol=1e-15
    )


def test_rope_leaves_other_channels_and_position_zero_alone():
    x = np.random.default_rng(1).normal(size=(2, 5, 8))
    assert np.array_equal(rope(x, dims=4)[..., 4:], x[..., 4:])
    assert np.array_equal(rope(x)[:, 0], x[:, 0])
    assert np.array_equal(rope(x, dims=0), x)


def test_rope_scores_depend_on_the_difference_of_positions():
    a, b = np.random.default_rng(2).normal(size=(2, 1, 16))
    near = rope(a, offset=3) @ rope(b, offset=0).T
    far = rope(a, offset=1003) @ rope(b, offset=1000).T
    np.testing.assert_allclose(near, far, rtol=1e-11)
    assert abs(near - rope(a, offset=4) @ rope(b, offset=0).T) > 1e-3


def test_rope_continues_a_sequence():
    x = np.random.default_rng(3).normal(size=(1, 2, 6, 8))
    parts = [rope(x[:, :, :2]), rope(x[:, :, 2:], offset=2)]
    np.testing.assert_array_equal(np.concatenate(parts, axis=2), rope(x))


def test_rope_of_nothing_and_of_half_precision():
    assert rope(np.ones((1, 2, 0, 4))).shape == (1, 2, 0, 4)
    assert rope(np.ones((1, 4), dtype=ml_dtypes.bfloat16)).dtype == np.float64


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dims": 3}, "dims must be even and lie in 0..4; got 3"),
        ({"dims": 6}, "dims must be even and lie in 0..4; got 6"),
        ({"offset": np.zeros(3, int)}, r"offset must be an integer or have shape \[B\]; got shape \(3,\)"),
    ],
    ids=["odd", "more-than-there-are", "another-batch"],
)
def test_rope_refuses(options, message):
    with pytest.raises(ValueError, match=rf"\[rope\] {message}"):
        rope(np.ones((2, 1, 3, 4)), **options)


def test_rope_refuses_vectors():
    with pytest.raises(ValueError, match=r"\[rope\] x must have the layout"):
        rope(np.ones(4))


def test_frequencies_fall_geometrically():
    np.testing.assert_allclose(rope_frequencies(4, 100.0), [1.0, 0.1], rtol=1e-15)
    assert rope_frequencies(0).shape == (0,)


def test_rotate_takes_any_cosines_and_sines():
    turned = rotate(np.array([[1.0, 2.0, 9.0]]), np.array([[0.0]]), np.array([[1.0]]))
    assert turned.tolist() == [[-2.0, 1.0, 9.0]]


@pytest.mark.parametrize(
    ("n_heads", "expected"),
    [
        (1, [2**-8]),
        (2, [2**-4, 2**-8]),
        (8, [2.0**-e for e in range(1, 9)]),
        (3, [2**-4, 2**-8, 2**-2]),
        (6, [2**-2, 2**-4, 2**-6, 2**-8, 2**-1, 2**-3]),
        (12, [*(2.0**-e for e in range(1, 9)), 2**-0.5, 2**-1.5, 2**-2.5, 2**-3.5]),
    ],
)
def test_alibi_slopes(n_heads, expected):
    np.testing.assert_allclose(alibi_slopes(n_heads), expected, rtol=1e-15)


@pytest.mark.parametrize("n_heads", [*range(1, 70), 71, 112, 128])
def test_alibi_slopes_of_any_head_count_are_distinct_and_below_one(n_heads):
    slopes = alibi_slopes(n_heads)
    assert slopes.shape == (n_heads,)
    assert len(set(slopes.tolist())) == n_heads
    assert (slopes < 1).all()
    assert (slopes >= 2**-8).all()


def test_alibi_slopes_refuse_no_heads():
    with pytest.raises(ValueError, match=r"\[alibi_slopes\] n_heads must be >= 1; got 0"):
        alibi_slopes(0)


def test_alibi_bias_is_linear_in_the_distance():
    bias = alibi_bias([0.5, 2.0], 2, 4)
    assert bias.tolist() == [[[[-1, -0.5, 0, -0.5], [-1.5, -1, -0.5, 0]], [[-4, -2, 0, -2], [-6, -4, -2, 0]]]]


def test_alibi_bias_of_each_batch_row():
    assert alibi_bias([[1.0], [2.0]], 1, 2, np.array([0, 3])).tolist() == [[[[0, -1]]], [[[-6, -4]]]]
