"""Affine quantisation of groups along the last axis: codes of a few bits, a scale and a bias for each group.

    value = code * scale + bias        0 <= code < 2^bits

The bias is the end of the group's range that is larger in magnitude, so that this end has code 0 and is kept exactly;
the scale runs from there to the other end, and is then adjusted so that 0 stands at a whole number of steps.

    scale = (max - min) / (2^bits - 1), at least 1e-7; negative where the bias is the maximum
    n     = round(bias / scale);  if n != 0: scale = bias / n, else bias = 0
    code  = round((w - bias) / scale), clamped

Codes are decisions: they are taken in float32, operation by operation, as implementations take them, and rounding is
to the nearest, ties to even. The scale and the bias are rounded to the dtype of the storage after that.

Source: the documentation of ``mlx.core.quantize`` (mode affine) and its behaviour, which refines the formula there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Float64 = NDArray[np.float64]
Float32 = NDArray[np.float32]
Int = NDArray[np.int64]

BITS = (2, 3, 4, 5, 6, 8)
GROUP_SIZES = (32, 64, 128)


@dataclass(frozen=True)
class Quantised:
    """``codes`` int [..., C]; ``scales`` and ``biases`` float64 [..., C / group_size]."""

    codes: Int
    scales: Float64
    biases: Float64
    bits: int
    group_size: int

    def values(self) -> Float64:
        """What the codes stand for, [..., C]."""
        scales, biases = (np.repeat(x, self.group_size, axis=-1) for x in (self.scales, self.biases))
        return self.codes * scales + biases

    def packed(self) -> NDArray[np.uint32]:
        """The codes of each row as one string of bits, lowest first, in words of 32: [..., C * bits / 32]."""
        as_bits = (self.codes[..., None] >> np.arange(self.bits)) & 1
        words = as_bits.reshape(*self.codes.shape[:-1], self.codes.shape[-1] * self.bits // 32, 32).astype(np.uint32)
        return (words << np.arange(32, dtype=np.uint32)).sum(axis=-1, dtype=np.uint32)


def quantise(w: ArrayLike, *, bits: int, group_size: int, dtype: Any = np.float32) -> Quantised:
    """Quantise ``w`` [..., C], C a multiple of ``group_size``; scale and bias are stored in ``dtype``."""
    if bits not in BITS:
        raise ValueError(f"[quantise] bits must be one of {BITS}; got {bits}")
    if group_size not in GROUP_SIZES:
        raise ValueError(f"[quantise] group_size must be one of {GROUP_SIZES}; got {group_size}")
    array = np.asarray(w).astype(np.float32)
    if array.ndim < 1 or array.shape[-1] % group_size:
        raise ValueError(f"[quantise] w must have a last axis divisible by {group_size}; got shape {array.shape}")
    groups = array.reshape(*array.shape[:-1], array.shape[-1] // group_size, group_size)
    scale, bias = _scale_and_bias(groups.min(axis=-1), groups.max(axis=-1), np.float32(2**bits - 1))
    codes = np.clip(np.rint((groups - bias[..., None]) / scale[..., None]), 0, 2**bits - 1)
    return Quantised(
        codes=codes.astype(np.int64).reshape(array.shape),
        scales=scale.astype(dtype).astype(np.float64),
        biases=bias.astype(dtype).astype(np.float64),
        bits=bits,
        group_size=group_size,
    )


def _scale_and_bias(low: Float32, high: Float32, steps: np.float32) -> tuple[Float32, Float32]:
    scale = np.maximum((high - low) / steps, np.float32(1e-7))
    from_low = np.abs(low) > np.abs(high)
    scale, edge = np.where(from_low, scale, -scale), np.where(from_low, low, high)
    n = np.rint(edge / scale)
    return np.where(n == 0, scale, edge / np.where(n == 0, np.float32(1), n)), np.where(n == 0, np.float32(0), edge)


def quantised_values(w: ArrayLike, *, bits: int, group_size: int, dtype: Any = np.float32) -> Float64:
    """``w`` after it went through :func:`quantise` and came back."""
    return quantise(w, bits=bits, group_size=group_size, dtype=dtype).values()


def bytes_per_token(channels: int, *, bits: int, group_size: int, scale_bytes: int) -> int:
    """Bytes that ``channels`` numbers take: the codes, and a scale and a bias of ``scale_bytes`` for each group."""
    return channels * bits // 8 + 2 * scale_bytes * (channels // group_size)
