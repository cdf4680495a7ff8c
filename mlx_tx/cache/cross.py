"""Caches of a decoder with an encoder: the memory's keys and values, and several caches of one layer together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import mlx.core as mx

from mlx_tx.cache.base import Cache, check_count, check_fed, check_state, whole_numbers
from mlx_tx.cache.view import View


class CrossKVCache(Cache):
    """Keys and values of an encoder's output: filled once, and then read by every step.

    ``exists``, boolean ``[B, 1, 1, S]``, is false at padding of the memory. No trim takes from it.
    """

    def __init__(self) -> None:
        self.keys: mx.array | None = None
        self.values: mx.array | None = None
        self.exists: mx.array | None = None

    def fill(self, keys: mx.array, values: mx.array, exists: mx.array | None = None) -> None:
        """``keys`` ``[B, N_kv, S, D]`` and ``values`` ``[B, N_kv, S, D_v]`` of the whole memory."""
        if self.keys is not None:
            raise self._refuse("fill must be called once; got a second memory")
        S = check_fed("CrossKVCache", keys, values, None)
        if exists is not None and exists.shape not in ((keys.shape[0], 1, 1, S), (1, 1, 1, S)):
            raise self._refuse(f"exists must have shape [B, 1, 1, S={S}]; got {exists.shape}")
        self.keys, self.values, self.exists = keys, values, exists

    def fetch(self) -> tuple[mx.array, mx.array]:
        """The keys and values of the memory."""
        if self.keys is None or self.values is None:
            raise self._refuse("fill must be called before fetch; got no memory")
        return self.keys, self.values

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[Any, Any]:
        """Fills the cache the first time; later keys and values are those of the same memory and change nothing."""
        if self.keys is None:
            self.fill(keys, values)
        return self.fetch()

    @property
    def offset(self) -> Any:
        return self.size()

    def fed(self) -> int:
        return self.size()

    def size(self) -> int:
        return 0 if self.keys is None else self.keys.shape[2]

    def view(self, N: int) -> View:
        return View(N=N, T=self.size(), first=0, exists=self.exists)

    def make_mask(self, N: int, return_array: bool = False, window_size: int | None = None) -> mx.array | None:
        del N, return_array, window_size
        return self.exists

    @property
    def nbytes(self) -> int:
        return sum(x.nbytes for x in (self.keys, self.values) if x is not None)

    def trim(self, n: int) -> int:
        """0: what the decoder takes back is not in here."""
        check_count(type(self).__name__, n)
        return 0

    def rewind(self, length: int) -> int:
        del length
        return 0

    @property
    def state(self) -> tuple[Any, ...]:
        return tuple(x for x in (self.keys, self.values, self.exists) if x is not None)

    @state.setter
    def state(self, state: Sequence[Any]) -> None:
        self.keys, self.values, self.exists = None, None, None
        if len(state):
            keys, values = check_state("CrossKVCache", state[:2])
            exists = state[2] if len(state) == 3 else None
            if len(state) > 3 or (exists is not None and exists.dtype != mx.bool_):
                raise self._refuse("state must be keys, values and at most one boolean array")
            self.fill(keys, values, exists)

    @property
    def meta_state(self) -> tuple[str, ...]:
        return ()

    @meta_state.setter
    def meta_state(self, meta: Sequence[str]) -> None:
        whole_numbers("CrossKVCache", tuple(m for m in meta if m != ""))


class CacheList:
    """Several caches of one layer: that of self-attention, then that of cross-attention."""

    def __init__(self, *caches: Cache) -> None:
        self.caches = caches

    def __getitem__(self, n: int) -> Cache:
        return self.caches[n]

    def __iter__(self) -> Iterator[Cache]:
        return iter(self.caches)

    def __len__(self) -> int:
        return len(self.caches)

    @property
    def offset(self) -> Any:
        """That of the first cache."""
        return self.caches[0].offset

    def fed(self) -> int:
        """Slots fed to the first cache."""
        return self.caches[0].fed()

    def size(self) -> int:
        """Slots that all caches hold together."""
        return sum(cache.size() for cache in self.caches)

    def empty(self) -> bool:
        """Whether the first cache is empty."""
        return self.caches[0].empty()

    @property
    def nbytes(self) -> int:
        """Bytes of all buffers."""
        return sum(cache.nbytes for cache in self.caches)

    def is_trimmable(self) -> bool:
        """Whether all caches are."""
        return all(cache.is_trimmable() for cache in self.caches)

    def can_trim(self, n: int) -> bool:
        """Whether all caches can."""
        return all(cache.can_trim(n) for cache in self.caches)

    def trim(self, n: int) -> int:
        """Takes back the last ``n`` tokens; returns how many."""
        taken = [cache.trim(n) for cache in self.caches]
        return taken[0]

    def rewind(self, length: int) -> int:
        """Takes back everything after the first ``length`` slots; returns how many were taken back."""
        taken = [cache.rewind(length) for cache in self.caches]
        return taken[0]

    @property
    def state(self) -> tuple[Any, ...]:
        """That of every cache."""
        return tuple(cache.state for cache in self.caches)

    @state.setter
    def state(self, state: Sequence[Any]) -> None:
        for cache, part in zip(self.caches, state, strict=True):
            cache.state = part

    @property
    def meta_state(self) -> tuple[Any, ...]:
        """That of every cache."""
        return tuple(cache.meta_state for cache in self.caches)
