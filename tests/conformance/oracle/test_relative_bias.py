"""T5's buckets against the paper's words, and the bias that they look up."""

from __future__ import annotations

import math

import numpy as np
import pytest

from mlx_tx_conformance.oracle.relative_bias import relative_bias, relative_buckets

SHAPES = [(32, 128), (16, 64), (8, 20), (12, 50), (64, 1000)]


def by_logarithm(distance: int, bidirectional: bool, num_buckets: int, max_distance: int) -> float:
    """The bucket before the floor, from the formula as it is written."""
    start = 0
    if bidirectional:
        num_buckets //= 2
        start = num_buckets if distance > 0 else 0
        n = abs(distance)
    else:
        n = max(-distance, 0)
    exact = num_buckets // 2
    if n < exact:
        return start + n
    growing = exact + (num_buckets - exact) * math.log(n / exact) / math.log(max_distance / exact)
    return start + min(growing, num_buckets - 1)


@pytest.mark.parametrize(("num_buckets", "max_distance"), SHAPES)
@pytest.mark.parametrize("bidirectional", [True, False])
def test_buckets_follow_the_formula(bidirectional, num_buckets, max_distance):
    options = {"bidirectional": bidirectional, "num_buckets": num_buckets, "max_distance": max_distance}
    distances = np.arange(-3 * max_distance, 3 * max_distance + 1)
    buckets = relative_buckets(distances, **options)
    for distance, bucket in zip(distances.tolist(), buckets.tolist(), strict=True):
        # Where the logarithm is a whole number but for rounding, the floor is that number.
        assert bucket == math.floor(by_logarithm(distance, **options) + 1e-9), distance
    assert set(buckets.tolist()) <= set(range(num_buckets))


def test_boundaries_of_the_published_settings():
    """32 buckets to 128: 0..7 alone, then doubling in two steps each, the last from 91 on."""
    ahead = relative_buckets(np.arange(200), bidirectional=True)
    starts = [0, *(n for n in range(1, 200) if ahead[n] != ahead[n - 1])]
    assert starts == [0, 1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 23, 32, 46, 64, 91]
    assert ahead[1:8].tolist() == [17, 18, 19, 20, 21, 22, 23]
    assert ahead[199] == 31
    behind = relative_buckets(-np.arange(200), bidirectional=True)
    assert behind.tolist() == [0, *(ahead[1:] - 16).tolist()]


def test_looking_back_only_puts_everything_ahead_into_bucket_zero():
    buckets = relative_buckets([5, 1, 0, -1, -15, -16, -17, -127, -128, -9999], bidirectional=False)
    assert buckets.tolist() == [0, 0, 0, 1, 15, 16, 16, 31, 31, 31]


def test_buckets_never_fall_with_the_distance():
    for bidirectional in (True, False):
        buckets = relative_buckets(-np.arange(500), bidirectional=bidirectional)
        assert (np.diff(buckets) >= 0).all()


def test_bias_by_hand():
    table = np.array([[10.0, -1.0], [11.0, -2.0], [12.0, -3.0], [13.0, -4.0]])
    # Four buckets looking back: distance 0, distance 1, from 2 on, and from 2 sqrt(2) on.
    bias = relative_bias(table, 3, 4, bidirectional=False, max_distance=4)
    buckets = [[1, 0, 0, 0], [2, 1, 0, 0], [3, 2, 1, 0]]
    assert bias.shape == (1, 2, 3, 4)
    assert bias[0, 0].tolist() == [[10 + b for b in row] for row in buckets]
    assert bias[0, 1].tolist() == [[-1 - b for b in row] for row in buckets]


def test_the_fewest_buckets():
    assert relative_buckets([-9, -1, 0, 1, 9], bidirectional=True, num_buckets=4).tolist() == [1, 1, 0, 3, 3]
    assert relative_buckets([-9, -1, 0, 9], bidirectional=False, num_buckets=2).tolist() == [1, 1, 0, 0]


def test_the_table_reaches_128_by_default():
    table = np.arange(32.0)[:, None]
    bias = relative_bias(table, 1, 200, bidirectional=True)
    np.testing.assert_array_equal(bias, relative_bias(table, 1, 200, bidirectional=True, max_distance=128))
    assert (bias != relative_bias(table, 1, 200, bidirectional=True, max_distance=129)).any()


def test_bias_of_each_batch_row():
    table = np.arange(8.0)[:, None]
    each = relative_bias(table, 2, 5, bidirectional=True, q_offset=np.array([0, 3]))
    for b, offset in enumerate((0, 3)):
        np.testing.assert_array_equal(each[b], relative_bias(table, 2, 5, bidirectional=True, q_offset=offset)[0])
    np.testing.assert_array_equal(each[1], relative_bias(table, 2, 5, bidirectional=True)[0])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"bidirectional": True, "num_buckets": 3}, "num_buckets must be >= 4; got 3"),
        ({"bidirectional": False, "num_buckets": 1}, "num_buckets must be >= 2; got 1"),
        ({"bidirectional": True, "max_distance": 8}, "max_distance must be > 8; got 8"),
    ],
    ids=["no-half", "no-exact", "nothing-to-grow-to"],
)
def test_refuses(options, message):
    with pytest.raises(ValueError, match=rf"\[relative_buckets\] {message}"):
        relative_buckets([0], **options)


def test_refuses_distances_that_are_not_integers():
    with pytest.raises(TypeError, match="distances must hold integers; got float64"):
        relative_buckets([0.5], bidirectional=True)
