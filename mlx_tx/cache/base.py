"""What all caches share: the protocol of mlx-lm, and buffers that are written in place."""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Self

import mlx.core as mx

from mlx_tx.cache.view import View

STEP = 256  # buffers grow by this many slots, so that a token costs no copy of the cache


class Cache(ABC):
    """A key/value cache of one layer, with the methods that mlx-lm's models and generators call.

    A step asks for :meth:`view` (or :meth:`make_mask`) with the number of its tokens, and then hands their keys and
    values to :meth:`update_and_fetch`, which gives back all that its queries may attend to.
    """

    @property
    @abstractmethod
    def offset(self) -> Any:
        """The position of the next token: an integer, or an array ``[B]``."""

    @abstractmethod
    def view(self, N: int) -> View:
        """Which keys the next step of N tokens gets."""

    @abstractmethod
    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[Any, Any]:
        """Adds ``keys`` ``[B, N_kv, N, D]`` and ``values`` ``[B, N_kv, N, D_v]``; the keys and values of the view."""

    @property
    @abstractmethod
    def state(self) -> tuple[Any, ...]:
        """The arrays that the cache consists of, without unused slots; ``()`` while it is empty."""

    @state.setter
    @abstractmethod
    def state(self, state: Sequence[Any]) -> None: ...

    @property
    @abstractmethod
    def meta_state(self) -> tuple[str, ...]:
        """What else a restored cache has to know."""

    @meta_state.setter
    @abstractmethod
    def meta_state(self, meta: Sequence[str]) -> None: ...

    @classmethod
    def from_state(cls, state: Sequence[Any], meta_state: Sequence[str] = ()) -> Self:
        """The cache that had this state; ``ValueError`` where no cache can have it."""
        cache = cls.__new__(cls)
        cache.meta_state = meta_state
        cache.state = state
        return cache

    @abstractmethod
    def size(self) -> int:
        """How many slots are held."""

    def empty(self) -> bool:
        """Whether nothing has been fed yet."""
        return self.size() == 0

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """Bytes of the buffers, unused slots included."""

    def is_trimmable(self) -> bool:
        """Whether any number of tokens can be taken back."""
        return True

    def can_trim(self, n: int) -> bool:
        """Whether the last ``n`` tokens can be taken back as if they had never been fed."""
        return check_count(type(self).__name__, n) == 0 or self.is_trimmable()

    @abstractmethod
    def trim(self, n: int) -> int:
        """Takes back the last ``n`` tokens, an integer >= 0, at most all; returns how many."""

    def rewind(self, length: int) -> int:
        """Takes back everything after the first ``length`` slots; returns how many were taken back."""
        return self.trim(max(0, self.fed() - length))

    @abstractmethod
    def fed(self) -> int:
        """How many slots have been fed and not taken back."""

    def make_mask(self, N: int, return_array: bool = False, window_size: int | None = None) -> mx.array | str | None:
        """mlx-lm's mask for the next step of N tokens: ``None``, ``"causal"`` or boolean ``[1 or B, 1, N, T]``."""
        return self.view(N).mlx_lm_mask(window_size, return_array=return_array)

    def to_quantized(self, group_size: int = 64, bits: int = 4) -> Cache:
        """The same cache with quantised keys and values."""
        del group_size, bits
        raise ValueError(f"[{type(self).__name__}] to_quantized is for full caches; got {type(self).__name__}")

    def _refuse(self, problem: str) -> ValueError:
        return ValueError(f"[{type(self).__name__}] {problem}")


def written(buffer: mx.array, x: mx.array, at: int) -> mx.array:
    """``buffer`` with ``x`` at slots ``at``, ...; MLX reuses the memory of a buffer that nothing else refers to."""
    return mx.slice_update(buffer, x.astype(buffer.dtype), mx.array([at]), axes=[2])


def grown(buffer: mx.array | None, like: mx.array, slots: int, limit: int | None = None) -> mx.array:
    """``buffer`` with room for at least ``slots`` slots, in steps; a new one in the shape of ``like``."""
    have = 0 if buffer is None else buffer.shape[2]
    if buffer is not None and have >= slots:
        return buffer
    room = -(-slots // STEP) * STEP
    room = room if limit is None else min(room, limit)
    more = mx.zeros((*like.shape[:2], room - have, like.shape[3]), dtype=like.dtype)
    return more if buffer is None else mx.concatenate([buffer, more], axis=2)


def check_fed(name: str, keys: mx.array, values: mx.array, held: mx.array | None) -> int:
    """Refuses keys and values that do not go together, or not with what is held; returns N."""
    if keys.ndim != 4 or values.ndim != 4 or keys.shape[:3] != values.shape[:3]:
        shapes = f"{keys.shape} and {values.shape}"
        raise ValueError(f"[{name}] keys and values must be [B, N_kv, N, D] and [B, N_kv, N, D_v]; got {shapes}")
    if held is not None and held.shape[:2] != keys.shape[:2]:
        raise ValueError(f"[{name}] keys must have B, N_kv = {held.shape[:2]} as before; got shape {keys.shape}")
    return keys.shape[2]


def check_count(name: str, n: Any) -> int:
    """``n``, a number of tokens to take back, as an integer >= 0."""
    if isinstance(n, bool) or not hasattr(n, "__index__"):
        raise TypeError(f"[{name}] n must be an integer >= 0; got {n!r}")
    count = operator.index(n)
    if count < 0:
        raise ValueError(f"[{name}] n must be an integer >= 0; got {count}")
    return count


def check_state(name: str, state: Sequence[Any], count: int = 2) -> Sequence[mx.array]:
    """``state`` if it is ``count`` arrays, the first two of which are keys and values."""
    if len(state) != count or not all(isinstance(x, mx.array) for x in state):
        raise ValueError(f"[{name}] state must be {count} arrays; got {[type(x).__name__ for x in state]}")
    keys, values = state[:2]
    if keys.ndim != 4 or values.ndim != 4 or keys.shape[:3] != values.shape[:3] or 0 in keys.shape:
        raise ValueError(f"[{name}] state must hold keys [B, N_kv, T, D] and values [B, N_kv, T, D_v]; "
                         f"got {keys.shape} and {values.shape}")  # fmt: skip
    if keys.dtype != values.dtype or not mx.issubdtype(keys.dtype, mx.floating):
        raise ValueError(f"[{name}] state must be floating, of one dtype; got {keys.dtype} and {values.dtype}")
    return state


def whole_numbers(name: str, meta: Sequence[str], *fields: str) -> list[int]:
    """The integers >= 0 that a ``meta_state`` holds under these names."""
    values: list[Any] = list(meta) if isinstance(meta, list | tuple) else [meta]
    good = all(isinstance(v, str) and v.isascii() and v.isdigit() and len(v) < 16 for v in values)
    if len(values) != len(fields) or not good:
        raise ValueError(f"[{name}] meta_state must hold whole numbers {', '.join(fields) or '(none)'}; got {meta!r}")
    return [int(v) for v in values]
