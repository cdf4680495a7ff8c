"""The caches of a model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mlx.core as mx

from mlx_tx.cache.base import Cache
from mlx_tx.cache.batch import BatchKVCache, BatchRotatingKVCache
from mlx_tx.cache.full import KVCache
from mlx_tx.cache.quantised import QuantizedKVCache
from mlx_tx.cache.rotating import RotatingKVCache
from mlx_tx.config import LayerConfig


def make_caches(
    layers: Sequence[LayerConfig],
    *,
    max_size: int | None = None,
    keep: int = 0,
    left_padding: Sequence[int] | mx.array | None = None,
    bits: int | None = None,
    group_size: int = 64,
    rotate_windows: bool = True,
) -> list[Cache]:
    """An empty cache for each layer.

    Args:
        max_size (int, optional): No layer remembers more tokens; ``keep`` of them are the first.
        left_padding (list or array, optional): ``[B]``: a batch of texts of unequal lengths; zeros for padding on the
          right.
        bits (int, optional): Keys and values are quantised in groups of ``group_size``.
        rotate_windows (bool): A layer with window W remembers W tokens, which gives the same results; otherwise all.
    """
    if bits is not None and (max_size is not None or left_padding is not None):
        raise ValueError(f"[make_cache] bits must be None with max_size or left_padding; got {bits}")
    if keep and max_size is None:
        raise ValueError(f"[make_cache] keep must be 0 without max_size; got {keep}")
    if keep and left_padding is not None:
        raise ValueError(f"[make_cache] keep must be 0 with left_padding, as sinks would differ by row; got {keep}")
    return [_make(layer.attention.window, max_size, keep, left_padding, bits, group_size, rotate_windows)
            for layer in layers]  # fmt: skip


def _make(
    window: Any, max_size: int | None, keep: int, left_padding: Any, bits: int | None, group_size: int, rotate: bool
) -> Cache:
    if bits is not None:
        return QuantizedKVCache(group_size=group_size, bits=bits)
    size = max_size
    if rotate and size is None and window is not None:
        left = window - 1 if isinstance(window, int) else window[0]
        size = None if left is None else left + 1
    if left_padding is not None:
        return BatchKVCache(left_padding) if size is None else BatchRotatingKVCache(size, left_padding)
    return KVCache() if size is None else RotatingKVCache(size, keep)
