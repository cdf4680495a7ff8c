"""Globs over clauses and cases."""

from __future__ import annotations

import pytest

from mlx_tx_conformance.runner import SelectionError, select

from .miniatures import MiniCase

CASES = [
    MiniCase("MSK-1/equals-oracle[float32,T_q=9]"),
    MiniCase("MSK-1/equals-oracle[float16,T_q=9]", dtype="float16"),
    MiniCase("MSK-10/by-hand", tags=("slow",)),
    MiniCase("GQA-1/equals-oracle-too"),
]


def ids(*patterns, **rest):
    return [order for order, _ in select(CASES, patterns, **rest)]


def test_no_pattern_selects_everything():
    assert ids() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("pattern", "chosen"),
    [
        ("MSK-1", [0, 1]),
        ("msk-1", [0, 1]),
        ("MSK-*", [0, 1, 2]),
        ("MSK-1/*", [0, 1]),
        ("MSK-1/equals-oracle", [0, 1]),
        ("*/equals-oracle", [0, 1]),
        ("MSK-1/equals-oracle[float16,T_q=9]", [1]),
        ("MSK-1/*[float32*", [0]),
        ("GQA-?", [3]),
    ],
)
def test_a_glob_selects(pattern, chosen):
    assert ids(pattern) == chosen


def test_patterns_add_and_dtype_and_tag_cut():
    assert ids("MSK-10", "GQA-1") == [2, 3]
    assert ids("MSK-1", dtypes=["float16"]) == [1]
    assert ids(tags=["slow"]) == [2]


def test_a_pattern_that_selects_nothing_is_refused_with_a_suggestion():
    with pytest.raises(SelectionError, match=r"no case matches 'MSX-1'; did you mean 'MSK-1'\?"):
        ids("MSX-1")
    with pytest.raises(SelectionError, match="MSX-1"):
        ids("MSK-1", "MSX-1")
    with pytest.raises(SelectionError, match="no case is left"):
        ids("GQA-1", dtypes=["float16"])
