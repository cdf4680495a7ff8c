"""The cache that keeps every token."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mlx.core as mx

from mlx_tx.cache.base import Cache, check_count, check_fed, check_state, grown, whole_numbers, written
from mlx_tx.cache.view import View


class KVCache(Cache):
    """Every key and value, in buffers that grow by 256 slots."""

    def __init__(self) -> None:
        self.keys: mx.array | None = None
        self.values: mx.array | None = None
        self._fed = 0

    @property
    def offset(self) -> Any:
        return self._fed

    def fed(self) -> int:
        return self._fed

    def size(self) -> int:
        return self._fed

    def view(self, N: int) -> View:
        return View(N=N, T=self._fed + N, first=self._fed)

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[Any, Any]:
        end = self._fed + check_fed(type(self).__name__, keys, values, self.keys)
        self.keys = written(grown(self.keys, keys, end), keys, self._fed)
        self.values = written(grown(self.values, values, end), values, self._fed)
        self._fed = end
        return self.keys[:, :, :end], self.values[:, :, :end]

    @property
    def nbytes(self) -> int:
        return sum(x.nbytes for x in (self.keys, self.values) if x is not None)

    def trim(self, n: int) -> int:
        n = min(check_count(type(self).__name__, n), self._fed)
        self._fed -= n
        return n

    @property
    def state(self) -> tuple[Any, ...]:
        return self._pair()

    @state.setter
    def state(self, state: Sequence[Any]) -> None:
        self._set_pair(state)

    def _pair(self) -> tuple[mx.array, ...]:
        if self.keys is None or self.values is None or not self._fed:
            return ()
        return self.keys[:, :, : self._fed], self.values[:, :, : self._fed]

    def _set_pair(self, state: Sequence[Any]) -> None:
        self.keys, self.values, self._fed = None, None, 0
        if len(state):
            self.keys, self.values = check_state(type(self).__name__, state)
            self._fed = self.keys.shape[2]

    @property
    def meta_state(self) -> tuple[str, ...]:
        return ()

    @meta_state.setter
    def meta_state(self, meta: Sequence[str]) -> None:
        whole_numbers(type(self).__name__, tuple(m for m in meta if m != ""))

    def to_quantized(self, group_size: int = 64, bits: int = 4) -> Cache:
        from mlx_tx.cache.quantised import QuantizedKVCache

        cache = QuantizedKVCache(group_size=group_size, bits=bits)
        if self.state:
            cache.update_and_fetch(*self.state)
        return cache
