"""Bounds of a whole attention layer, stage after stage: projections, rotation, attention, output projection.

Each stage gets the bound of the one before as the error that its input comes with, so a bound grows along the layer;
a layer's own stages are better held one by one, each fed with the implementation's previous output.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ..call import Call
from ..oracle.layers import merge_heads, split_heads
from .attention import bounds_of_problem
from .bound import Bound, finish
from .classes import PrecisionClass
from .problem import attention_problem, float64
from .product import product_errors
from .rope import rope_errors

# Options of the layer itself; every other option is the attention's.
_LAYER_OPTIONS = frozenset({"N_q", "N_kv", "rope"})


def attention_layer_bounds(
    call: Call, precision: PrecisionClass, input_error: Mapping[str, np.ndarray] | None = None
) -> dict[str, Bound]:
    """Bounds of ``out`` and of the oracle's stages ``q``, ``k``, ``v``, ``q_heads`` ... ``q_rotated`` ..., ``lse``,
    ``heads_out`` and ``merged`` of an attention layer.

    Arrays: ``x``, ``memory`` (optional), ``w_q`` ``w_k`` ``w_v`` ``w_o``, ``b_*`` (optional), and arrays of the
    attention (``mask``, ...). Options: ``N_q``, ``N_kv``, ``rope`` (a mapping) and the attention's. ``input_error``
    may hold errors of ``x`` and ``memory``.
    """
    errors = input_error or {}
    arrays, options = call.arrays, call.options
    weights = {name: float64(arrays[name]) for name in arrays if name.startswith(("w_", "b_"))}
    N_q = int(options["N_q"])
    N_kv = int(options.get("N_kv", N_q))
    memory = "memory" if "memory" in arrays else "x"

    bounds: dict[str, Bound] = {}
    for name, heads, source in (("q", N_q, "x"), ("k", N_kv, memory), ("v", N_kv, memory)):
        bounds[name] = _projection(float64(arrays[source]), errors.get(source), weights, name, call.dtype)
        bounds[f"{name}_heads"] = _rearranged(bounds[name], split_heads, heads)
    operands = {"q": bounds["q_heads"], "k": bounds["k_heads"], "v": bounds["v_heads"]}
    rope = options.get("rope")
    if rope is not None and rope is not False:
        turn = {} if rope is True else dict(rope)
        for name in ("q", "k"):
            given = operands[name]
            value, error = rope_errors(given.value, precision, x_error=given.limit, **turn)
            operands[name] = bounds[f"{name}_rotated"] = finish(value, error, error, call.dtype)

    inner = Call(
        "attention",
        {name: array for name, array in arrays.items() if name not in weights and name not in ("x", "memory")},
        {name: value for name, value in options.items() if name not in _LAYER_OPTIONS},
    ).with_arrays(**{name: bound.value for name, bound in operands.items()})
    incoming = {name: bound.limit for name, bound in operands.items()}
    core = bounds_of_problem(attention_problem(inner, incoming, dtype=call.dtype), precision)
    bounds["lse"], bounds["heads_out"] = core["lse"], core["out"]
    bounds["merged"] = _rearranged(core["out"], merge_heads)
    bounds["out"] = _projection(bounds["merged"].value, bounds["merged"].limit, weights, "o", call.dtype)
    return bounds


def _projection(
    x: np.ndarray, x_error: np.ndarray | None, weights: Mapping[str, np.ndarray], name: str, dtype: str
) -> Bound:
    with np.errstate(invalid="ignore"):  # an undecidable stage comes with an infinite error: inf * 0
        y, det, prob = product_errors(x, weights[f"w_{name}"], bias=weights.get(f"b_{name}"), x_error=x_error)
    return finish(y, det, prob, dtype)


def _rearranged(bound: Bound, move: Callable[..., np.ndarray], *arguments: Any) -> Bound:
    value, det, prob, decidable = (
        move(part, *arguments) for part in (bound.value, bound.det, bound.prob, bound.decidable)
    )
    return Bound(value, det, prob, decidable, bound.dtype)
