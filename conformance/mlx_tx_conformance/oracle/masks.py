"""Which keys a query may see: the algebra of allowed sets.

Every rule is a boolean array that broadcasts to [B, N_q, T_q, T_kv] (True = may see); an attention allows the
intersection of all the rules it was given. Query i stands at position i' = i + q_offset, key j at position j.

| rule | query i sees key j where | clause |
|---|---|---|
| causal | j <= i' | MSK-1 |
| window | i' - left <= j <= i' + right; an integer W means left = W - 1, right = 0 | SWA-1, SEM-4 |
| kv_lengths | j < kv_lengths[b]: later keys do not exist | SEM-5 |
| segments | both belong to one segment | SEM-7 |
| boolean mask | the mask is True | MSK-2, SEM-8 |
| additive mask | the mask is not -inf; its finite part joins the score | MSK-2, SEM-8 |

Sources: causal: Vaswani et al. 2017, section 3.2.3; window: Beltagy et al. 2020, "Longformer", section 3.1, with the
count of mlx-lm (the query's own position included).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Bool = NDArray[np.bool_]
Float64 = NDArray[np.float64]
Int = NDArray[np.int64]


def query_positions(T_q: int, T_kv: int, q_offset: int | Int | None = None) -> Int:
    """Positions i' = i + q_offset, [1, T_q] or, for an offset per batch row, [B, T_q].

    Without an offset the last query stands at the last key (lower-right alignment, SEM-2): q_offset = T_kv - T_q.
    """
    offset = np.asarray(T_kv - T_q if q_offset is None else q_offset, dtype=np.int64)
    return offset.reshape(-1, 1) + np.arange(T_q)


def causal_rule(positions: Int, T_kv: int) -> Bool:
    """j <= i' for ``positions`` [B, T_q]; returns [B, 1, T_q, T_kv]."""
    return np.arange(T_kv) <= positions[:, None, :, None]


def window_rule(positions: Int, T_kv: int, left: int | None, right: int | None) -> Bool:
    """i' - left <= j <= i' + right, each side open where ``None``; returns [B, 1, T_q, T_kv]."""
    ahead = np.arange(T_kv) - positions[:, None, :, None]
    rule = np.ones(ahead.shape, dtype=bool)
    if left is not None:
        rule &= ahead >= -left
    if right is not None:
        rule &= ahead <= right
    return rule


def length_rule(kv_lengths: Int, T_kv: int) -> Bool:
    """j < kv_lengths[b]; returns [B, 1, 1, T_kv]."""
    return np.arange(T_kv) < kv_lengths[:, None, None, None]


def segment_rule(q_segments: Int, kv_segments: Int) -> Bool:
    """Equal segment ids, for [B, T_q] and [B, T_kv]; returns [B, 1, T_q, T_kv]."""
    return q_segments[:, None, :, None] == kv_segments[:, None, None, :]


def split_additive(mask: Float64) -> tuple[Bool, Float64]:
    """An additive mask as a rule and a finite part: -inf becomes False and 0."""
    hidden = np.isneginf(mask)
    return ~hidden, np.where(hidden, 0.0, mask)


def seen_keys(allowed: Bool) -> Bool:
    """Keys that some query sees, [B, N_q, T_kv], from ``allowed`` [B, N_q, T_q, T_kv]."""
    return np.asarray(allowed.any(axis=2))


def seeing_queries(allowed: Bool) -> Bool:
    """Queries that see some key, [B, N_q, T_q], from ``allowed`` [B, N_q, T_q, T_kv]."""
    return np.asarray(allowed.any(axis=3))


def without_unused(x: Float64, used: Bool) -> Float64:
    """``x`` [B, N, T, D] with NaN and inf replaced by 0 in the rows where ``used`` [B, N, T] is False.

    What nobody sees must not leak, NaN and inf included (SEM-9), and a product with weight 0 would leak it. Finite
    values stay, so that scores under a mask remain what they are.
    """
    return np.where(used[..., None] | np.isfinite(x), x, 0.0)
