"""Attention in plain MLX operations: all scores are stored, every feature works, and MLX differentiates it.

The only path with second derivatives, ``jvp`` and ``vmap`` of everything. Its memory grows as T_q * T_kv (CPX-2).
"""

from __future__ import annotations

import mlx.core as mx

from mlx_tx import masks
from mlx_tx.arguments import AttentionArrays, AttentionSpec
from mlx_tx.paths import scores


def run(spec: AttentionSpec, arrays: AttentionArrays) -> tuple[mx.array, mx.array]:
    """Output float32 ``[B, N_q, T_q, D_v]`` and log-sum-exp float32 ``[B, N_q, T_q]``.

    A row that sees no key gives output 0 and, without a sink, log-sum-exp -inf (SEM-1); its gradients are 0.
    """
    first, end = masks.key_range(spec)
    tile = masks.Tile(0, spec.T_q, first, end)
    k, v = scores.keys_and_values(spec, arrays, first, end)
    heads = k.shape[1]
    q = scores.fold(arrays.q.astype(spec.wide) * spec.scale, heads)
    raw = scores.unfold(q @ k.swapaxes(-1, -2), spec.N_q)
    s = scores.finished(spec, arrays, scores.soft_capped(spec, raw)[0], tile)

    top = s.max(axis=-1, keepdims=True)
    sinks = None if arrays.sinks is None else arrays.sinks[:, :, None, None]
    if sinks is not None:
        top = mx.maximum(top, sinks)
    # The result does not depend on the shift, at any order of derivative.
    top = mx.stop_gradient(scores.or_zero(top, scores.NEVER))
    weights = mx.exp(s - top)
    total = weights.sum(axis=-1, keepdims=True)
    if sinks is not None:
        total = total + mx.exp(sinks - top)

    empty = total == 0
    safe = mx.where(empty, mx.ones((), dtype=mx.float32), total)
    out = scores.unfold(scores.fold(weights, heads) @ v, spec.N_q) / safe
    lse = mx.where(empty, mx.array(scores.NEVER, dtype=mx.float32), top + mx.log(safe))
    return out, lse.squeeze(-1).astype(mx.float32)
