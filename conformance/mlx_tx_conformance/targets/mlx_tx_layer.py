"""The op ``attention_layer`` on :class:`mlx_tx.MultiHeadAttention`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..call import Call
from .derive import Arrays

PROJECTIONS = {"q": "q_proj", "k": "k_proj", "v": "v_proj", "o": "o_proj"}
ROPE_ARGUMENTS = frozenset({"base", "traditional", "offset"})


def refusal(call: Call) -> str | None:
    """Why the module cannot do a call, or ``None``."""
    rope = call.options.get("rope")
    if isinstance(rope, Mapping):
        other = sorted(set(rope) - ROPE_ARGUMENTS)
        if other:
            return f"no argument rope {', '.join(other)} of the layer"
    D = call.arrays["w_q"].shape[1] // call.options["N_q"]
    D_v = call.arrays["w_v"].shape[1] // call.options["N_kv"]
    return None if D_v == D else "no value heads of another size than query heads"


def attention_layer(arrays: Arrays, options: Mapping[str, Any], path: str) -> Any:
    """The module's output for ``x`` (and ``memory``), with the weights of the call in it.

    The suite writes Q = x W_q; a linear module stores the transpose.
    """
    import mlx.core as mx

    from mlx_tx import MultiHeadAttention

    rope = options.get("rope")
    rope = {} if rope is True else dict(rope) if rope else None
    biases = {name: arrays[f"b_{name}"] for name in PROJECTIONS if f"b_{name}" in arrays}
    module = MultiHeadAttention(
        arrays["x"].shape[-1],
        options["N_q"],
        options["N_kv"],
        head_dim=arrays["w_q"].shape[1] // options["N_q"],
        memory_dim=arrays["w_k"].shape[0],
        bias=bool(biases),
        rope_base=None if rope is None else rope.get("base", 10000.0),
        rope_traditional=bool(rope and rope.get("traditional", False)),
    )
    for name, attribute in PROJECTIONS.items():
        projection = getattr(module, attribute)
        weight = arrays[f"w_{name}"]
        projection.weight = weight.T
        if biases:
            zero = mx.zeros((weight.shape[1],), dtype=weight.dtype)
            projection.bias = biases.get(name, zero)
    extra = {"offset": rope["offset"]} if rope and "offset" in rope else {}
    return module(arrays["x"], arrays.get("memory"), causal=bool(options.get("causal")), path=path, **extra)
