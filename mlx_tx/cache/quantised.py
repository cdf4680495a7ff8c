"""The cache that keeps every token in a few bits per number."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mlx.core as mx

from mlx_tx.cache.base import Cache, check_count, check_fed, grown, whole_numbers, written
from mlx_tx.cache.view import View

BITS = (2, 3, 4, 5, 6, 8)
GROUP_SIZES = (32, 64, 128)
Triple = tuple[mx.array, mx.array, mx.array]


class QuantizedKVCache(Cache):
    """Keys and values as ``mx.quantize`` packs them: groups of ``group_size`` numbers, ``bits`` bits each.

    ``update_and_fetch`` gives triples (packed, scales, biases), as mlx-lm's does; :func:`dequantised` unpacks them.
    Head sizes must be multiples of ``group_size``.
    """

    def __init__(self, group_size: int = 64, bits: int = 8) -> None:
        if group_size not in GROUP_SIZES or isinstance(group_size, bool):
            raise ValueError(f"[QuantizedKVCache] group_size must be one of {GROUP_SIZES}; got {group_size!r}")
        if bits not in BITS or isinstance(bits, bool):
            raise ValueError(f"[QuantizedKVCache] bits must be one of {BITS}; got {bits!r}")
        self.group_size = group_size
        self.bits = bits
        self.keys: Triple | None = None
        self.values: Triple | None = None
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
        N = check_fed("QuantizedKVCache", keys, values, None if self.keys is None else self.keys[0])
        for name, x in (("keys", keys), ("values", values)):
            if x.shape[-1] % self.group_size:
                allowed = f"a head size divisible by group_size={self.group_size}"
                raise ValueError(f"[QuantizedKVCache] {name} must have {allowed}; got {x.shape[-1]}")
        self.keys, k = self._put(self.keys, keys, N)
        self.values, v = self._put(self.values, values, N)
        self._fed += N
        return k, v

    def _put(self, held: Triple | None, x: mx.array, N: int) -> tuple[Triple, Triple]:
        end = self._fed + N
        parts = mx.quantize(x, group_size=self.group_size, bits=self.bits)
        old = held or (None, None, None)
        buffers = [written(grown(b, part, end), part, self._fed) for b, part in zip(old, parts, strict=True)]
        whole: Triple = (buffers[0], buffers[1], buffers[2])
        return whole, (whole[0][:, :, :end], whole[1][:, :, :end], whole[2][:, :, :end])

    @property
    def nbytes(self) -> int:
        return sum(x.nbytes for triple in (self.keys, self.values) if triple is not None for x in triple)

    def trim(self, n: int) -> int:
        n = min(check_count(type(self).__name__, n), self._fed)
        self._fed -= n
        return n

    @property
    def state(self) -> tuple[Any, ...]:
        if self.keys is None or self.values is None or not self._fed:
            return ()
        return tuple(tuple(x[:, :, : self._fed] for x in triple) for triple in (self.keys, self.values))

    @state.setter
    def state(self, state: Sequence[Any]) -> None:
        self.keys, self.values, self._fed = None, None, 0
        if not len(state):
            return
        if len(state) != 2 or any(len(triple) != 3 for triple in state):
            raise self._refuse("state must be two triples (packed, scales, biases)")
        self.keys, self.values = (self._checked(triple) for triple in state)
        if self.keys[0].shape[:3] != self.values[0].shape[:3]:
            raise self._refuse(f"state must agree on B, N_kv, T; got {self.keys[0].shape} and {self.values[0].shape}")
        self._fed = self.keys[0].shape[2]

    def _checked(self, triple: Sequence[mx.array]) -> Triple:
        packed, scales, biases = triple
        groups = scales.shape[-1] if scales.ndim == 4 else 0
        words = groups * self.group_size * self.bits // 32
        good = (
            packed.dtype == mx.uint32
            and packed.ndim == 4
            and scales.shape == biases.shape == (*packed.shape[:3], groups)
            and packed.shape[3] == words
            and 0 not in packed.shape
            and scales.dtype == biases.dtype
            and mx.issubdtype(scales.dtype, mx.floating)
        )
        if not good:
            shapes = f"{packed.dtype} {packed.shape}, {scales.dtype} {scales.shape}, {biases.dtype} {biases.shape}"
            raise self._refuse(f"state must be packed in groups of {self.group_size} by {self.bits} bits; got {shapes}")
        return packed, scales, biases

    @property
    def meta_state(self) -> tuple[str, ...]:
        return str(self._fed), str(self.group_size), str(self.bits)

    @meta_state.setter
    def meta_state(self, meta: Sequence[str]) -> None:
        _, group_size, bits = whole_numbers("QuantizedKVCache", meta, "offset", "group_size", "bits")
        self.__init__(group_size=group_size, bits=bits)  # type: ignore[misc]


def dequantised(triple: Triple, *, group_size: int, bits: int) -> mx.array:
    """Keys or values of a quantised cache, as numbers again."""
    return mx.dequantize(*triple, group_size=group_size, bits=bits)
