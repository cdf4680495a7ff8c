"""Position signals inside attention, in float64: rotary embedding and ALiBi.

Sources: RoPE: Su et al. 2021, "RoFormer", section 3.2.2 and equation 34 (interleaved pairs); the half-split pairing is
that of GPT-NeoX. ALiBi: Press et al. 2022, "Train Short, Test Long", section 3, and the authors' recipe for head
counts that are not a power of two.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from . import masks

Float64 = NDArray[np.float64]
Int = NDArray[np.int64]


def rope(
    x: ArrayLike,
    *,
    offset: int | ArrayLike = 0,
    base: float = 10000.0,
    dims: int | None = None,
    traditional: bool = False,
    scale: float = 1.0,
) -> Float64:
    """Rotary position embedding of ``x`` [..., T, D] (POS-3); same shape.

    Row t stands at position p = scale * (offset + t); ``offset`` is an integer, or [B] for the first axis of ``x``.
    Pair r of the first ``dims`` channels (all by default; an even number) turns by the angle p * base^(-2 r / dims):

        (a, b) -> (a cos - b sin, a sin + b cos)

    The pairs are (r, r + dims/2), or (2r, 2r + 1) when ``traditional``. Channels from ``dims`` on stay as they are.
    """
    array = np.asarray(x).astype(np.float64)
    if array.ndim < 2:
        raise ValueError(f"[rope] x must have the layout [..., T, D]; got shape {array.shape}")
    T, D = array.shape[-2:]
    dims = D if dims is None else dims
    if dims % 2 or not 0 <= dims <= D:
        raise ValueError(f"[rope] dims must be even and lie in 0..{D}; got {dims}")
    start = np.asarray(offset, dtype=np.int64)
    if start.ndim > 1 or (start.ndim == 1 and (array.ndim < 3 or start.shape[0] != array.shape[0])):
        raise ValueError(f"[rope] offset must be an integer or have shape [B]; got shape {start.shape}")
    at = scale * (start[..., None] + np.arange(T)).astype(np.float64)
    angles = at[..., None] * rope_frequencies(dims, base)
    if start.ndim:
        angles = angles.reshape(start.shape[0], *(1,) * (array.ndim - 3), T, dims // 2)
    return rotate(array, np.cos(angles), np.sin(angles), traditional=traditional)


def rope_frequencies(dims: int, base: float = 10000.0) -> Float64:
    """base^(-2 r / dims) for r = 0 .. dims/2 - 1: radians per position of each pair."""
    return base ** (-np.arange(0, dims, 2) / max(dims, 1))


def rotate(x: ArrayLike, cos: ArrayLike, sin: ArrayLike, *, traditional: bool = False) -> Float64:
    """Turn the pairs of the first 2 R channels of ``x`` [..., T, D] by angles with these cosines and sines.

    ``cos`` and ``sin`` [..., T, R] broadcast against the leading axes of ``x``. Pairing as in :func:`rope`.
    """
    array = np.asarray(x).astype(np.float64)
    c, s = np.asarray(cos).astype(np.float64), np.asarray(sin).astype(np.float64)
    R = c.shape[-1]
    first, second = (slice(0, 2 * R, 2), slice(1, 2 * R, 2)) if traditional else (slice(0, R), slice(R, 2 * R))
    a, b = array[..., first], array[..., second]
    turned = array.copy()
    turned[..., first] = a * c - b * s
    turned[..., second] = a * s + b * c
    return turned


def alibi_slopes(n_heads: int) -> Float64:
    """ALiBi's slope of each head, [n_heads], float64 (POS-4).

    For a power of two n: 2^(-8 (h + 1) / n). Otherwise those of the power of two below, followed by every second one
    (the first, third, ...) of the power of two above, as many as are missing.
    """
    if n_heads < 1:
        raise ValueError(f"[alibi_slopes] n_heads must be >= 1; got {n_heads}")
    below = 2 ** int(math.log2(n_heads))
    slopes = _geometric(below)
    return np.concatenate([slopes, _geometric(2 * below)[0::2][: n_heads - below]])


def _geometric(n: int) -> Float64:
    return 2.0 ** (-8.0 * np.arange(1, n + 1) / n)


def alibi_bias(slopes: ArrayLike, T_q: int, T_kv: int, q_offset: int | Int | None = None) -> Float64:
    """-slope * abs(i' - j) for ``slopes`` [N_q] or [B, N_q]; returns [1 or B, N_q, T_q, T_kv] (SEM-6).

    i' = i + q_offset, with an integer or [B]; T_kv - T_q by default, as everywhere.
    """
    per_head = np.atleast_2d(np.asarray(slopes).astype(np.float64))
    distance = np.abs(masks.query_positions(T_q, T_kv, q_offset)[:, None, :, None] - np.arange(T_kv))
    return -per_head[:, :, None, None] * distance
