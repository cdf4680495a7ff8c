"""Key/value caches on the protocol of mlx-lm."""

from mlx_tx.cache.base import Cache
from mlx_tx.cache.batch import BatchKVCache, BatchRotatingKVCache
from mlx_tx.cache.cross import CacheList, CrossKVCache
from mlx_tx.cache.full import KVCache
from mlx_tx.cache.quantised import QuantizedKVCache, dequantised
from mlx_tx.cache.rotating import RotatingKVCache
from mlx_tx.cache.store import load_cache, save_cache
from mlx_tx.cache.view import View

__all__ = [
    "BatchKVCache",
    "BatchRotatingKVCache",
    "Cache",
    "CacheList",
    "CrossKVCache",
    "KVCache",
    "QuantizedKVCache",
    "RotatingKVCache",
    "View",
    "dequantised",
    "load_cache",
    "save_cache",
]
