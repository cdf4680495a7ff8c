"""The mask algebra, against every pair of query and key written out."""

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlx_tx import masks
from mlx_tx.arguments import AttentionArrays, AttentionSpec
from mlx_tx.masks import Tile
from tests.mlx_tx.problems import SETTINGS
from tests.mlx_tx.reference import to_numpy

B, N = 2, 2
MANY = settings(SETTINGS, max_examples=250)
Q = mx.zeros((B, N, 1, 1))


@st.composite
def bands(draw):
    """(spec, arrays, visible[B, T_q, T_kv]) of a call with a band, lengths and offsets, known on the host or not."""
    T_q, T_kv = draw(st.integers(1, 9)), draw(st.integers(1, 9))
    left, right = (draw(st.one_of(st.none(), st.integers(0, 6))) for _ in range(2))
    offsets = draw(st.lists(st.integers(-9, 9), min_size=B, max_size=B))
    lengths = draw(st.one_of(st.none(), st.lists(st.integers(0, T_kv), min_size=B, max_size=B)))
    known = draw(st.booleans())
    i, j = np.indices((T_q, T_kv))
    seen = np.ones((B, T_q, T_kv), bool)
    for b in range(B):
        place = i + offsets[b]
        if left is not None:
            seen[b] &= j >= place - left
        if right is not None:
            seen[b] &= j <= place + right
        if lengths is not None:
            seen[b] &= j < lengths[b]
    spec = AttentionSpec(
        B=B,
        N_q=N,
        N_kv=N,
        T_q=T_q,
        T_kv=T_kv,
        D=1,
        D_v=1,
        dtype=mx.float32,
        scale=1.0,
        left=left,
        right=right,
        offsets=tuple(offsets) if known else None,
        lengths=tuple(lengths) if known and lengths is not None else None,
    )
    arrays = AttentionArrays(
        q=Q, k=Q, v=Q, q_offset=mx.array(offsets), kv_lengths=None if lengths is None else mx.array(lengths)
    )
    return spec, arrays, seen


def every_tile(spec, size=3):
    for q0 in range(0, spec.T_q, size):
        for k0 in range(0, spec.T_kv, size):
            yield Tile(q0, min(q0 + size, spec.T_q), k0, min(k0 + size, spec.T_kv))


@MANY
@given(bands())
def test_allowed_is_the_rule_written_out(case):
    spec, arrays, seen = case
    for tile in every_tile(spec):
        part = seen[:, tile.q0 : tile.q1, tile.k0 : tile.k1]
        allowed = masks.allowed(spec, arrays, tile)
        got = np.ones_like(part) if allowed is None else np.broadcast_to(to_numpy(allowed)[:, 0], part.shape)
        np.testing.assert_array_equal(got, part)


@MANY
@given(bands())
def test_tiles_ruled_out_hold_nothing_and_the_range_holds_all(case):
    spec, _, seen = case
    first, end = masks.key_range(spec)
    assert 0 <= first < end <= spec.T_kv
    assert not seen[:, :, :first].any()
    assert not seen[:, :, end:].any()
    for tile in every_tile(spec):
        if masks.is_ruled_out(spec, tile):
            assert not seen[:, tile.q0 : tile.q1, tile.k0 : tile.k1].any()


def test_causal_tiles_above_the_diagonal_are_ruled_out_and_below_it_need_no_mask():
    spec = AttentionSpec(
        B=1, N_q=1, N_kv=1, T_q=9, T_kv=9, D=1, D_v=1, dtype=mx.float32, scale=1.0, right=0, offsets=(0,)
    )
    arrays = AttentionArrays(q=Q, k=Q, v=Q, q_offset=mx.array([0]))
    state = [
        "out" if masks.is_ruled_out(spec, tile) else "free" if masks.allowed(spec, arrays, tile) is None else "some"
        for tile in every_tile(spec)
    ]
    assert state == ["some", "out", "out", "free", "some", "out", "free", "free", "some"]


@MANY
@given(bands())
def test_visible_keys_are_those_that_some_query_sees(case):
    spec, arrays, seen = case
    first, end = masks.key_range(spec)
    keep = masks.visible_keys(spec, arrays, first, end)
    some = seen.any(axis=1)[:, first:end]
    got = np.ones_like(some) if keep is None else np.broadcast_to(to_numpy(keep)[:, 0, :, 0], some.shape)
    # Nothing that is seen is dropped; what remains beyond it lies between keys that are seen, or is finite by the rule.
    assert (got >= some).all()
    if spec.left is None or spec.right is None or spec.T_q == 1:
        ends = np.array([np.flatnonzero(row)[[0, -1]] if row.any() else (0, -1) for row in some])
        for b, (low, high) in enumerate(ends):
            if some[b].any() and spec.offsets is None:
                assert not got[b, high + 1 :].any()
                assert not got[b, :low].any()


@pytest.mark.parametrize("shape", [(1, 1, 1, 6), (2, 1, 4, 6), (1, 2, 1, 6), (2, 2, 4, 6), (1, 1, 4, 1)])
def test_visible_keys_of_a_mask(shape):
    see = np.random.default_rng(0).random(shape) < 0.3
    spec = AttentionSpec(B=B, N_q=N, N_kv=N, T_q=4, T_kv=6, D=1, D_v=1, dtype=mx.float32, scale=1.0, offsets=None)
    want = np.broadcast_to(see, (B, N, 4, 6)).any(axis=2)
    additive = np.where(see, 1.0, -np.inf).astype(np.float32)
    for mask in (see, additive, additive.astype(np.float16)):
        arrays = AttentionArrays(q=Q, k=Q, v=Q, mask=mx.array(mask))
        for k0, k1 in ((0, 6), (2, 5)):
            keep = to_numpy(masks.visible_keys(spec, arrays, k0, k1))[..., 0]
            np.testing.assert_array_equal(np.broadcast_to(keep, (B, N, k1 - k0)), want[..., k0:k1])


def test_added_terms_are_float32_finite_and_in_order():
    arrays = AttentionArrays(
        q=Q,
        k=Q,
        v=Q,
        slopes=mx.array([[0.5, 0.25]]),
        bias=mx.array([[[[1.0, -np.inf, 3.0]]]]).astype(mx.float16),
        mask=mx.array([[[[-np.inf], [2.0]]]]),
        q_offset=mx.array([1]),
    )
    alibi, bias, mask = masks.added(arrays, Tile(0, 2, 0, 3))
    np.testing.assert_array_equal(
        to_numpy(alibi), [[[[-0.5, 0, -0.5], [-1, -0.5, 0]], [[-0.25, 0, -0.25], [-0.5, -0.25, 0]]]]
    )
    np.testing.assert_array_equal(to_numpy(bias), [[[[1, 0, 3]]]])
    np.testing.assert_array_equal(to_numpy(mask), [[[[0], [2]]]])
    assert {x.dtype for x in (alibi, bias, mask)} == {mx.float32}
