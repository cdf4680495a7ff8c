from itertools import combinations, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlx_tx_conformance.spec.pairwise import all_pairs, covering


def pairs(rows):
    return {(a, row[a], b, row[b]) for row in rows for a, b in combinations(range(len(row)), 2)}


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(1, 5), min_size=2, max_size=6))
def test_every_pair_of_values_is_in_some_row(sizes):
    rows = all_pairs(sizes, 10_000)
    assert pairs(rows) == pairs(product(*map(range, sizes)))
    assert len(set(rows)) == len(rows)


@pytest.mark.parametrize(
    ("sizes", "most"), [([3] * 4, 9), ([2] * 10, 12), ([3] * 13, 25), ([4, 3, 2], 12), ([5, 5, 5], 30)]
)
def test_there_are_few_rows(sizes, most):
    assert len(all_pairs(sizes, 10_000)) <= most


def test_rows_are_sorted_and_always_the_same():
    assert all_pairs([2, 2, 2], 99) == [(0, 0, 0), (0, 1, 1), (1, 0, 1), (1, 1, 0)]
    assert all_pairs([3, 4, 2, 3], 99) == all_pairs([3, 4, 2, 3], 99)


def test_one_key_gives_its_values():
    assert all_pairs([3], 99) == [(0,), (1,), (2,)]
    assert covering([(0,), (2,)]) == [(0,), (2,)]


def test_generation_stops_beyond_the_greatest_number():
    assert len(all_pairs([60, 60], 100)) == 101


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(*[st.integers(0, 3)] * 4), max_size=60, unique=True))
def test_allowed_rows_are_thinned_without_losing_a_pair(rows):
    chosen = covering(rows)
    assert pairs(chosen) == pairs(rows)
    assert set(chosen) <= set(rows)
    assert chosen == sorted(chosen)


def test_thinning_does_thin():
    assert len(covering(list(product(range(3), repeat=4)))) <= 14
