"""T5's relative position bias: distances to buckets, buckets to a learned bias of every head."""

from __future__ import annotations

from bisect import bisect_left
from functools import lru_cache

import mlx.core as mx
import numpy as np
from mlx import nn

from mlx_tx.sections import MAX_BUCKETS, MAX_DISTANCE


def relative_buckets(
    distances: mx.array, *, bidirectional: bool, num_buckets: int = 32, max_distance: int = 128
) -> mx.array:
    """The bucket of each of ``distances`` = key position - query position, int32, same shape.

    Looking back only, a key ahead of the query shares bucket 0 with the query's own position. Otherwise the upper half
    of the buckets belongs to the keys ahead. In each direction, with N buckets and E = N // 2, a distance n < E has
    bucket n, and a longer one ``E + min(N - 1 - E, floor((N - E) ln(n / E) / ln(max_distance / E)))``. The boundaries
    are found in whole numbers, not by rounded logarithms.

    Source: Raffel et al. 2020, section 2.1, and the released code.
    """
    if not mx.issubdtype(distances.dtype, mx.integer):
        raise TypeError(f"[relative_buckets] distances must hold integers; got {distances.dtype}")
    sides = 2 if bidirectional else 1
    N = num_buckets // sides
    E = N // 2
    if E < 1:
        raise ValueError(f"[relative_buckets] num_buckets must be >= {2 * sides}; got {num_buckets}")
    if max_distance <= E:
        raise ValueError(f"[relative_buckets] max_distance must be > {E}; got {max_distance}")
    if max_distance > MAX_DISTANCE or num_buckets > MAX_BUCKETS:
        raise ValueError(f"[relative_buckets] num_buckets must be <= {MAX_BUCKETS} and max_distance <= {MAX_DISTANCE}; "
                         f"got {num_buckets} and {max_distance}")  # fmt: skip
    table = mx.array(_buckets_up_to(N, E, max_distance))
    away = mx.abs(distances) if bidirectional else mx.maximum(-distances, 0)
    buckets = table[mx.minimum(away, table.size - 1)]
    return buckets + mx.where(distances > 0, N, 0).astype(mx.int32) if bidirectional else buckets


class RelativeBias(nn.Module):
    """A learned bias ``weight`` ``[num_buckets, N_q]`` for every bucket and head, shared by the layers of a stack."""

    def __init__(self, num_buckets: int, num_heads: int) -> None:
        super().__init__()
        self.weight = mx.random.normal((num_buckets, num_heads), scale=0.02)

    def __call__(self, distances: mx.array, *, bidirectional: bool, max_distance: int) -> mx.array:
        """The bias for ``distances`` ``[1 or B, T_q, T_kv]``: ``[1 or B, N_q, T_q, T_kv]``."""
        buckets = relative_buckets(
            distances, bidirectional=bidirectional, num_buckets=self.weight.shape[0], max_distance=max_distance
        )
        return mx.moveaxis(self.weight[buckets], -1, 1)


@lru_cache(maxsize=32)
def _buckets_up_to(N: int, E: int, max_distance: int) -> np.ndarray:
    """The bucket of every distance from 0 to the first one of the last bucket."""
    buckets, first = [np.arange(E)], E
    for step in range(N - E - 1):
        # The distances n of this bucket: (n / E)^(N - E) < (max_distance / E)^(step + 1).
        end = max_distance ** (step + 1) * E ** (N - E - step - 1)
        after = bisect_left(range(max_distance + 1), end, lo=first, key=lambda n: n ** (N - E))
        buckets.append(np.full(after - first, E + step))
        first = after
    return np.concatenate([*buckets, [N - 1]]).astype(np.int32)
