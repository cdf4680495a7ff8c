"""Attention in float64 NumPy, one row at a time: what the tests of ``mlx_tx`` compare with.

Written from the semantics alone: nothing here is shared with the package or with the suite's oracle.
"""

from __future__ import annotations

import math

import mlx.core as mx
import numpy as np

DTYPES = {"float32": mx.float32, "float16": mx.float16, "bfloat16": mx.bfloat16}


def to_numpy(x):
    """An MLX array as NumPy; bfloat16 by way of float32."""
    return np.array(x.astype(mx.float32) if x.dtype == mx.bfloat16 else x)


def attention(
    q,
    k,
    v,
    *,
    scale=None,
    mask=None,
    causal=False,
    bias=None,
    sinks=None,
    window=None,
    alibi=None,
    softcap=None,
    kv_lengths=None,
    segments=None,
    q_offset=None,
):
    """(output, log-sum-exp) in float64; arrays may be MLX or NumPy."""
    q, k, v, mask, bias, sinks, alibi, kv_lengths, q_offset = (
        to_numpy(x) if isinstance(x, mx.array) else x for x in (q, k, v, mask, bias, sinks, alibi, kv_lengths, q_offset)
    )
    q, k, v = (np.asarray(x, np.float64) for x in (q, k, v))
    (B, N, T_q, D), (_, N_kv, T_kv, D_v) = q.shape, v.shape
    scale = float(np.float32(1 / math.sqrt(D) if scale is None else scale))
    if isinstance(mask, str):
        mask, causal = None, True
    if isinstance(window, int):
        left, right = window - 1, 0
    else:
        left, right = (None, None) if window is None else window
    if alibi is True:
        alibi = np.array([2.0 ** (-8 * (h + 1) / N) for h in range(N)])  # powers of two only
    whole = (B, N, T_q, T_kv)
    mask = None if mask is None else np.broadcast_to(mask, whole)
    bias = None if bias is None else np.broadcast_to(bias, whole)
    slopes = None if alibi is None else np.broadcast_to(np.asarray(alibi, np.float64), (B, N))
    offsets = np.broadcast_to(T_kv - T_q if q_offset is None else np.asarray(q_offset), (B,))
    if segments is not None:
        pair = segments if isinstance(segments, tuple) else (segments, segments)
        q_segments, kv_segments = (np.array(x) for x in pair)

    out = np.zeros((B, N, T_q, D_v))
    lse = np.full((B, N, T_q), -np.inf)
    for b, h, i in np.ndindex(B, N, T_q):
        g = h // (N // N_kv)
        place = i + int(offsets[b])
        scores, values = [], []
        if sinks is not None:
            scores.append(float(sinks[h]))
            values.append(np.zeros(D_v))
        for j in range(T_kv):
            if kv_lengths is not None and j >= kv_lengths[b]:
                continue
            if causal and j > place:
                continue
            if left is not None and j < place - left:
                continue
            if right is not None and j > place + right:
                continue
            if segments is not None and q_segments[b, i] != kv_segments[b, j]:
                continue
            if mask is not None and (mask[b, h, i, j] == -np.inf or (mask.dtype == bool and not mask[b, h, i, j])):
                continue
            if bias is not None and bias[b, h, i, j] == -np.inf:
                continue
            s = scale * float(q[b, h, i] @ k[b, g, j])
            if softcap is not None:
                s = softcap * math.tanh(s / softcap)
            if slopes is not None:
                s -= slopes[b, h] * abs(place - j)
            if bias is not None:
                s += float(bias[b, h, i, j])
            if mask is not None and mask.dtype != bool:
                s += float(mask[b, h, i, j])
            scores.append(s)
            values.append(v[b, g, j])
        if scores:
            top = max(scores)
            powers = np.exp(np.array(scores) - top)
            lse[b, h, i] = top + math.log(powers.sum())
            out[b, h, i] = powers @ np.array(values) / powers.sum()
    return out, lse


def assert_close(got, want, tolerance=2e-5):
    """Equal up to ``tolerance`` times the largest finite magnitude (at least 1), with infinities and NaN in the same
    places."""
    got = to_numpy(got).astype(np.float64) if isinstance(got, mx.array) else np.asarray(got, np.float64)
    want = to_numpy(want).astype(np.float64) if isinstance(want, mx.array) else np.asarray(want, np.float64)
    assert got.shape == want.shape
    finite = np.isfinite(want)
    np.testing.assert_array_equal(got[~finite], want[~finite])
    size = max(1.0, np.abs(want[finite]).max(initial=0))
    error = np.abs(got[finite] - want[finite]).max(initial=0)
    assert error <= tolerance * size, f"differs by {error:.3g} at magnitude {size:.3g}"
