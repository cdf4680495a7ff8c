"""A model's configuration as the oracle reads it: from a plain dict, with every default filled in.

The dict is what an implementation's ``config.to_dict()`` gives; a key that is absent or ``None`` takes its default, a
key that is not known is refused. Nothing is shared with the implementation that reads the same dict. Dropout is a
known key without effect: the oracle says what a model computes in evaluation.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

from . import mlp

KINDS = ("decoder", "encoder", "encoder_decoder")
PLACEMENTS = ("pre", "post", "sandwich")
POSITIONS = ("none", "sinusoidal", "learned", "rope", "alibi", "t5")
IN_THE_EMBEDDING = ("sinusoidal", "learned")
NORMS = ("rms", "layer")


@dataclass(frozen=True, slots=True)
class Attention:
    num_heads: int
    num_kv_heads: int
    head_dim: int
    value_dim: int
    bias: bool = False
    out_bias: bool = False
    scale: float | None = None
    softcap: float | None = None
    qk_norm: bool = False
    sinks: bool = False
    window: Any = None


@dataclass(frozen=True, slots=True)
class Position:
    kind: str = "none"
    base: float = 10000.0
    dims: int | None = None
    traditional: bool = False
    scaling: Mapping[str, Any] | None = None
    max_positions: int | None = None
    num_buckets: int = 32
    max_distance: int = 128
    bidirectional: bool | None = None


@dataclass(frozen=True, slots=True)
class Norm:
    kind: str = "rms"
    eps: float = 1e-5
    bias: bool = False
    offset: float = 0.0


@dataclass(frozen=True, slots=True)
class MLP:
    kind: str
    d_ff: int
    bias: bool = False
    num_experts: int = 0
    top_k: int = 0
    norm_topk: bool = True
    expert_kind: str = "swiglu"


@dataclass(frozen=True, slots=True)
class Layer:
    """What one layer does: the model's own settings with the overrides of its place in the pattern."""

    attention: Attention
    position: Position
    mlp: MLP


@dataclass(frozen=True, slots=True)
class Model:
    """A whole model. ``layers(n)`` are the settings of a stack of n layers."""

    kind: str
    vocab_size: int
    d_model: int
    num_layers: int
    num_encoder_layers: int
    attention: Attention
    position: Position
    norm: Norm
    mlp: MLP
    placement: str
    pattern: tuple[Mapping[str, Any], ...]
    tie_embeddings: bool
    embedding_scale: float
    final_norm: bool
    final_softcap: float | None
    causal: bool

    def layers(self, number: int) -> list[Layer]:
        """The settings of each layer: the pattern of overrides, repeated over the stack."""
        plain = Layer(self.attention, self.position, self.mlp)
        return [self._overridden(plain, n) for n in range(number)]

    def _overridden(self, layer: Layer, n: int) -> Layer:
        if not self.pattern:
            return layer
        override = self.pattern[n % len(self.pattern)]
        if "window" in override:
            layer = replace(layer, attention=replace(layer.attention, window=override["window"]))
        if "position" in override:
            layer = replace(layer, position=_position(override["position"]))
        if "mlp" in override:
            layer = replace(layer, mlp=_mlp(override["mlp"]))
        return layer


def read(config: Mapping[str, Any]) -> Model:
    """The settings of ``config``: the fields of the tables above, each section a dict of its own."""
    given = _given(config)
    kind = _choice("kind", given.get("kind"), KINDS)
    d_model, num_layers = given["d_model"], given["num_layers"]
    placement = given.get("block", {}).get("placement") or "pre"
    scale = given.get("embedding_scale", 1.0)
    known = {field.name for field in fields(Model)} - {"placement", "pattern"} | {"block", "layers"}
    _refuse_unknown("", given, known)
    _refuse_unknown("block.", given.get("block", {}), {"placement", "dropout"})
    pattern = tuple(_given(override) for override in given.get("layers", ()))
    for override in pattern:
        _refuse_unknown("layers.", override, {"window", "position", "mlp"})
        if "position" in override:
            _choice("layers.position.kind", override["position"].get("kind", "none"), ("none", "rope", "alibi", "t5"))
    return Model(
        kind=kind,
        vocab_size=given["vocab_size"],
        d_model=d_model,
        num_layers=num_layers,
        num_encoder_layers=given.get("num_encoder_layers", num_layers),
        attention=_attention(given["attention"], d_model),
        position=_position(given.get("position", {})),
        norm=_norm(given.get("norm", {})),
        mlp=_mlp(given["mlp"]),
        placement=_choice("block.placement", placement, PLACEMENTS),
        pattern=pattern,
        tie_embeddings=given.get("tie_embeddings", False),
        embedding_scale=math.sqrt(d_model) if scale == "sqrt" else float(scale),
        final_norm=given.get("final_norm", placement != "post"),
        final_softcap=given.get("final_softcap"),
        causal=given.get("causal", kind != "encoder"),
    )


def _attention(section: Mapping[str, Any], d_model: int) -> Attention:
    given = _given(section)
    heads = given["num_heads"]
    head_dim = given.get("head_dim", d_model // heads)
    full = {"num_kv_heads": heads, "head_dim": head_dim, "value_dim": head_dim, **given}
    return _section("attention.", Attention, full)


def _position(section: Mapping[str, Any]) -> Position:
    position = _section("position.", Position, section)
    _choice("position.kind", position.kind, POSITIONS)
    if position.kind == "learned" and position.max_positions is None:
        raise ValueError("[oracle] position.max_positions must be given for kind 'learned'; got None")
    return position


def _norm(section: Mapping[str, Any]) -> Norm:
    given = _given(section)
    norm = _section("norm.", Norm, {"bias": given.get("kind") == "layer", **given})
    _choice("norm.kind", norm.kind, NORMS)
    return norm


def _mlp(section: Mapping[str, Any]) -> MLP:
    settings = _section("mlp.", MLP, section)
    _choice("mlp.kind", settings.kind, (*mlp.KINDS, "moe"))
    _choice("mlp.expert_kind", settings.expert_kind, mlp.KINDS)
    if settings.kind == "moe" and not 1 <= settings.top_k <= settings.num_experts:
        raise ValueError(
            f"[oracle] mlp.top_k must lie in 1..num_experts = {settings.num_experts}; got {settings.top_k}"
        )
    return settings


Section = TypeVar("Section", Attention, Position, Norm, MLP)


def _section(path: str, section: type[Section], values: Mapping[str, Any]) -> Section:
    given = _given(values)
    _refuse_unknown(path, given, {field.name for field in fields(section)})
    return section(**given)


def _given(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _choice(name: str, value: Any, allowed: tuple[str, ...]) -> str:
    if value not in allowed:
        raise ValueError(f"[oracle] {name} must be one of {', '.join(allowed)}; got {value!r}")
    return str(value)


def _refuse_unknown(path: str, given: Mapping[str, Any], known: set[str]) -> None:
    for name in given:
        if name not in known:
            raise ValueError(f"[oracle] {path}{name} is not a field; known: {', '.join(sorted(known))}")
