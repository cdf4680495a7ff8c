"""Closed-form gradients of attention in float64.

With P the weights, s the weight of the sink, dO and dL the cotangents of out and lse, and r the scores:

    dV = P^T dO                              summed over the query heads of a group
    Delta = sum_d dO * out                   [B, N_q, T_q]
    dS = P * (dO V^T - Delta + dL)           gradient of the biased scores
    dBias, dMask = dS                        summed over the axes that were broadcast
    dSink = sum over b, i of s * (dL - Delta)
    dR = dS * sech^2(r / softcap)            without softcap: dS
    dQ = scale * dR K      dK = scale * dR^T Q      dK summed over the query heads of a group

Source: Dao 2023, "FlashAttention-2", section 2.3.2 (the backward pass), with the chain rule for the terms it has not.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from . import masks
from .arguments import Problem, problem
from .attention import AttentionStages, solve, used_inputs

Float64 = NDArray[np.float64]


def attention_gradients(
    q: ArrayLike, k: ArrayLike, v: ArrayLike, d_out: ArrayLike, *, d_lse: ArrayLike | None = None, **options: Any
) -> dict[str, Any]:
    """Gradients of sum(out * d_out) + sum(lse * d_lse), with the options of :func:`~.attention.attention`.

    ``d_out`` is [B, N_q, T_q, D_v], ``d_lse`` [B, N_q, T_q] (none: 0). Returns float64 arrays by name, each with the
    shape of its argument: ``q``, ``k``, ``v``; where given also ``bias``, ``mask`` (a floating one) and ``sinks``;
    and ``stages``, the forward's :class:`~.attention.AttentionStages`.

    Edges: a row with no allowed key sends back 0, whatever its cotangents (SEM-1; with a sink, ``d_lse`` still reaches
    the sink); keys that no query sees and the -inf entries of a mask or bias get exactly 0; NaN and inf that nobody
    sees do not leak (SEM-9).
    """
    p = problem(q, k, v, **options)
    stages = solve(p)
    dO, dL = _cotangents(stages, d_out, d_lse)
    keys_q, keys_k, keys_v = used_inputs(p)

    with np.errstate(invalid="ignore", over="ignore"):
        delta = (dO * stages.out).sum(axis=-1)
        dP = dO @ np.swapaxes(keys_v, -1, -2)
        dS = np.where(p.allowed, stages.weights * (dP - (delta - dL)[..., None]), 0.0)
        dR = dS if p.softcap is None else dS * sech2(stages.scores / p.softcap)
        result: dict[str, Any] = {
            "q": p.scale * (dR @ keys_k),
            "k": _sum_groups(p.scale * (np.swapaxes(dR, -1, -2) @ keys_q), p),
            "v": _sum_groups(np.swapaxes(stages.weights, -1, -2) @ dO, p),
        }
        for name, shape in p.shapes.items():
            result[name] = sum_to_shape(dS, shape)
        if p.sinks is not None:
            result["sinks"] = (stages.sink_weight * (dL - delta)).sum(axis=(0, 2))
    result["stages"] = stages
    return result


def sech2(x: Float64) -> Float64:
    """1 / cosh(x)^2, without overflow and without the cancellation of 1 - tanh(x)^2."""
    decay = np.exp(-2 * np.abs(x))
    return 4 * decay / (1 + decay) ** 2


def sum_to_shape(x: Float64, shape: tuple[int, ...]) -> Float64:
    """Sum ``x`` over the axes along which an array of ``shape`` was broadcast to it."""
    padded = (1,) * (x.ndim - len(shape)) + shape
    axes = tuple(axis for axis, size in enumerate(padded) if size == 1)
    return x.sum(axis=axes, keepdims=True).reshape(shape)


def _cotangents(stages: AttentionStages, d_out: ArrayLike, d_lse: ArrayLike | None) -> tuple[Float64, Float64]:
    dO = np.asarray(d_out).astype(np.float64)
    dL = np.zeros(stages.lse.shape) if d_lse is None else np.asarray(d_lse).astype(np.float64)
    for name, given, shape in (("d_out", dO, stages.out.shape), ("d_lse", dL, stages.lse.shape)):
        if given.shape != shape:
            raise ValueError(f"[attention_gradients] {name} must have shape {shape}; got {given.shape}")
    # Nothing flows back from a row without keys, whatever its cotangent holds; from its lse only where a sink makes it.
    sees = masks.seeing_queries(stages.allowed)
    return np.where(sees[..., None], dO, 0.0), np.where(np.isneginf(stages.lse), 0.0, dL)


def _sum_groups(x: Float64, p: Problem) -> Float64:
    """[B, N_q, T_kv, ...] to [B, N_kv, T_kv, ...]: the query heads of a group share one key/value head."""
    B, N_kv, T_kv = p.k.shape[:3]
    return x.reshape(B, N_kv, p.group, T_kv, x.shape[-1]).sum(axis=2)
