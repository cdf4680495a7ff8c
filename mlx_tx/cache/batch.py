"""Caches of a batch of texts of unequal lengths: padding takes up slots and never counts.

Every row is fed the same number of slots. Padding on the left is told when the cache is made, padding on the right of
a step by :meth:`prepare` before it and :meth:`finalize` after it, which moves the row's tokens to the right end. The
position of a row's next token is ``offset``, an array: the slots fed less the padding.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import mlx.core as mx
import numpy as np

from mlx_tx.cache.base import Cache, check_state, whole_numbers
from mlx_tx.cache.full import KVCache
from mlx_tx.cache.rotating import RotatingKVCache
from mlx_tx.cache.view import View


class Padding:
    """What both batched caches know about padding."""

    left_padding: mx.array
    _right: mx.array | None
    _fed: int
    keys: mx.array | None
    values: mx.array | None

    def _pad(self, left_padding: Any) -> None:
        self.left_padding = padding_of(type(self).__name__, "left_padding", left_padding)
        self._right = None

    @property
    def offset(self) -> mx.array:
        return self._fed - self.left_padding

    def _exists(self, slots: Callable[[], np.ndarray]) -> mx.array | None:
        """Boolean ``[B, 1, 1, T]``: the slots that are padding neither on the left nor on the right of the step."""
        known = slots().astype(np.int32)
        at = mx.array(known)
        exists = at >= self.left_padding[:, None]
        if self._right is not None:
            exists = mx.logical_and(exists, at < int(known.max()) + 1 - self._right[:, None])
        return exists[:, None, None, :]

    def prepare(
        self,
        *,
        left_padding: Sequence[int] | mx.array | None = None,
        lengths: Sequence[int] | mx.array | None = None,
        right_padding: Sequence[int] | mx.array | None = None,
    ) -> None:
        """Tells of padding: on the left of an empty cache, or on the right of the next step. ``lengths`` is unused."""
        del lengths
        name = type(self).__name__
        if left_padding is not None:
            if self._fed:
                raise ValueError(f"[{name}] prepare takes left_padding before the first token only")
            self.left_padding = self.left_padding + padding_of(name, "left_padding", left_padding)
        if right_padding is not None:
            right = padding_of(name, "right_padding", right_padding)
            check_rows(name, right, self.left_padding, "right_padding")
            self._right = right

    def filter(self, rows: Sequence[int] | mx.array) -> None:
        """Keeps these rows only, in this order; rows count from 0. An array is read, so that it can be checked."""
        known: Any = rows.tolist() if isinstance(rows, mx.array) else list(rows)
        chosen = mx.array([self._row(row) for row in known], dtype=mx.int32)
        self.left_padding = self.left_padding[chosen]
        if self.keys is not None and self.values is not None:
            self.keys, self.values = self.keys[chosen], self.values[chosen]

    def _row(self, row: Any) -> int:
        """``row`` as an integer in 0..B-1: MLX does not check an index."""
        B, name = self.left_padding.shape[0], type(self).__name__
        if isinstance(row, bool) or not hasattr(row, "__index__"):
            raise TypeError(f"[{name}] row must be an integer in 0..{B - 1}; got {row!r}")
        if not 0 <= operator.index(row) < B:
            raise IndexError(f"[{name}] row must be an integer in 0..{B - 1}; got {row}")
        return operator.index(row)

    def _padded_state(self, pair: tuple[mx.array, ...]) -> tuple[mx.array, ...]:
        if self._right is not None:
            raise ValueError(f"[{type(self).__name__}] state must be read after finalize")
        return (*pair, self.offset, self.left_padding) if pair else (self.left_padding,)

    def _set_padding(self, state: Sequence[Any]) -> Sequence[mx.array]:
        """Takes the padding from the end of a state; returns its keys and values."""
        name = type(self).__name__
        pair = check_state(name, state, 4)[:2] if len(state) != 1 else ()
        self._pad(state[-1])
        if pair:
            check_rows(name, pair[0], self.left_padding)
        return pair


class BatchKVCache(Padding, KVCache):
    """Every key and value of rows of unequal lengths; ``left_padding`` holds one number for each row."""

    def __init__(self, left_padding: Sequence[int] | mx.array) -> None:
        super().__init__()
        self._pad(left_padding)

    def view(self, N: int) -> View:
        end = self._fed + N
        return View(N=N, T=end, first=self._fed, exists=self._exists(lambda: np.arange(end)))

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[Any, Any]:
        check_rows(type(self).__name__, keys, self.left_padding)
        return super().update_and_fetch(keys, values)

    def finalize(self) -> None:
        """Moves every row to the right by the padding that its last step had there."""
        if self._right is None:
            return
        self.keys, self.values = (
            None if x is None else shifted(x[:, :, : self._fed], self._right, self._fed)
            for x in (self.keys, self.values)
        )
        self.left_padding = self.left_padding + self._right
        self._right = None

    def extract(self, row: int) -> KVCache:
        """The cache of one row alone, without its padding, which it has to read."""
        row = self._row(row)
        padding: Any = self.left_padding[row].item()
        cache = KVCache()
        if self.keys is not None and self.values is not None and self._fed > padding:
            cache.state = tuple(x[row : row + 1, :, padding : self._fed] for x in (self.keys, self.values))
        return cache

    @classmethod
    def merge(cls, caches: Sequence[KVCache]) -> BatchKVCache:
        """The rows of several full caches, of one text each, as one batch."""
        if not caches:
            raise ValueError("[BatchKVCache] merge must have at least one cache; got none")
        longest = max(cache.fed() for cache in caches)
        merged = cls([longest - cache.fed() for cache in caches])
        if longest:
            merged.keys, merged.values = joined([cache.state for cache in caches], longest)
            merged._fed = longest
        return merged

    def to_quantized(self, group_size: int = 64, bits: int = 4) -> Cache:
        return Cache.to_quantized(self, group_size, bits)

    @property
    def state(self) -> tuple[Any, ...]:
        return self._padded_state(self._pair())

    @state.setter
    def state(self, state: Sequence[Any]) -> None:
        self._set_pair(self._set_padding(state))


class BatchRotatingKVCache(Padding, RotatingKVCache):
    """The last ``max_size`` slots of rows of unequal lengths. It keeps no sinks, which would differ by row."""

    def __init__(self, max_size: int, left_padding: Sequence[int] | mx.array) -> None:
        super().__init__(max_size)
        self._pad(left_padding)
        self._pending: tuple[mx.array, mx.array] | None = None

    def view(self, N: int) -> View:
        if self._pending is not None:
            raise self._refuse("finalize must follow a step with right padding")
        return super().view(N)

    def _in_place(self, N: int) -> bool:
        # A row without a token in this step must not lose its oldest one to it.
        return super()._in_place(N) if self._right is None else self._fed + N <= self.max_size

    def _needed(self) -> np.ndarray:
        # A row without a token in this step must keep all that it has, not only what a next query sees.
        return super()._needed() if self._right is None else np.argsort(self._held())

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[Any, Any]:
        check_rows(type(self).__name__, keys, self.left_padding)
        return super().update_and_fetch(keys, values)

    def _store(self, keys: mx.array, values: mx.array) -> None:
        if self._right is None:
            super()._store(keys, values)
        else:
            self._pending = keys, values

    def finalize(self) -> None:
        """Moves every row to the right by the padding that its last step had there."""
        if self._right is None:
            return
        if self._pending is not None:
            self.keys, self.values = (shifted(x, self._right, self.max_size) for x in self._pending)
            self._idx, self._pending = self.max_size, None
        elif self.keys is not None and self.values is not None:
            self.keys, self.values = (
                shifted(x[:, :, : self._fed], self._right, self._fed) for x in (self.keys, self.values)
            )
        self.left_padding = self.left_padding + self._right
        self._right = None

    def extract(self, row: int) -> RotatingKVCache:
        """The cache of one row alone, without its padding, which it has to read."""
        row = self._row(row)
        padding: Any = self.left_padding[row].item()
        fed, pair = self._fed - padding, self._ordered()
        if fed <= 0 or not pair:
            return RotatingKVCache(self.max_size)
        size = min(fed, self.max_size)
        state = [x[row : row + 1, :, x.shape[2] - size :] for x in pair]
        return RotatingKVCache.from_state(state, ("0", str(self.max_size), str(fed), str(size)))

    @classmethod
    def merge(cls, caches: Sequence[RotatingKVCache]) -> BatchRotatingKVCache:
        """The rows of several rotating caches of one size and without sinks, of one text each, as one batch."""
        sizes = {(cache.max_size, cache.keep) for cache in caches}
        if len(sizes) != 1 or any(keep for _, keep in sizes):
            raise ValueError(f"[{cls.__name__}] merge must have caches of one max_size and keep=0; got {sorted(sizes)}")
        longest = max(cache.fed() for cache in caches)
        merged = cls(caches[0].max_size, [longest - cache.fed() for cache in caches])
        if longest:
            slots = min(longest, merged.max_size)
            merged.keys, merged.values = joined([cache._ordered() for cache in caches], slots)
            merged._fed, merged._idx = longest, slots
        return merged

    @property
    def state(self) -> tuple[Any, ...]:
        return self._padded_state(self._pair())

    @state.setter
    def state(self, state: Sequence[Any]) -> None:
        self._set_pair(self._set_padding(state))
        self._pending = None

    @property
    def meta_state(self) -> tuple[str, ...]:
        return str(self.max_size), str(self._fed), str(self._idx)

    @meta_state.setter
    def meta_state(self, meta: Sequence[str]) -> None:
        max_size, fed, idx = whole_numbers(type(self).__name__, meta, "max_size", "offset", "index")
        self._restore(max_size, 0, fed, idx)


def shifted(x: mx.array, by: mx.array, size: int) -> mx.array:
    """The last ``size`` slots of ``x`` ``[B, N_kv, T, D]`` after each row moved to the right by ``by`` ``[B]``."""
    T = x.shape[2]
    source = mx.arange(T - size, T) - by[:, None]
    return mx.take_along_axis(x, mx.maximum(source, 0)[:, None, :, None], axis=2)


def joined(states: Sequence[tuple[Any, ...]], slots: int) -> tuple[mx.array, mx.array]:
    """Keys and values of several states as one batch, at the right end of ``slots`` slots."""
    like = next(state for state in states if state)
    rows = []
    for part in range(2):
        each = []
        for state in states:
            _, N_kv, _, D = like[part].shape
            x = state[part] if state else mx.zeros((1, N_kv, 0, D), dtype=like[part].dtype)
            if x.shape[0] != 1:
                raise ValueError(f"[merge] caches must be of one row each; got {x.shape[0]} rows")
            each.append(mx.pad(x, [(0, 0), (0, 0), (slots - x.shape[2], 0), (0, 0)]))
        rows.append(mx.concatenate(each, axis=0))
    return rows[0], rows[1]


def padding_of(cache: str, name: str, padding: Any) -> mx.array:
    """``padding`` as an int32 array ``[B]``; Python numbers are checked."""
    if isinstance(padding, mx.array):
        if not mx.issubdtype(padding.dtype, mx.integer) or padding.ndim != 1:
            raise ValueError(f"[{cache}] {name} must be integers [B]; got {padding.dtype} of shape {padding.shape}")
        return padding.astype(mx.int32)
    values = list(padding)
    for value in values:
        if isinstance(value, bool) or not hasattr(value, "__index__"):
            raise TypeError(f"[{cache}] {name} must hold integers; got {value!r}")
        if value < 0:
            raise ValueError(f"[{cache}] {name} must be >= 0; got {value}")
    return mx.array(values, dtype=mx.int32)


def check_rows(cache: str, keys: mx.array, left_padding: mx.array, name: str = "keys") -> None:
    """Refuses keys of another batch than the padding's."""
    if keys.shape[0] != left_padding.shape[0]:
        raise ValueError(f"[{cache}] {name} must have B={left_padding.shape[0]} rows; got shape {keys.shape}")
