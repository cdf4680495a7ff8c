"""Angles of positions, exact modulo a full turn.

An angle is kept as an unsigned 64-bit fraction of a turn. Products of 64-bit integers wrap at 2^64, which is exactly
a turn: nothing is lost however large the position.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from typing import Any

import mlx.core as mx
import numpy as np

TURN = 2**64

# 2 pi to 33 digits: with the float64 one, the error would show at large positions.
_TWO_PI = Fraction("6.28318530717958647692528676655900577")


def angles(positions: mx.array, frequencies: Sequence[float] | Sequence[Sequence[float]]) -> mx.array:
    """frequency * position modulo a turn, float32 in [-pi, pi].

    ``positions`` are integers ``[B, T]``; ``frequencies``, in radians for one position, are host numbers ``[R]``, or
    ``[B, R]`` for frequencies of each row. Returns ``[B, T, R]``.
    """
    steps = np.vectorize(_step, otypes=[np.uint64])(np.asarray(frequencies, dtype=np.float64))
    rates = mx.array(steps if steps.ndim == 1 else steps[:, None, :])
    turns = positions.astype(mx.int64).view(mx.uint64)[..., None] * rates
    return turns.view(mx.int64).astype(mx.float32) * mx.array(2 * math.pi / TURN, dtype=mx.float32)


def token_positions(function: str, offset: Any, B: int, T: int) -> mx.array:
    """Positions offset + 0 .. T - 1, int64 ``[1 or B, T]``, from one integer or one for each of B rows."""
    if isinstance(offset, mx.array):
        if not mx.issubdtype(offset.dtype, mx.integer):
            raise TypeError(f"[{function}] offset must hold integers; got {offset.dtype}")
        if offset.shape not in ((), (1,), (B,)):
            shape = offset.shape
            raise ValueError(f"[{function}] offset must be one integer or have shape [B]=({B},); got shape {shape}")
        start = offset.reshape(-1).astype(mx.int64)
    else:
        start = mx.array(host_offsets(function, offset, B), dtype=mx.int64)
    return start[:, None] + mx.arange(T)


def host_offsets(function: str, offset: Any, B: int) -> list[int]:
    """One integer, or one for each of B rows, as a list."""
    known = list(offset) if isinstance(offset, Sequence | np.ndarray) and not isinstance(offset, str) else [offset]
    wrong = any(isinstance(value, bool) or not hasattr(value, "__index__") for value in known)
    if wrong:
        raise TypeError(f"[{function}] offset must be an integer or integers; got {offset!r}")
    if len(known) not in (1, B):
        raise ValueError(f"[{function}] offset must be one integer or have shape [B]=({B},); got {offset!r}")
    return [operator.index(value) for value in known]


@lru_cache(maxsize=4096)
def _step(frequency: float) -> int:
    return round(Fraction(float(frequency)) / _TWO_PI * TURN) % TURN
