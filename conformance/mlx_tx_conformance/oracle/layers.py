"""The attention layer in float64: projections, heads, rotation, attention, merge, output projection.

Source: Vaswani et al. 2017, section 3.2.2; decoder-encoder attention: section 3.2.3.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .attention import attention
from .positions import rope as rotary

Float64 = NDArray[np.float64]


def attention_layer(
    x: ArrayLike,
    weights: Mapping[str, ArrayLike],
    *,
    N_q: int,
    N_kv: int | None = None,
    causal: bool = False,
    memory: ArrayLike | None = None,
    rope: Mapping[str, Any] | None = None,
    **options: Any,
) -> dict[str, Any]:
    """One attention layer on ``x`` [B, T, d_model]; every stage by name, in the order of computation.

    ``weights`` holds ``w_q`` [d_model, N_q D], ``w_k`` [d_memory, N_kv D], ``w_v`` [d_memory, N_kv D_v] and ``w_o``
    [N_q D_v, d_out], in the orientation of the formula Q = X W_q (the transpose of what a linear module stores), and
    optionally biases ``b_q``, ``b_k``, ``b_v``, ``b_o``. Keys and values come from ``memory`` [B, T_kv, d_memory]
    where given (DEC-1), from ``x`` otherwise. ``rope``: the keyword arguments of :func:`~.positions.rope`, applied to
    queries and keys after the split into heads; with ``memory`` it is refused, as the two count different positions.
    ``options`` go to :func:`~.attention.attention`.

    Stages: ``q``, ``k``, ``v`` (projected, [B, T, N D]); ``q_heads``, ``k_heads``, ``v_heads`` ([B, N, T, D], head h
    is columns h D to (h + 1) D: MHA-1); ``q_rotated``, ``k_rotated`` (with ``rope``); ``scores``, ``capped``,
    ``biased``, ``allowed``, ``weights``, ``sink_weight``, ``lse``, ``heads_out`` ([B, N_q, T, D_v]); ``merged``
    ([B, T, N_q D_v]); ``out`` ([B, T, d_out]).
    """
    N_kv = N_q if N_kv is None else N_kv
    if rope is not None and memory is not None:
        raise ValueError("[attention_layer] rope must be None with memory; got both")
    source = np.asarray(x).astype(np.float64)
    target = source if memory is None else np.asarray(memory).astype(np.float64)

    stages: dict[str, Any] = {}
    for name, origin in (("q", source), ("k", target), ("v", target)):
        stages[name] = project(origin, weights, name)
    for name, heads in (("q", N_q), ("k", N_kv), ("v", N_kv)):
        stages[f"{name}_heads"] = split_heads(stages[name], heads, f"w_{name}")
    q, k = stages["q_heads"], stages["k_heads"]
    if rope is not None:
        q = stages["q_rotated"] = rotary(q, **rope)
        k = stages["k_rotated"] = rotary(k, **rope)

    core = attention(q, k, stages["v_heads"], causal=causal, **options)
    for name in ("scores", "capped", "biased", "allowed", "weights", "sink_weight", "lse"):
        stages[name] = getattr(core, name)
    stages["heads_out"] = core.out
    stages["merged"] = merge_heads(core.out)
    stages["out"] = project(stages["merged"], weights, "o")
    return stages


def project(x: Float64, weights: Mapping[str, ArrayLike], name: str) -> Float64:
    """x W + b with ``w_<name>`` [d_in, d_out] and, where there is one, ``b_<name>`` [d_out] (ATT-1)."""
    y = x @ np.asarray(weights[f"w_{name}"]).astype(np.float64)
    bias = weights.get(f"b_{name}")
    return y if bias is None else y + np.asarray(bias).astype(np.float64)


def split_heads(x: Float64, heads: int, name: str = "x") -> Float64:
    """[B, T, N D] to [B, N, T, D]."""
    B, T, width = x.shape
    if heads < 1 or width % heads:
        raise ValueError(f"[attention_layer] {name} must have columns divisible by {heads} heads; got {width}")
    return x.reshape(B, T, heads, width // heads).transpose(0, 2, 1, 3)


def merge_heads(x: Float64) -> Float64:
    """[B, N, T, D] to [B, T, N D]."""
    B, N, T, D = x.shape
    return x.transpose(0, 2, 1, 3).reshape(B, T, N * D)
