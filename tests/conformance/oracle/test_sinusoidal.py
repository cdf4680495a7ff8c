"""The sinusoidal table against the paper's formula channel by channel, and its linearity."""

from __future__ import annotations

import math

import numpy as np
import pytest

from mlx_tx_conformance.oracle.sinusoidal import frequencies, shift_matrix, sinusoidal_table


def by_channel(position: float, channel: int, d_model: int, base: float) -> float:
    pair = channel // 2
    angle = position / base ** (2 * pair / d_model)
    return math.cos(angle) if channel % 2 else math.sin(angle)


@pytest.mark.parametrize("d_model", [1, 2, 3, 15, 16])
@pytest.mark.parametrize("base", [10000.0, 500.0])
def test_every_channel(d_model, base):
    positions = [0, 1, 7, 511, -3, 10**6, 2.5]
    expected = [[by_channel(p, c, d_model, base) for c in range(d_model)] for p in positions]
    np.testing.assert_allclose(sinusoidal_table(positions, d_model, base=base), expected, rtol=0, atol=1e-9)


def test_by_hand():
    # d_model 4: angles p and p / 100.
    expected = [math.sin(2), math.cos(2), math.sin(0.02), math.cos(0.02)]
    np.testing.assert_allclose(sinusoidal_table(2, 4), expected, rtol=1e-15)
    assert sinusoidal_table(0, 5).tolist() == [0, 1, 0, 1, 0]


def test_shapes_and_scale():
    assert sinusoidal_table(np.zeros((2, 3)), 6).shape == (2, 3, 6)
    np.testing.assert_array_equal(sinusoidal_table([1, 2], 6, scale=0.0), np.zeros((2, 6)))
    np.testing.assert_array_equal(sinusoidal_table([1, 2], 6, scale=0.5), 0.5 * sinusoidal_table([1, 2], 6))


@pytest.mark.parametrize("k", [1, -5, 1000])
def test_a_shift_is_one_linear_map_for_every_position(k):
    positions = np.array([0, 3, 100, 12345])
    moved = sinusoidal_table(positions, 8) @ shift_matrix(k, 8).T
    np.testing.assert_allclose(moved, sinusoidal_table(positions + k, 8), rtol=0, atol=1e-11)
    assert not np.allclose(shift_matrix(k, 8), shift_matrix(k + 1, 8))


def test_far_positions_differ_and_stay_on_the_circle():
    table = sinusoidal_table(10**6 + np.arange(64), 32)
    np.testing.assert_allclose(table[:, 0::2] ** 2 + table[:, 1::2] ** 2, 1, rtol=1e-12)
    assert len(np.unique(table.round(9), axis=0)) == 64


def test_frequencies():
    np.testing.assert_allclose(frequencies(4), [1.0, 0.01], rtol=1e-15)
    assert frequencies(15).shape == (8,)


def test_refuses():
    with pytest.raises(ValueError, match=r"\[sinusoidal_table\] d_model must be >= 1; got 0"):
        sinusoidal_table([0], 0)
    with pytest.raises(ValueError, match=r"\[shift_matrix\] d_model must be even; got 3"):
        shift_matrix(1, 3)
