"""T5's relative position bias in float64: distances to buckets, buckets to a learned bias per head.

Half of the buckets (of each direction) hold one distance each; the rest grow geometrically up to ``max_distance``, and
the last one takes all that lies beyond.

Source: Raffel et al. 2020, "Exploring the Limits of Transfer Learning", section 2.1; the bucketing is that of the
authors' released code, which the paper describes in words only.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from . import masks

Float64 = NDArray[np.float64]
Int = NDArray[np.int64]


def relative_buckets(
    distances: ArrayLike, *, bidirectional: bool, num_buckets: int = 32, max_distance: int = 128
) -> Int:
    """The bucket of each of ``distances`` = key position - query position, integers [...]; same shape.

    Looking back only (not ``bidirectional``), a key ahead of the query shares bucket 0 with the query's own
    position. Otherwise the upper half of the buckets belongs to keys ahead, the lower half to the rest, and each
    half works alike. With n the distance in the direction of its half, N the number of buckets of that half and
    E = N // 2: n < E has bucket n, and n >= E the bucket

        E + min(N - 1 - E, floor((N - E) ln(n / E) / ln(max_distance / E)))

    The floor is decided in whole numbers, so that a boundary falls where the formula puts it, not where a rounded
    logarithm does.
    """
    of_each = num_buckets // 2 if bidirectional else num_buckets
    exact = of_each // 2
    if exact < 1:
        least = 4 if bidirectional else 2
        raise ValueError(f"[relative_buckets] num_buckets must be >= {least}; got {num_buckets}")
    if max_distance <= exact:
        raise ValueError(f"[relative_buckets] max_distance must be > {exact}; got {max_distance}")
    array = np.asarray(distances)
    if array.dtype.kind not in "iu":
        raise TypeError(f"[relative_buckets] distances must hold integers; got {array.dtype}")
    away = np.abs(array) if bidirectional else np.maximum(-array, 0)
    starts = _starts(exact, of_each - exact, max_distance)
    buckets = np.where(away < exact, away, exact - 1 + np.searchsorted(starts, away, side="right"))
    return buckets + (np.where(array > 0, of_each, 0) if bidirectional else 0)


def _starts(exact: int, steps: int, max_distance: int) -> list[int]:
    """The first distance of each growing bucket: the least n with (n / exact)^steps >= (max_distance / exact)^k."""
    starts, n = [exact], exact
    for k in range(1, steps):
        while n**steps < max_distance**k * exact ** (steps - k):
            n += 1
        starts.append(n)
    return starts


def relative_bias(
    table: ArrayLike,
    T_q: int,
    T_kv: int,
    *,
    bidirectional: bool,
    q_offset: int | ArrayLike | None = None,
    max_distance: int = 128,
) -> Float64:
    """The bias of every query and key from ``table`` [num_buckets, N_q]; returns [1 or B, N_q, T_q, T_kv].

    Query i stands at i + ``q_offset``: an integer or [B], T_kv - T_q by default (SEM-2).
    """
    values = np.asarray(table).astype(np.float64)
    at = masks.query_positions(T_q, T_kv, None if q_offset is None else np.asarray(q_offset, dtype=np.int64))
    buckets = relative_buckets(
        np.arange(T_kv) - at[:, :, None],
        bidirectional=bidirectional,
        num_buckets=len(values),
        max_distance=max_distance,
    )
    return np.moveaxis(values[buckets], -1, 1)
