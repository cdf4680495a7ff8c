"""``attention_decode`` and ``attention_merge`` for one call: few queries against a long cache, split over the keys."""

from __future__ import annotations

from typing import Any

import mlx.core as mx

from mlx_tx import masks
from mlx_tx.arguments import AttentionArrays, AttentionSpec
from mlx_tx.kernels.chassis import Work, by_batch, kernel, operands, sizes, small, switches
from mlx_tx.kernels.tiles import FEW_QUERIES, LONG_CACHE, decode_tile, padded

# Threadgroups that keep a large GPU busy (two for each of 64 cores), and the fewest keys worth one.
WANTED_GROUPS = 128
FEWEST_KEYS = 128
MOST_SPLITS = 64


def is_decode(spec: AttentionSpec) -> bool:
    """Whether a call is one of few queries against a long cache, as far as the host knows the visible keys."""
    return spec.T_q <= FEW_QUERIES and _span(spec) >= LONG_CACHE


def splits_of(spec: AttentionSpec) -> int:
    """How many threadgroups share the keys of one K/V head."""
    tile = decode_tile(spec.group * spec.T_q, spec.D, spec.D_v, spec.dtype.size)
    groups = spec.B * spec.N_kv * -(-spec.group * spec.T_q // (8 * tile.tiles))
    return max(1, min(-(-WANTED_GROUPS // groups), _span(spec) // FEWEST_KEYS, MOST_SPLITS))


def decode_work(spec: AttentionSpec, arrays: AttentionArrays) -> Work:
    """The first pass: float32 partial results ``[B, N_q, T_q, splits, D_v]`` and their maximum and sum."""
    tile = decode_tile(spec.group * spec.T_q, spec.D, spec.D_v, spec.dtype.size)
    splits = splits_of(spec)
    rows = (spec.B, spec.N_q, spec.T_q, splits)
    parts = -(-spec.group * spec.T_q // (8 * tile.tiles))
    return Work(
        kernel("attention_decode"),
        operands(spec, arrays, splits),
        ((*rows, spec.D_v), (*rows, 2)),
        (mx.float32, mx.float32),
        (splits, spec.N_kv * parts, spec.B),
        tile.threads,
        (
            ("T", spec.dtype),
            ("D", padded(spec.D)),
            ("D_V", padded(spec.D_v)),
            ("TILES", tile.tiles),
            ("WAYS", tile.ways),
            ("COLUMNS", tile.columns),
            *switches(spec, arrays),
        ),
    )


def merge_work(spec: AttentionSpec, arrays: AttentionArrays, partial: mx.array, stats: mx.array) -> Work:
    """The second pass: out and lse as of ``attention_forward``."""
    rows = (spec.B, spec.N_q, spec.T_q)
    return Work(
        kernel("attention_merge"),
        (partial, stats, small(by_batch(spec, arrays.sinks), mx.float32), sizes(spec, partial.shape[3])),
        ((*rows, spec.D_v), rows),
        (spec.dtype, mx.float32),
        (spec.T_q, spec.N_q, spec.B),
        32,
        (("T", spec.dtype), ("SINKS", arrays.sinks is not None)),
    )


def decode(spec: AttentionSpec, arrays: AttentionArrays, stream: Any = None) -> list[mx.array]:
    """Both passes."""
    partial, stats = decode_work(spec, arrays).run(stream)
    return merge_work(spec, arrays, partial, stats).run(stream)


def _span(spec: AttentionSpec) -> int:
    first, end = masks.key_range(spec)
    return end - first
