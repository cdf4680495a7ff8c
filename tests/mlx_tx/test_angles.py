"""Angles are exact modulo a turn."""

import math
from fractions import Fraction

import mlx.core as mx
import numpy as np
import pytest

from mlx_tx.angles import angles, token_positions

TURN = 2 * Fraction("3.141592653589793238462643383279502884197169399375")


@pytest.mark.parametrize("position", [0, 1, 7, -1, -50, 10**6, 2**31, -(2**33), 10**12])
@pytest.mark.parametrize("frequency", [1.0, 1e-4, 0.7320508, 31.4])
def test_an_angle_is_the_product_less_whole_turns(position, frequency):
    got = angles(mx.array([[position]], dtype=mx.int64), [frequency]).item()
    exact = Fraction(frequency) * position
    exact -= round(exact / TURN) * TURN
    # Half a unit of 2^-64 turns at every position, and two roundings in float32.
    tolerance = abs(position) * 2 * math.pi * 2**-65 + 3 * 4 * 2**-24
    distance = abs(got - float(exact))
    assert min(distance, abs(distance - 2 * math.pi)) <= tolerance


def test_rows_may_have_frequencies_of_their_own():
    positions = mx.array([[3], [5]])
    both = np.array(angles(positions, [[0.1, 0.2], [0.3, 0.4]]))
    np.testing.assert_allclose(both[:, 0], [[0.3, 0.6], [1.5, 2.0]], rtol=1e-6)


def test_positions_from_an_offset():
    assert token_positions("f", 5, 2, 3).tolist() == [[5, 6, 7]]
    assert token_positions("f", [5, -1], 2, 2).tolist() == [[5, 6], [-1, 0]]
    assert token_positions("f", mx.array([2**40]), 2, 1).tolist() == [[2**40]]
    with pytest.raises(ValueError, match=r"\[f\] offset must be one integer or have shape \[B\]=\(2,\)"):
        token_positions("f", mx.array([1, 2, 3]), 2, 1)
