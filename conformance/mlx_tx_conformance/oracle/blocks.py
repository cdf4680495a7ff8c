"""The blocks of a Transformer in float64, every stage recorded: attention, MLP, and how norms and residuals hold them.

    pre        x = x + f(norm(x))
    post       x = norm(x + f(x))
    sandwich   x = x + norm'(f(norm(x)))

An encoder or decoder-only block has two such sub-layers, self-attention and MLP; a block of the original decoder has
cross-attention between them (DEC-1).

Sources: post: Vaswani et al. 2017, section 3.1 and figure 1; pre: Xiong et al. 2020, "On Layer Normalization in the
Transformer Architecture", section 3; sandwich: Ding et al. 2021, "CogView", section 2.4; QK-norm: Henry et al. 2020, in
the form of RMSNorm over each head; relative bias without scale and rotation in cross-attention: Raffel et al. 2020.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from . import mlp, settings
from .attention import attention
from .layers import merge_heads, split_heads
from .norms import layer_norm, rms_norm
from .quantise import quantised_values
from .record import Recorder
from .relative_bias import relative_bias
from .rope_scaling import scaled_rope

Float64 = NDArray[np.float64]
Int = NDArray[np.int64]


class Stream(NamedTuple):
    """An array that passes from stage to stage, with the name of the stage that made it."""

    name: str
    value: Float64


@dataclass(frozen=True)
class Stack:
    """What all blocks of one stack share.

    ``prefix`` stands before the names of stages and weights ("", "encoder.", "decoder."); ``positions`` [B, T];
    ``lengths`` [B] are L of the rotary recipes; ``hides`` the options of self-attention that say which tokens exist
    and may be seen (kv_lengths, segments, mask), ``memory_hides`` those of cross-attention; ``kv_quantisation`` the
    arguments of a quantised cache, through which keys and values then pass.
    """

    model: settings.Model
    weights: Mapping[str, Float64]
    record: Recorder
    prefix: str
    causal: bool
    positions: Int
    lengths: Int
    hides: Mapping[str, Any]
    memory_hides: Mapping[str, Any]
    kv_quantisation: Mapping[str, Any] | None = None

    def names(self, *candidates: str) -> tuple[str, ...]:
        """Those of the names that are parameters of this model."""
        return tuple(name for name in candidates if name in self.weights)

    def of(self, prefix: str) -> dict[str, Float64]:
        """The weights below ``prefix``, by the rest of their names."""
        return {name.removeprefix(prefix): w for name, w in self.weights.items() if name.startswith(prefix)}


def block(stack: Stack, layer: settings.Layer, n: int, x: Stream, memory: Stream | None = None) -> Stream:
    """Block ``n`` on ``x`` [B, T, d_model]; with ``memory`` [B, S, d_model] a decoder block that attends to it too."""
    at = f"{stack.prefix}layers.{n}."
    x = _sublayer(
        stack,
        x,
        lambda h: _self_attention(stack, layer, f"{at}self_attn.", h),
        residual=f"{at}self_attn.residual",
        norm=(f"{at}input_norm", f"{at}input_layernorm"),
        after=f"{at}post_self_attn_norm",
    )
    if memory is not None:
        source = memory
        x = _sublayer(
            stack,
            x,
            lambda h: _cross_attention(stack, layer, f"{at}cross_attn.", h, source),
            residual=f"{at}cross_attn.residual",
            norm=(f"{at}cross_attn_norm", f"{at}cross_attn_layernorm"),
            after=f"{at}post_cross_attn_norm",
        )
    return _sublayer(
        stack,
        x,
        lambda h: _mlp(stack, layer.mlp, f"{at}mlp.", h),
        residual=f"{at}mlp.residual",
        norm=(f"{at}mlp_norm", f"{at}post_attention_layernorm"),
        after=f"{at}post_mlp_norm",
    )


def _sublayer(
    stack: Stack, x: Stream, f: Callable[[Stream], Stream], *, residual: str, norm: tuple[str, str], after: str
) -> Stream:
    """``f`` on the stream ``x``, with the residual connection (RES-1) and the norms where the model wants them."""
    placement = stack.model.placement
    y = f(x if placement == "post" else normalise(stack, *norm, x))
    if placement == "sandwich":
        y = normalise(stack, after, after, y)
    x = Stream(residual, stack.record(residual, x.value + y.value, "add", (x.name, y.name)))
    return normalise(stack, *norm, x) if placement == "post" else x


def normalise(stack: Stack, stage: str, weight: str, x: Stream) -> Stream:
    """The model's norm over the last axis of ``x``, with the parameters named ``weight``."""
    norm, given = stack.model.norm, stack.of(f"{weight}.")
    kwargs = {"eps": norm.eps, "offset": norm.offset}
    if norm.kind == "rms":
        y = rms_norm(x.value, given["weight"], **kwargs)
        if "bias" in given:
            y = y + given["bias"]
    else:
        y = layer_norm(x.value, given["weight"], given.get("bias"), **kwargs)
    names = stack.names(f"{weight}.weight", f"{weight}.bias")
    return Stream(stage, stack.record(stage, y, "norm", (x.name,), names, kind=norm.kind, **kwargs))


def linear(stack: Stack, stage: str, weight: str, x: Stream, *, op: str = "linear", heads: int | None = None) -> Stream:
    """x W^T + b with the parameters named ``weight``, split into ``heads`` [B, N, T, D] where given."""
    y = mlp.linear(x.value, stack.weights[f"{weight}.weight"], stack.weights.get(f"{weight}.bias"))
    names = stack.names(f"{weight}.weight", f"{weight}.bias")
    if heads is None:
        return Stream(stage, stack.record(stage, y, op, (x.name,), names))
    return Stream(stage, stack.record(stage, split_heads(y, heads), op, (x.name,), names, heads=heads))


def _project(stack: Stack, layer: settings.Layer, at: str, x: Stream, source: Stream) -> tuple[Stream, Stream, Stream]:
    """Queries of ``x``, keys and values of ``source``, by heads and, where the model has QK-norm, normalised."""
    a = layer.attention
    q = linear(stack, f"{at}q", f"{at}q_proj", x, heads=a.num_heads)
    k = linear(stack, f"{at}k", f"{at}k_proj", source, heads=a.num_kv_heads)
    v = linear(stack, f"{at}v", f"{at}v_proj", source, heads=a.num_kv_heads)
    if a.qk_norm:
        q = normalise(stack, f"{at}q_norm", f"{at}q_norm", q)
        k = normalise(stack, f"{at}k_norm", f"{at}k_norm", k)
    return q, k, v


def _attend(
    stack: Stack, layer: settings.Layer, at: str, q: Stream, k: Stream, v: Stream, options: Mapping[str, Any]
) -> Stream:
    """The attention and its output projection."""
    a = layer.attention
    given = {"scale": a.scale, "softcap": a.softcap, **options}
    if a.sinks:
        given["sinks"] = stack.weights[f"{at}sinks"]
    given = {name: value for name, value in given.items() if value is not None}
    result = attention(q.value, k.value, v.value, **given)
    stage = f"{at}out"
    stack.record.attentions[stage] = result
    names = stack.names(f"{at}sinks", *([f"{stack.prefix}relative_bias.weight"] if "bias" in given else []))
    out = stack.record(stage, result.out, "attention", (q.name, k.name, v.name), names, **given)
    return linear(stack, f"{at}proj", f"{at}o_proj", Stream(stage, merge_heads(out)), op="join")


def _self_attention(stack: Stack, layer: settings.Layer, at: str, x: Stream) -> Stream:
    q, k, v = _project(stack, layer, at, x, x)
    position = layer.position
    if position.kind == "rope":
        q, k = (_rotated(stack, position, f"{at}{name}_rope", heads) for name, heads in (("q", q), ("k", k)))
    if stack.kv_quantisation is not None:
        k, v = (_stored(stack, f"{at}{name}_cache", heads) for name, heads in (("k", k), ("v", v)))
    # Queries and keys are the same tokens: query i stands at key i.
    options: dict[str, Any] = {"causal": stack.causal, "window": layer.attention.window, "q_offset": 0, **stack.hides}
    if position.kind == "alibi":
        options["alibi"] = True
    if position.kind == "t5":
        T = q.value.shape[2]
        options["bias"] = relative_bias(
            stack.weights[f"{stack.prefix}relative_bias.weight"],
            T,
            T,
            bidirectional=_looks_ahead(stack, position),
            max_distance=position.max_distance,
        )
    return _attend(stack, layer, at, q, k, v, options)


def _cross_attention(stack: Stack, layer: settings.Layer, at: str, x: Stream, memory: Stream) -> Stream:
    """Queries of the decoder, keys and values of the encoder's output: all of it, and no position between the two."""
    return _attend(stack, layer, at, *_project(stack, layer, at, x, memory), stack.memory_hides)


def _looks_ahead(stack: Stack, position: settings.Position) -> bool:
    """Whether T5's buckets tell keys ahead from keys behind: as configured, else where the stack is not causal."""
    if position.bidirectional is None or stack.model.kind == "encoder_decoder":
        return not stack.causal
    return position.bidirectional


def _rotated(stack: Stack, position: settings.Position, stage: str, x: Stream) -> Stream:
    options: dict[str, Any] = {
        "positions": stack.positions,
        "base": position.base,
        "dims": position.dims,
        "traditional": position.traditional,
        "scaling": position.scaling,
        "length": stack.lengths,
    }
    return Stream(stage, stack.record(stage, scaled_rope(x.value, **options), "rope", (x.name,), **options))


def _stored(stack: Stack, stage: str, x: Stream) -> Stream:
    options = dict(stack.kv_quantisation or {})
    return Stream(stage, stack.record(stage, quantised_values(x.value, **options), "quantise", (x.name,), **options))


def _mlp(stack: Stack, m: settings.MLP, at: str, x: Stream) -> Stream:
    if m.kind == "moe":
        return _mixture(stack, m, at, x)
    hidden = mlp.mlp(x.value, stack.of(at), m.kind)["hidden"]
    names = stack.names(*(f"{at}{name}_proj.{part}" for name in ("gate", "up") for part in ("weight", "bias")))
    h = Stream(f"{at}hidden", stack.record(f"{at}hidden", hidden, "hidden", (x.name,), names, kind=m.kind))
    return linear(stack, f"{at}out", f"{at}down_proj", h)


def _mixture(stack: Stack, m: settings.MLP, at: str, x: Stream) -> Stream:
    router = linear(stack, f"{at}router", f"{at}router", x)
    options: dict[str, Any] = {"top_k": m.top_k, "norm_topk": m.norm_topk}
    _, shares = mlp.route(router.value, **options)
    routing = stack.record(f"{at}routing", shares, "routing", (router.name,), **options)
    experts = stack.of(f"{at}experts.")
    out = mlp.mixture(x.value, experts, routing, m.expert_kind)
    names = tuple(f"{at}experts.{name}" for name in experts)
    inputs = (x.name, f"{at}routing")
    stage = f"{at}out"
    return Stream(stage, stack.record(stage, out, "mixture", inputs, names, expert_kind=m.expert_kind))
