"""T5's buckets and bias."""

import math

import mlx.core as mx
import numpy as np
import pytest

from mlx_tx.relative import RelativeBias, relative_buckets
from mlx_tx_conformance.oracle import relative_bias as oracle


@pytest.mark.parametrize("bidirectional", [False, True], ids=["back", "both"])
@pytest.mark.parametrize(("num_buckets", "max_distance"), [(32, 128), (8, 20), (4, 16), (16, 17), (6, 1000)])
def test_buckets_equal_the_oracle(bidirectional, num_buckets, max_distance):
    distances = np.arange(-1200, 1201)
    options = {"bidirectional": bidirectional, "num_buckets": num_buckets, "max_distance": max_distance}
    got = np.array(relative_buckets(mx.array(distances), **options))
    np.testing.assert_array_equal(got, oracle.relative_buckets(distances, **options))


def test_buckets_by_hand():
    distances = mx.array([0, -1, -7, -8, -9, -15, -16, -127, -128, -5000, 1, 3])
    # 32 buckets looking back: 16 exact, so that all of these but the far ones have their own.
    got = relative_buckets(distances, bidirectional=False, num_buckets=32, max_distance=128).tolist()
    assert got == [0, 1, 7, 8, 9, 15, 16, 31, 31, 31, 0, 0]
    got = relative_buckets(distances, bidirectional=True, num_buckets=32, max_distance=128).tolist()
    assert got == [0, 1, 7, 8, 8, 9, 10, 15, 15, 15, 17, 19]


def test_the_bias_is_the_row_of_the_bucket_for_every_head():
    bias = RelativeBias(8, 3)
    distances = (mx.arange(5) - mx.arange(3)[:, None])[None]
    got = bias(distances, bidirectional=True, max_distance=20)
    expected = oracle.relative_bias(np.array(bias.weight), 3, 5, bidirectional=True, q_offset=0, max_distance=20)
    np.testing.assert_array_equal(np.array(got), expected.astype(np.float32))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_buckets": 1}, "num_buckets must be >= 2; got 1"),
        ({"num_buckets": 3, "bidirectional": True}, "num_buckets must be >= 4; got 3"),
        ({"num_buckets": 32, "max_distance": 16}, "max_distance must be > 16; got 16"),
    ],
)
def test_bad_numbers_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        relative_buckets(mx.arange(3), **{"bidirectional": False, **options})


def test_fractions_of_a_distance_are_refused():
    with pytest.raises(TypeError, match="distances must hold integers"):
        relative_buckets(mx.array([0.5]), bidirectional=False)


def test_the_longest_table_is_made_at_once_and_a_longer_one_is_refused():
    # 32 buckets, 16 of them exact: from 16 to 2^16 in 16 steps, each 2^(12 / 16) times as far as the one before.
    edges = [math.ceil(16 * 2 ** (3 * k / 4)) for k in range(16)]
    distances = mx.array([-d for edge in edges for d in (edge - 1, edge)])
    got = relative_buckets(distances, bidirectional=False, num_buckets=32, max_distance=2**16)
    assert got.tolist() == [n for k in range(16) for n in (15 + k, 16 + k)]
    assert relative_buckets(mx.array([-(2**30)]), bidirectional=False, max_distance=2**20).tolist() == [31]
    with pytest.raises(ValueError, match="max_distance <= 1048576; got 32 and 100000000"):
        relative_buckets(distances, bidirectional=False, max_distance=10**8)
