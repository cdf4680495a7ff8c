"""The sinusoidal table: formula, accuracy far out, odd and tiny widths, scale (POS-1)."""

import math

import mlx.core as mx
import numpy as np
import pytest

from mlx_tx.sinusoidal import sinusoidal_positions
from mlx_tx_conformance.oracle.sinusoidal import shift_matrix, sinusoidal_table

# The angle is rounded to float32 in [-pi, pi], then sine and cosine are: three roundings of numbers below 4.
TOLERANCE = 3 * 4 * 2**-24
POSITIONS = [0, 1, 2, 511, 4096, 10**6, 10**6 + 1, 2**31, 10**12]


@pytest.mark.parametrize("dims", [1, 2, 15, 64, 512])
@pytest.mark.parametrize("base", [10000.0, 100.0])
def test_equals_the_formula_at_any_position(dims, base):
    # Beyond 10^6 the oracle's own angle, a float64, is right to 1e-15 of the position.
    positions = POSITIONS[:7]
    got = np.array(sinusoidal_positions(positions, dims, base=base))
    assert got.shape == (7, dims)
    np.testing.assert_allclose(got, sinusoidal_table(positions, dims, base=base), rtol=0, atol=TOLERANCE)


def test_by_hand():
    got = np.array(sinusoidal_positions(3, 4))
    expected = [math.sin(3), math.cos(3), math.sin(0.03), math.cos(0.03)]
    np.testing.assert_allclose(got, expected, rtol=0, atol=TOLERANCE)


def test_huge_positions_keep_their_fraction_of_a_turn():
    # Channel pair 0 turns by one radian a position: compare with exact rational reduction by 2 pi (40 digits).
    from fractions import Fraction

    turn = 2 * Fraction("3.141592653589793238462643383279502884197")
    for p in (2**31, 10**12):
        angle = float(p - (p // turn) * turn)
        got = np.array(sinusoidal_positions(p, 2))
        np.testing.assert_allclose(got, [math.sin(angle), math.cos(angle)], rtol=0, atol=TOLERANCE)


def test_a_shift_is_a_linear_map_that_depends_on_the_shift_only():
    M = shift_matrix(7, 16)
    for p in (0, 5, 1000):
        moved = np.array(sinusoidal_positions(p, 16)).astype(np.float64) @ M.T
        np.testing.assert_allclose(moved, np.array(sinusoidal_positions(p + 7, 16)), rtol=0, atol=3 * TOLERANCE)


def test_scale_counts_and_zero_gives_zeros():
    positions = mx.arange(5)
    assert not mx.any(sinusoidal_positions(positions, 6, scale=0.0)).item()
    doubled = sinusoidal_positions(positions, 6, scale=2.0)
    assert mx.array_equal(doubled, 2 * sinusoidal_positions(positions, 6)).item()


def test_positions_keep_their_shape():
    assert sinusoidal_positions(mx.zeros((2, 3), dtype=mx.int32), 5).shape == (2, 3, 5)
    assert sinusoidal_positions(4, 5).shape == (5,)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"dims": 0}, ValueError, "dims must be >= 1; got 0"),
        ({"dims": 2.0}, TypeError, "dims must be an integer; got 2.0"),
        ({"dims": 4, "base": 0.0}, ValueError, "base must be finite and > 0; got 0.0"),
        ({"dims": 4, "scale": float("inf")}, ValueError, "scale must be finite; got inf"),
        ({"dims": 4, "positions": [0.5]}, TypeError, "positions must hold integers"),
    ],
)
def test_bad_arguments_are_named(arguments, error, message):
    with pytest.raises(error, match=message):
        sinusoidal_positions(**{"positions": [1], **arguments})
