"""The algebra of allowed sets, rule by rule, written out."""

from __future__ import annotations

import numpy as np
import pytest

from mlx_tx_conformance.oracle import masks


def pattern(rule: np.ndarray) -> list[str]:
    """The last two axes of a rule as strings of x and dots."""
    return ["".join(".x"[int(sees)] for sees in row) for row in rule.reshape(-1, rule.shape[-1])]


def test_last_query_stands_at_the_last_key():
    assert masks.query_positions(2, 5).tolist() == [[3, 4]]
    assert masks.query_positions(3, 1).tolist() == [[-2, -1, 0]]


def test_offsets_move_the_queries():
    assert masks.query_positions(2, 5, 0).tolist() == [[0, 1]]
    assert masks.query_positions(2, 5, np.array([7, -1])).tolist() == [[7, 8], [-1, 0]]


def test_causal():
    assert pattern(masks.causal_rule(masks.query_positions(3, 3), 3)) == ["x..", "xx.", "xxx"]
    assert pattern(masks.causal_rule(masks.query_positions(2, 4), 4)) == ["xxx.", "xxxx"]
    assert pattern(masks.causal_rule(masks.query_positions(3, 1), 1)) == [".", ".", "x"]
    assert pattern(masks.causal_rule(masks.query_positions(2, 3, np.array([0, 1])), 3)) == ["x..", "xx.", "xx.", "xxx"]


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        (0, 0, ["x...", ".x..", "..x.", "...x"]),
        (1, 0, ["x...", "xx..", ".xx.", "..xx"]),
        (0, 2, ["xxx.", ".xxx", "..xx", "...x"]),
        (None, 1, ["xx..", "xxx.", "xxxx", "xxxx"]),
        (1, None, ["xxxx", "xxxx", ".xxx", "..xx"]),
        (None, None, ["xxxx"] * 4),
    ],
    ids=str,
)
def test_window(left, right, expected):
    assert pattern(masks.window_rule(masks.query_positions(4, 4), 4, left, right)) == expected


def test_lengths():
    rule = masks.length_rule(np.array([0, 2, 3]), 3)
    assert rule.shape == (3, 1, 1, 3)
    assert pattern(rule) == ["...", "xx.", "xxx"]


def test_segments():
    rule = masks.segment_rule(np.array([[0, 4]]), np.array([[4, 0, 0]]))
    assert rule.shape == (1, 1, 2, 3)
    assert pattern(rule) == [".xx", "x.."]


def test_additive_masks_fall_into_a_rule_and_a_finite_part():
    rule, finite = masks.split_additive(np.array([[0.5, -np.inf, -1e30]]))
    assert rule.tolist() == [[True, False, True]]
    assert finite.tolist() == [[0.5, 0.0, -1e30]]


def test_seen_and_seeing():
    allowed = np.array([[[[True, False, True], [False, False, False]]]])
    assert masks.seen_keys(allowed).tolist() == [[[True, False, True]]]
    assert masks.seeing_queries(allowed).tolist() == [[[True, False]]]


def test_only_what_is_not_finite_and_not_used_is_replaced():
    x = np.array([[[[np.nan, 1.0], [np.inf, 2.0], [-np.inf, 3.0]]]])
    used = np.array([[[True, False, False]]])
    np.testing.assert_array_equal(masks.without_unused(x, used), [[[[np.nan, 1.0], [0.0, 2.0], [0.0, 3.0]]]])
