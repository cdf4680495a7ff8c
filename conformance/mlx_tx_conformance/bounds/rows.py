"""Figures of a row of attention weights on which its rounding errors depend.

Shapes: weights and scores ``[..., T_q, T_kv]``, values ``[..., T_kv, D_v]``, outputs ``[..., T_q, D_v]``; float64.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .units import U

# Oracle scores closer than this (relative to the row's largest) are one score: float64 products of equal keys may
# differ in their last bits.
_SAME_SCORE = 2.0**-40

_PREFIX_BLOCK = 16
_CENTRED_ELEMENTS = 1 << 18


def effective_additions(p: np.ndarray) -> np.ndarray:
    """``[..., T_q, 1]``: 1 + sum min(1, p/u), the additions of a sum of p that can be inexact.

    An addend below u times the sum costs at most its own size, so it counts for p/u of an addition.
    """
    return 1.0 + np.minimum(1.0, p / U).sum(-1, keepdims=True)


def rescalings(s: np.ndarray, allowed: np.ndarray) -> np.ndarray:
    """``[..., T_q, 1]``: how often an online softmax over this row rescales what it has accumulated.

    The records of the score in key order, or in reverse order, whichever is more, and twice the depth of a tree of
    partial results that are merged at the end.
    """
    live = np.where(allowed, s, -np.inf)
    count = np.zeros((*s.shape[:-1], 1))
    for order in (live, live[..., ::-1]):
        peak = np.maximum.accumulate(order, axis=-1)
        count = np.maximum(count, (peak[..., 1:] > peak[..., :-1]).sum(-1, keepdims=True))
    return count + 2.0 * np.ceil(np.log2(s.shape[-1] + 1))


@dataclass(frozen=True)
class Multiplicities:
    """How many keys of its row err as each key does, ``[..., T_q, T_kv]``; meaningless for keys not allowed.

    ``score``: keys with the same score, whose score and exponential have the same error. ``stored``: keys whose
    exp(s - peak) is the same number in the dtype that weights are rounded to, which have nearly the same error when
    they are. ``added``: keys whose weights agree to u, a last place of their sum: adding any of them to a partial sum
    rounds alike, since a partial sum is a whole number of last places. All are at least ``score``.
    """

    score: np.ndarray
    stored: np.ndarray
    added: np.ndarray


def multiplicities(
    s: np.ndarray, p: np.ndarray, allowed: np.ndarray, peak: np.ndarray, weight_dtype: np.dtype | None
) -> Multiplicities:
    """Multiplicities of scores ``s`` with weights ``p``.

    ``peak`` ``[..., T_q, 1]`` is the row's maximum, a sink included; ``weight_dtype`` the dtype that weights are
    rounded to, ``None`` where they are not.
    """
    if s.shape[-1] == 0:
        return Multiplicities(s, s, s)
    depth = np.where(allowed, s - peak, 1.0)  # <= 0 where allowed: the others sort to the end, as a run of their own
    order = np.argsort(depth, axis=-1)
    ordered = np.take_along_axis(depth, order, axis=-1)
    size = np.abs(np.where(allowed, s, 0.0)).max(-1, keepdims=True)
    same_score = _run_lengths(np.diff(ordered, axis=-1) > _SAME_SCORE * (1.0 + size))

    def by_key(counts: np.ndarray) -> np.ndarray:
        found = np.empty_like(s)
        np.put_along_axis(found, order, counts, axis=-1)
        return found

    score = by_key(same_score)
    stored = score
    if weight_dtype is not None:
        weights = np.exp(ordered).astype(weight_dtype).astype(np.float32)
        stored = by_key(np.maximum(same_score, _run_lengths(weights[..., 1:] != weights[..., :-1])))
    places = np.floor(np.take_along_axis(p, order, axis=-1) / U)
    # Below one place a weight is lost whole or rounds up by chance: it has no company.
    same_place = np.where(places > 0, _run_lengths(places[..., 1:] != places[..., :-1]), 1.0)
    return Multiplicities(score, stored, by_key(np.maximum(same_score, same_place)))


def alike(values: np.ndarray, places: float = 0.0) -> np.ndarray:
    """How many entries of the last axis are equal to each one (or share its multiple of ``places``)."""
    if values.shape[-1] == 0:
        return values
    order = np.argsort(values, axis=-1)
    ordered = np.take_along_axis(values, order, axis=-1)
    if places:
        ordered = np.floor(ordered / places)
        changes = ordered[..., 1:] != ordered[..., :-1]
    else:
        size = np.abs(values).max(-1, keepdims=True)
        changes = np.diff(ordered, axis=-1) > _SAME_SCORE * (1.0 + size)
    found = np.empty_like(values)
    np.put_along_axis(found, order, _run_lengths(changes), axis=-1)
    return found


def _run_lengths(changes: np.ndarray) -> np.ndarray:
    """Length of the run that each position belongs to, given where ``x[..., k + 1]`` differs from ``x[..., k]``."""
    length = changes.shape[-1] + 1
    if changes.all():
        return np.ones((*changes.shape[:-1], length))
    place = np.arange(length)
    edge = np.ones((*changes.shape[:-1], 1), dtype=bool)
    first = np.maximum.accumulate(np.where(np.concatenate([edge, changes], -1), place, 0), axis=-1)
    ends = np.where(np.concatenate([changes, edge], -1), place, length - 1)
    last = np.minimum.accumulate(ends[..., ::-1], axis=-1)[..., ::-1]
    return (last - first + 1).astype(np.float64)


def largest_prefix(p: np.ndarray, v: np.ndarray) -> np.ndarray:
    """``[..., T_q, D_v]``: no partial sum of p v in key order exceeds this in magnitude.

    Exact at every 16th key; between two of those, a partial sum is at most half of both ends' magnitudes plus the
    sum of p|v| between them.
    """
    T_kv = p.shape[-1]
    shape = (*p.shape[:-1], v.shape[-1])
    before, peak = np.zeros(shape), np.zeros(shape)
    whole = T_kv - T_kv % _PREFIX_BLOCK
    if whole:
        blocks = whole // _PREFIX_BLOCK
        p_block = np.swapaxes(p[..., :whole].reshape(*p.shape[:-1], blocks, _PREFIX_BLOCK), -3, -2)
        v_block = v[..., :whole, :].reshape(*v.shape[:-2], blocks, _PREFIX_BLOCK, v.shape[-1])
        sums = np.cumsum(p_block @ v_block, axis=-3)
        after = np.abs(sums)
        between = p_block @ np.abs(v_block)
        between += after
        between[..., 1:, :, :] += after[..., :-1, :, :]
        peak = between.max(-3) / 2
        before = sums[..., -1, :, :]
    if whole < T_kv:
        tail_p, tail_v = p[..., whole:], v[..., whole:, :]
        after_tail = before + tail_p @ tail_v
        peak = np.maximum(peak, (np.abs(before) + np.abs(after_tail) + tail_p @ np.abs(tail_v)) / 2)
    return peak


def centred_magnitude(weights: np.ndarray, v: np.ndarray, o: np.ndarray) -> np.ndarray:
    """sum_j w_j |v_j - o| for several weights at once: ``[..., W, T_q, T_kv]`` to ``[..., W, T_q, D_v]``.

    Computed element by element: expanding the magnitude cancels where one key dominates.
    """
    heads, count, T_q, T_kv = weights.shape
    D_v = v.shape[-1]
    out = np.empty((heads, count, T_q, D_v))
    step = max(1, _CENTRED_ELEMENTS // max(1, T_kv * D_v))
    together = heads * T_q * T_kv * D_v <= _CENTRED_ELEMENTS
    for head in (slice(0, heads),) if together else (slice(h, h + 1) for h in range(heads)):
        for row in range(0, T_q, T_q if together else step):
            rows = slice(row, row + (T_q if together else step))
            distance = v[head, None, :, :] - o[head, rows, None, :]
            np.abs(distance, out=distance)
            out[head, :, rows] = np.swapaxes(np.swapaxes(weights[head, :, rows], 1, 2) @ distance, 1, 2)
    return out


def centred_square(w: np.ndarray, v: np.ndarray, o: np.ndarray) -> np.ndarray:
    """sum_j w_j (v_j - o)^2, ``[..., T_q, D_v]``, through the expanded square."""
    return np.maximum(w @ (v * v) - 2.0 * o * (w @ v) + o * o * w.sum(-1, keepdims=True), 0.0)
