"""Positions inside attention: rotary embeddings (RoPE) and ALiBi slopes."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import mlx.core as mx
import numpy as np

from mlx_tx.values import FLOATING, ArrayTypeError, dtype_name

TURN = 2**64  # an angle is an unsigned 64-bit fraction of a full turn


def alibi_slopes(n_heads: int) -> mx.array:
    """The ALiBi slope of each head, float32 ``[n_heads]`` (POS-4).

    For a power of two n, slope h is ``2^(-8 (h + 1) / n)``. Any other count takes those of the power of two p below
    it, and then every other slope of 2p (Press et al. 2022, section 3, and the recipe of the paper's code).
    """
    if isinstance(n_heads, bool):
        raise TypeError(f"[alibi_slopes] n_heads must be an integer; got {n_heads!r}")
    n_heads = operator.index(n_heads)
    if n_heads < 1:
        raise ValueError(f"[alibi_slopes] n_heads must be >= 1; got {n_heads}")
    power = 2 ** int(math.log2(n_heads))
    slopes = [2.0 ** (-8.0 * (h + 1) / power) for h in range(power)]
    slopes += [2.0 ** (-4.0 * (h + 1) / power) for h in range(0, 2 * (n_heads - power), 2)]
    return mx.array(np.asarray(slopes, dtype=np.float32))


def rope(
    x: mx.array,
    *,
    offset: int | Sequence[int] | mx.array = 0,
    base: float = 10000.0,
    dims: int | None = None,
    traditional: bool = False,
    scale: float = 1.0,
) -> mx.array:
    """Rotary position embedding: pairs of channels turn by ``scale * (offset + t) * base^(-2 i / dims)`` (POS-3).

    The angle is kept as a 64-bit fraction of a turn, exact modulo a full turn, so that the rotation is right to
    float32 at any integer position. Internals are float32; the result has the dtype of ``x``.

    Args:
        x (array): ``[..., T, D]``, floating; with one offset for each row, ``[B, ..., T, D]``.
        offset (int, list or array): Position of the first token: one integer, or one for each row of the first axis.
        base (float): Base of the frequencies, > 0.
        dims (int, optional): How many leading channels turn; even. Default: ``D``.
        traditional (bool): Pairs are neighbours (2i, 2i + 1); otherwise (i, i + dims / 2), as in most checkpoints.
        scale (float): Factor of the positions.

    Source: Su et al. 2021, section 3.2.2.
    """
    if not isinstance(x, mx.array):
        raise TypeError(f"[rope] x must be an mlx array; got {type(x).__name__}")
    if x.dtype not in FLOATING:
        raise ArrayTypeError(f"[rope] x must be float32, float16 or bfloat16; got {dtype_name(x)}")
    if x.ndim < 2:
        raise ValueError(f"[rope] x must have axes [..., T, D]; got shape {x.shape}")
    dims = x.shape[-1] if dims is None else operator.index(dims)
    if not 2 <= dims <= x.shape[-1] or dims % 2:
        raise ValueError(f"[rope] dims must be even and in 2..D={x.shape[-1]}; got {dims}")
    for name, value in (("base", base), ("scale", scale)):
        if not math.isfinite(value) or (name == "base" and value <= 0):
            raise ValueError(f"[rope] {name} must be finite{' and > 0' if name == 'base' else ''}; got {value!r}")
    frequencies = [scale * base ** (-2.0 * i / dims) for i in range(dims // 2)]
    return rotate(x, _offsets(offset, x), frequencies, traditional=traditional)


def rotate(x: mx.array, offsets: mx.array, frequencies: Sequence[float], *, traditional: bool = False) -> mx.array:
    """Turns the pairs of the first ``2 * len(frequencies)`` channels of ``x`` by ``frequency * position`` radians.

    ``offsets`` is an integer array ``[1 or B]``; ``frequencies`` are host numbers in radians for one position.
    """
    dims = 2 * len(frequencies)
    angles = _angles(offsets, x.shape[-2], frequencies)  # [1 or B, T, dims / 2]
    angles = angles.reshape(angles.shape[0], *(1,) * (x.ndim - 3), *angles.shape[1:]) if x.ndim > 2 else angles[0]
    cos, sin = mx.cos(angles), mx.sin(angles)
    turned = x[..., :dims].astype(mx.float32)
    if traditional:
        first, second = turned[..., 0::2], turned[..., 1::2]
    else:
        first, second = turned[..., : dims // 2], turned[..., dims // 2 :]
    pair = [first * cos - second * sin, first * sin + second * cos]
    out = mx.stack(pair, axis=-1).reshape(turned.shape) if traditional else mx.concatenate(pair, axis=-1)
    return mx.concatenate([out.astype(x.dtype), x[..., dims:]], axis=-1) if dims < x.shape[-1] else out.astype(x.dtype)


def _angles(offsets: mx.array, T: int, frequencies: Sequence[float]) -> mx.array:
    """frequency * position modulo a turn, float32 in [-pi, pi].

    Products of 64-bit unsigned integers wrap at 2^64, which is exactly a full turn: nothing is lost at large positions.
    """
    steps = [round(Fraction(f) / Fraction(_TWO_PI) * TURN) % TURN for f in frequencies]
    positions = (offsets[:, None].astype(mx.int64) + mx.arange(T)).view(mx.uint64)
    turns = positions[..., None] * mx.array(np.asarray(steps, dtype=np.uint64))
    return turns.view(mx.int64).astype(mx.float32) * mx.array(2 * math.pi / TURN, dtype=mx.float32)


# 2 pi to 33 digits: with the float64 one, the error of a large scale times a large position would show.
_TWO_PI = "6.28318530717958647692528676655900577"


def _offsets(offset: Any, x: mx.array) -> mx.array:
    B = x.shape[0] if x.ndim > 2 else 1
    if isinstance(offset, mx.array):
        if not mx.issubdtype(offset.dtype, mx.integer):
            raise ArrayTypeError(f"[rope] offset must hold integers; got {dtype_name(offset)}")
        if offset.shape not in ((), (1,), (B,)):
            raise ValueError(f"[rope] offset must be one integer or have shape [B]=({B},); got shape {offset.shape}")
        return offset.reshape(-1)
    known = [offset] if not isinstance(offset, Sequence | np.ndarray) else list(offset)
    if any(isinstance(value, bool) for value in known):
        raise TypeError(f"[rope] offset must be an integer; got {offset!r}")
    if len(known) not in (1, B):
        raise ValueError(f"[rope] offset must be one integer or have shape [B]=({B},); got {offset!r}")
    return mx.array([operator.index(value) for value in known], dtype=mx.int64)
