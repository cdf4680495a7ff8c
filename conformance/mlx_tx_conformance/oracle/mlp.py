"""The position-wise networks in float64: two layers, gated, and a mixture of experts.

    plain   out = act(x W_up^T + b_up) W_down^T + b_down                       relu, gelu, gelu_tanh, silu
    gated   out = (act(x W_gate^T) * (x W_up^T)) W_down^T                      swiglu, geglu, geglu_tanh
    moe     out = sum over chosen experts e of g_e * expert_e(x)               g from softmax(x W_router^T)

Sources: Vaswani et al. 2017, section 3.3; GELU: Hendrycks and Gimpel 2016, section 2; SiLU: the same, section 4;
gated: Shazeer 2020, "GLU Variants Improve Transformer", section 2; mixtures: Shazeer et al. 2017, section 2.1, with
the order softmax, then top-k of Mixtral (renormalised) and DeepSeekMoE (as they are).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .softmax import softmax

Float64 = NDArray[np.float64]
Int = NDArray[np.int64]

_erfc = np.vectorize(math.erfc, otypes=[np.float64])


def relu(x: ArrayLike) -> Float64:
    """max(x, 0)."""
    return np.maximum(np.asarray(x).astype(np.float64), 0.0)


def gelu(x: ArrayLike) -> Float64:
    """x Phi(x), with Phi the normal distribution function; exact, and accurate far into the left tail."""
    array = np.asarray(x).astype(np.float64)
    return array * 0.5 * _erfc(-array / math.sqrt(2.0)) if array.size else array


def gelu_tanh(x: ArrayLike) -> Float64:
    """The approximation 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))."""
    array = np.asarray(x).astype(np.float64)
    # 0.5 (1 + tanh z) is the logistic function of 2 z, which does not cancel in the left tail.
    return array * _logistic(2 * math.sqrt(2 / math.pi) * (array + 0.044715 * array**3))


def silu(x: ArrayLike) -> Float64:
    """x / (1 + exp(-x))."""
    array = np.asarray(x).astype(np.float64)
    return array * _logistic(array)


def _logistic(z: Float64) -> Float64:
    decay = np.exp(-np.abs(z))
    return np.where(z < 0, decay, 1.0) / (1.0 + decay)


PLAIN: Mapping[str, Callable[[ArrayLike], Float64]] = {
    "relu": relu,
    "gelu": gelu,
    "gelu_tanh": gelu_tanh,
    "silu": silu,
}
GATED: Mapping[str, Callable[[ArrayLike], Float64]] = {"swiglu": silu, "geglu": gelu, "geglu_tanh": gelu_tanh}
KINDS = (*PLAIN, *GATED)


def linear(x: ArrayLike, weight: ArrayLike, bias: ArrayLike | None = None) -> Float64:
    """x W^T + b for ``weight`` [d_out, d_in], the orientation that a linear module stores, and ``bias`` [d_out]."""
    y = np.asarray(x).astype(np.float64) @ np.asarray(weight).astype(np.float64).T
    return y if bias is None else y + np.asarray(bias).astype(np.float64)


def mlp(x: ArrayLike, weights: Mapping[str, ArrayLike], kind: str) -> dict[str, Float64]:
    """A plain or gated network on ``x`` [..., d_model] (MLP-1, MLP-2).

    ``weights``: ``up_proj.weight`` [d_ff, d_model], ``down_proj.weight`` [d_model, d_ff], for a gated kind
    ``gate_proj.weight`` [d_ff, d_model], each with a ``.bias`` if wanted. Returns ``hidden`` [..., d_ff], the input of
    the last product, and ``out`` [..., d_model].
    """
    if kind not in KINDS:
        raise ValueError(f"[mlp] kind must be one of {', '.join(KINDS)}; got {kind!r}")
    up = linear(x, weights["up_proj.weight"], weights.get("up_proj.bias"))
    if kind in GATED:
        hidden = GATED[kind](linear(x, weights["gate_proj.weight"], weights.get("gate_proj.bias"))) * up
    else:
        hidden = PLAIN[kind](up)
    return {"hidden": hidden, "out": linear(hidden, weights["down_proj.weight"], weights.get("down_proj.bias"))}


def route(logits: ArrayLike, top_k: int, *, norm_topk: bool = True) -> tuple[Int, Float64]:
    """The ``top_k`` experts of each row of ``logits`` [..., E], best first, and the weight of every expert.

    The weights are the softmax over all experts at the chosen ones, divided by their sum with ``norm_topk``, and 0
    elsewhere. Of equal logits the lower index goes first. Returns (indices [..., top_k], weights [..., E]).
    """
    array = np.asarray(logits).astype(np.float64)
    E = array.shape[-1]
    if not 1 <= top_k <= E:
        raise ValueError(f"[route] top_k must lie in 1..{E}; got {top_k}")
    chosen = np.argsort(-array, axis=-1, kind="stable")[..., :top_k]
    kept = np.zeros(array.shape, dtype=bool)
    np.put_along_axis(kept, chosen, True, axis=-1)
    weights = np.where(kept, softmax(array), 0.0)
    if norm_topk:
        weights = weights / weights.sum(axis=-1, keepdims=True)
    return chosen, weights


def mixture(
    x: ArrayLike,
    weights: Mapping[str, ArrayLike],
    routing: ArrayLike,
    expert_kind: str = "swiglu",
) -> Float64:
    """The experts on ``x`` [..., d_model], summed with the weights ``routing`` [..., E]; returns [..., d_model].

    ``weights``: those of :func:`mlp` with one more axis E in front. An expert of weight 0 does not run, so that
    nothing non-finite of its own reaches the sum.
    """
    array, shares = np.asarray(x).astype(np.float64), np.asarray(routing).astype(np.float64)
    out = np.zeros((*array.shape[:-1], np.asarray(weights["down_proj.weight"]).shape[1]))
    for e in range(shares.shape[-1]):
        takes = shares[..., e] != 0
        if takes.any():
            one = {name: np.asarray(array_of_all)[e] for name, array_of_all in weights.items()}
            out[takes] += shares[takes, e, None] * mlp(array[takes], one, expert_kind)["out"]
    return out


def moe(
    x: ArrayLike,
    weights: Mapping[str, ArrayLike],
    *,
    top_k: int,
    norm_topk: bool = True,
    expert_kind: str = "swiglu",
) -> dict[str, Float64]:
    """A mixture of experts on ``x`` [..., d_model].

    ``weights``: ``router.weight`` [E, d_model] and ``experts.``... as for :func:`mixture`. Returns ``router`` (the
    logits [..., E]), ``routing`` (the weights [..., E], 0 where not chosen) and ``out`` [..., d_model].
    """
    router = linear(x, weights["router.weight"])
    _, routing = route(router, top_k, norm_topk=norm_topk)
    experts = {name.removeprefix("experts."): w for name, w in weights.items() if name.startswith("experts.")}
    return {"router": router, "routing": routing, "out": mixture(x, experts, routing, expert_kind)}
