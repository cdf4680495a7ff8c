"""The parameters that a configuration has: every name, with its shape.

Attention projects [d_out, d_in]; a decoder-only model has no cross-attention (DEC-2), and sinusoidal, rotary and ALiBi
positions have no parameter at all (POS-5).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from . import mlp, settings

Float64 = NDArray[np.float64]
Shapes = Iterator[tuple[str, tuple[int, ...]]]


def parameter_shapes(config: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """Name to shape of every parameter of ``config``, in the order of the computation."""
    return dict(_of_model(settings.read(config)))


def check_parameters(config: Mapping[str, Any], weights: Mapping[str, ArrayLike]) -> dict[str, Float64]:
    """``weights`` in float64, after a check that their names and shapes are those of ``config``."""
    expected = parameter_shapes(config)
    missing = [name for name in expected if name not in weights]
    extra = [name for name in weights if name not in expected]
    if missing or extra:
        raise ValueError(f"[oracle] weights must be those of the configuration; missing {missing}, unknown {extra}")
    arrays = {name: np.asarray(weights[name]).astype(np.float64) for name in expected}
    for name, shape in expected.items():
        if arrays[name].shape != shape:
            raise ValueError(f"[oracle] {name} must have shape {shape}; got {arrays[name].shape}")
    return arrays


def _of_model(model: settings.Model) -> Shapes:
    table = (model.vocab_size, model.d_model)
    yield "embed_tokens.weight", table
    if model.kind == "encoder_decoder":
        yield from _of_stack(model, "encoder.", model.num_encoder_layers, cross=False)
        yield from _of_stack(model, "decoder.", model.num_layers, cross=True)
    else:
        yield from _of_stack(model, "", model.num_layers, cross=False)
    if not model.tie_embeddings:
        yield "lm_head.weight", table


def _of_stack(model: settings.Model, prefix: str, number: int, *, cross: bool) -> Shapes:
    if model.position.kind == "learned" and model.position.max_positions is not None:
        yield f"{prefix}position.weight", (model.position.max_positions, model.d_model)
    for n, layer in enumerate(model.layers(number)):
        at = f"{prefix}layers.{n}."
        yield from _of_norm(model, f"{at}input_layernorm", model.d_model)
        yield from _of_attention(model, layer.attention, f"{at}self_attn.")
        if model.placement == "sandwich":
            yield from _of_norm(model, f"{at}post_self_attn_norm", model.d_model)
        if layer.position.kind == "t5":
            yield f"{prefix}relative_bias.weight", (layer.position.num_buckets, layer.attention.num_heads)
        if cross:
            yield from _of_norm(model, f"{at}cross_attn_layernorm", model.d_model)
            yield from _of_attention(model, layer.attention, f"{at}cross_attn.")
            if model.placement == "sandwich":
                yield from _of_norm(model, f"{at}post_cross_attn_norm", model.d_model)
        yield from _of_norm(model, f"{at}post_attention_layernorm", model.d_model)
        yield from _of_mlp(model, layer.mlp, f"{at}mlp.")
        if model.placement == "sandwich":
            yield from _of_norm(model, f"{at}post_mlp_norm", model.d_model)
    if model.final_norm:
        yield from _of_norm(model, f"{prefix}norm", model.d_model)


def _of_norm(model: settings.Model, name: str, width: int) -> Shapes:
    yield f"{name}.weight", (width,)
    if model.norm.bias:
        yield f"{name}.bias", (width,)


def _of_linear(name: str, shape: tuple[int, ...], bias: bool) -> Shapes:
    yield f"{name}.weight", shape
    if bias:
        yield f"{name}.bias", shape[:-1]


def _of_attention(model: settings.Model, a: settings.Attention, at: str) -> Shapes:
    yield from _of_linear(f"{at}q_proj", (a.num_heads * a.head_dim, model.d_model), a.bias)
    yield from _of_linear(f"{at}k_proj", (a.num_kv_heads * a.head_dim, model.d_model), a.bias)
    yield from _of_linear(f"{at}v_proj", (a.num_kv_heads * a.value_dim, model.d_model), a.bias)
    yield from _of_linear(f"{at}o_proj", (model.d_model, a.num_heads * a.value_dim), a.out_bias)
    if a.qk_norm:
        yield f"{at}q_norm.weight", (a.head_dim,)
        yield f"{at}k_norm.weight", (a.head_dim,)
    if a.sinks:
        yield f"{at}sinks", (a.num_heads,)


def _of_mlp(model: settings.Model, m: settings.MLP, at: str) -> Shapes:
    kind, inside = m.kind, at
    front: tuple[int, ...] = ()
    if kind == "moe":
        yield f"{at}router.weight", (m.num_experts, model.d_model)
        kind, front, inside = m.expert_kind, (m.num_experts,), f"{at}experts."
    if kind in mlp.GATED:
        yield from _of_linear(f"{inside}gate_proj", (*front, m.d_ff, model.d_model), m.bias)
    yield from _of_linear(f"{inside}up_proj", (*front, m.d_ff, model.d_model), m.bias)
    yield from _of_linear(f"{inside}down_proj", (*front, model.d_model, m.d_ff), m.bias)
