"""The mask algebra: which keys a query may see, and what is added to its scores.

Everything is asked for one tile of the scores, ``[q0, q1) x [k0, k1)``, so that the path that stores all scores (one
tile) and the one that walks over blocks cannot disagree. Facts that the host knows rule a whole tile in or out
before an array is made; what remains is a boolean array that broadcasts to the tile.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce

import mlx.core as mx

from mlx_tx.arguments import AttentionArrays, AttentionSpec


@dataclass(frozen=True)
class Tile:
    """Queries q0..q1-1 against keys k0..k1-1."""

    q0: int
    q1: int
    k0: int
    k1: int


def key_range(spec: AttentionSpec) -> tuple[int, int]:
    """First key, and one past the last, that any query of the call may see as far as the host knows.

    The range holds one key at least, so that no path has to reduce over an empty axis.
    """
    first, end = 0, spec.T_kv
    if spec.lengths is not None:
        end = min(end, max(spec.lengths))
    if spec.offsets is not None:
        if spec.right is not None:
            end = min(end, spec.T_q + max(spec.offsets) + spec.right)
        if spec.left is not None:
            first = max(first, min(spec.offsets) - spec.left)
    first = min(first, spec.T_kv - 1)
    return first, max(end, first + 1)


def is_ruled_out(spec: AttentionSpec, tile: Tile) -> bool:
    """Whether the host knows that no query of the tile sees any of its keys."""
    if spec.lengths is not None and tile.k0 >= max(spec.lengths):
        return True
    if spec.offsets is None:
        return False
    beyond = spec.right is not None and tile.k0 > tile.q1 - 1 + max(spec.offsets) + spec.right
    before = spec.left is not None and tile.k1 - 1 < tile.q0 + min(spec.offsets) - spec.left
    return beyond or before


def allowed(spec: AttentionSpec, arrays: AttentionArrays, tile: Tile) -> mx.array | None:
    """Boolean, broadcastable to ``[B, N_q, q1 - q0, k1 - k0]``: every rule together. ``None``: all keys are seen.

    Band (causal, window; MSK-1, SWA-1), lengths, segments, boolean masks, and -inf in an additive mask or bias.
    """
    rules: list[mx.array] = []
    keys = mx.arange(tile.k0, tile.k1)
    if not _band_holds(spec, tile):
        queries = query_positions(arrays, tile)
        if spec.right is not None:
            rules.append(keys <= queries + spec.right)
        if spec.left is not None:
            rules.append(keys >= queries - spec.left)
    if arrays.kv_lengths is not None and not _lengths_hold(spec, tile):
        rules.append(keys < arrays.kv_lengths[:, None, None, None])
    if arrays.q_segments is not None and arrays.kv_segments is not None:
        q_segments = arrays.q_segments[:, None, tile.q0 : tile.q1, None]
        rules.append(q_segments == arrays.kv_segments[:, None, None, tile.k0 : tile.k1])
    for term in (arrays.mask, arrays.bias):
        if term is not None:
            part = cut(term, tile)
            rules.append(part if part.dtype == mx.bool_ else ~mx.isneginf(part))
    return reduce(mx.logical_and, rules) if rules else None


def added(arrays: AttentionArrays, tile: Tile) -> list[mx.array]:
    """The float32 terms that join the scores of the tile, in the order ALiBi, bias, additive mask (MSK-2, POS-4)."""
    terms: list[mx.array] = []
    if arrays.slopes is not None:
        terms.append(-arrays.slopes[:, :, None, None] * distances(arrays, tile))
    for term in (arrays.bias, arrays.additive_mask):
        if term is not None:
            part = cut(term, tile)
            part = part if part.dtype == mx.float64 and arrays.q.dtype == mx.float64 else part.astype(mx.float32)
            # -inf hides (see ``allowed``); added, it would turn an empty row and its gradient into NaN.
            terms.append(mx.where(mx.isneginf(part), mx.zeros((), dtype=mx.float32), part))
    return terms


def visible_keys(spec: AttentionSpec, arrays: AttentionArrays, k0: int, k1: int) -> mx.array | None:
    """Boolean ``[1 or B, 1 or N_q, k1 - k0, 1]``: keys that at least one query may see. ``None``: no key is hidden.

    K and V are zeroed elsewhere, since 0 * NaN would leak what lies there. A rule that lets some query see the key
    leaves it in place: a NaN under such a partial mask is unspecified.
    """
    rules: list[mx.array] = []
    everything = Tile(0, spec.T_q, k0, k1)
    keys = mx.arange(k0, k1)[:, None]
    if arrays.kv_lengths is not None and not _lengths_hold(spec, everything):
        rules.append(keys < arrays.kv_lengths[:, None, None, None])
    if arrays.q_offset is not None and (spec.offsets is None or len(spec.offsets) > 1):
        offsets = arrays.q_offset[:, None, None, None]
        if spec.right is not None:
            rules.append(keys < offsets + (spec.T_q + spec.right))
        if spec.left is not None:
            rules.append(keys >= offsets - spec.left)
    if arrays.q_segments is not None and arrays.kv_segments is not None and not spec.shared_segments:
        same = arrays.q_segments[:, None, :] == arrays.kv_segments[:, k0:k1, None]
        rules.append(mx.any(same, axis=-1)[:, None, :, None])
    for term in (arrays.mask, arrays.bias):
        if term is not None:
            best = mx.max(mx.stop_gradient(cut(term, everything)), axis=2)
            rules.append((best if best.dtype == mx.bool_ else ~mx.isneginf(best))[..., None])
    if not rules:
        return None
    keep = reduce(mx.logical_and, rules)
    # A mask of one column holds for every key.
    return mx.broadcast_to(keep, (*keep.shape[:2], k1 - k0, 1))


def query_positions(arrays: AttentionArrays, tile: Tile) -> mx.array:
    """i' = i + q_offset of the tile's queries, int32 ``[1 or B, 1, q1 - q0, 1]``."""
    assert arrays.q_offset is not None
    return mx.arange(tile.q0, tile.q1)[:, None] + arrays.q_offset[:, None, None, None]


def distances(arrays: AttentionArrays, tile: Tile) -> mx.array:
    """abs(i' - j) in float32, ``[1 or B, 1, q1 - q0, k1 - k0]``."""
    return mx.abs(query_positions(arrays, tile) - mx.arange(tile.k0, tile.k1)).astype(mx.float32)


def cut(x: mx.array, tile: Tile) -> mx.array:
    """The part of a mask or bias ``[., ., T_q or 1, T_kv or 1]`` that lies over the tile."""
    if x.shape[2] != 1:
        x = x[:, :, tile.q0 : tile.q1]
    if x.shape[3] != 1:
        x = x[..., tile.k0 : tile.k1]
    return x


def _band_holds(spec: AttentionSpec, tile: Tile) -> bool:
    """Whether the host knows that the band lets every query of the tile see every key of it."""
    if spec.left is None and spec.right is None:
        return True
    if spec.offsets is None:
        return False
    right = spec.right is None or tile.k1 - 1 <= tile.q0 + min(spec.offsets) + spec.right
    left = spec.left is None or tile.k0 >= tile.q1 - 1 + max(spec.offsets) - spec.left
    return right and left


def _lengths_hold(spec: AttentionSpec, tile: Tile) -> bool:
    """Whether the host knows that every key of the tile exists in every batch row."""
    return spec.lengths is not None and tile.k1 <= min(spec.lengths)
