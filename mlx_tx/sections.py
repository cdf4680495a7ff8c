"""The sections of a model's configuration; :mod:`mlx_tx.config` puts them together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar

from mlx_tx.checking import FieldError, FieldTypeError, Section, choice, flag, instance, number, whole

PLACEMENTS = ("pre", "post", "sandwich")
POSITIONS = ("none", "sinusoidal", "learned", "rope", "alibi", "t5")
LAYER_POSITIONS = ("none", "rope", "alibi", "t5")  # those that act inside a layer, so that layers may differ
NORMS = ("rms", "layer")
PLAIN_MLPS = ("relu", "gelu", "gelu_tanh", "silu")
GATED_MLPS = ("swiglu", "geglu", "geglu_tanh")
# What is planned in whole numbers on the host has its bounds: a table of T5 is as long as its longest distance.
MAX_BUCKETS, MAX_DISTANCE, MAX_SCALING = 1024, 2**20, 1e6
MLPS = (*PLAIN_MLPS, *GATED_MLPS, "moe")


@dataclass(frozen=True, slots=True)
class AttentionConfig(Section):
    """Heads and what happens to scores. ``num_kv_heads`` < ``num_heads`` is GQA, 1 is MQA (GQA-1).

    ``head_dim`` is ``d_model / num_heads`` and ``value_dim`` is ``head_dim`` where they are not given; ``bias`` is that
    of the q, k and v projections; ``window`` as in :func:`mlx_tx.scaled_dot_product_attention`.
    """

    _path: ClassVar[str] = "attention."
    num_heads: int
    num_kv_heads: int | None = None
    head_dim: int | None = None
    value_dim: int | None = None
    bias: bool = False
    out_bias: bool = False
    scale: float | None = None
    softcap: float | None = None
    qk_norm: bool = False
    sinks: bool = False
    window: int | tuple[int | None, int | None] | None = None

    def __post_init__(self) -> None:
        heads = whole("attention.num_heads", self.num_heads, 1)
        self._set("num_heads", heads)
        given = heads if self.num_kv_heads is None else self.num_kv_heads
        self._set("num_kv_heads", whole("attention.num_kv_heads", given, 1))
        if heads % self.num_kv_heads:  # type: ignore[operator]
            raise FieldError("attention.num_kv_heads", f"must divide num_heads={heads}; got {self.num_kv_heads}")
        for name in ("head_dim", "value_dim"):
            if getattr(self, name) is not None:
                self._set(name, whole(f"attention.{name}", getattr(self, name), 1))
        if self.value_dim is None and self.head_dim is not None:
            self._set("value_dim", self.head_dim)
        for name in ("bias", "out_bias", "qk_norm", "sinks"):
            flag(f"attention.{name}", getattr(self, name))
        if self.scale is not None:
            self._set("scale", number("attention.scale", self.scale))
        if self.softcap is not None:
            self._set("softcap", number("attention.softcap", self.softcap, above=0))
        self._set("window", _window("attention.window", self.window))


@dataclass(frozen=True, slots=True)
class RopeScaling(Section):
    """How rotary frequencies are stretched to longer texts; :mod:`mlx_tx.rotary` has the formulas."""

    _path: ClassVar[str] = "scaling."
    kind: str
    factor: float | None = None
    original_max_positions: int | None = None
    low_freq_factor: float | None = None
    high_freq_factor: float | None = None
    beta_fast: float | None = None
    beta_slow: float | None = None
    attention_factor: float | None = None
    mscale: float | None = None
    mscale_all_dim: float | None = None
    truncate: bool = True
    short_factor: tuple[float, ...] | None = None
    long_factor: tuple[float, ...] | None = None

    NEEDS: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "linear": ("factor",),
        "ntk": ("factor",),
        "dynamic": ("factor", "original_max_positions"),
        "yarn": ("factor", "original_max_positions"),
        "llama3": ("factor", "original_max_positions", "low_freq_factor", "high_freq_factor"),
        "longrope": ("original_max_positions", "short_factor", "long_factor"),
    }
    TAKES: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "yarn": ("beta_fast", "beta_slow", "attention_factor", "mscale", "mscale_all_dim"),
        "longrope": ("factor", "attention_factor"),
    }

    def __post_init__(self) -> None:
        kind = choice("scaling.kind", self.kind, self.NEEDS)
        taken = (*self.NEEDS[kind], *self.TAKES.get(kind, ()))
        for item in fields(self):
            value, path = getattr(self, item.name), f"scaling.{item.name}"
            if item.name in ("kind", "truncate"):
                continue
            if value is None:
                if item.name in self.NEEDS[kind]:
                    raise FieldError(path, f"must be given for kind {kind!r}")
                continue
            if item.name not in taken:
                raise FieldError(path, f"must be absent for kind {kind!r}, which does not use it; got {value!r}")
            self._set(item.name, _scaling_value(path, kind, item.name, value))
        flag("scaling.truncate", self.truncate)
        if kind == "llama3" and not self.low_freq_factor < self.high_freq_factor:  # type: ignore[operator]
            got = f"{self.low_freq_factor} and {self.high_freq_factor}"
            raise FieldError("scaling.low_freq_factor", f"must be less than high_freq_factor; got {got}")
        if kind == "longrope" and self.factor is None and self.attention_factor is None:
            raise FieldError("scaling.factor", "must be given for kind 'longrope' where attention_factor is not")


@dataclass(frozen=True, slots=True)
class PositionConfig(Section):
    """How positions enter: added to the embedding (sinusoidal, learned), in queries and keys (rope), or to the scores
    (alibi, t5). ``bidirectional`` (t5) defaults to whether the stack is not causal."""

    _path: ClassVar[str] = "position."
    _sections: ClassVar[Mapping[str, type[Section]]] = {"scaling": RopeScaling}
    kind: str = "none"
    base: float = 10000.0
    dims: int | None = None
    traditional: bool = False
    scaling: RopeScaling | None = None
    max_positions: int | None = None
    num_buckets: int = 32
    max_distance: int = 128
    bidirectional: bool | None = None

    def __post_init__(self) -> None:
        choice("position.kind", self.kind, POSITIONS)
        self._set("base", number("position.base", self.base, above=0))
        flag("position.traditional", self.traditional)
        if self.dims is not None:
            self._set("dims", whole("position.dims", self.dims, 2))
            if self.dims % 2:
                raise FieldError("position.dims", f"must be even; got {self.dims}")
        if self.scaling is not None:
            instance("position.scaling", self.scaling, RopeScaling)
            if self.kind != "rope":
                raise FieldError("position.scaling", f"must be absent for kind {self.kind!r}; it is one of rope's")
            if self.scaling.kind == "yarn" and self.base <= 1:
                raise FieldError("position.base", f"must be > 1 for scaling of kind 'yarn'; got {self.base}")
        if self.max_positions is not None:
            self._set("max_positions", whole("position.max_positions", self.max_positions, 1))
        elif self.kind == "learned":
            raise FieldError("position.max_positions", "must be given for kind 'learned'")
        if self.bidirectional is not None:
            flag("position.bidirectional", self.bidirectional)
        self._set("num_buckets", whole("position.num_buckets", self.num_buckets, 2, MAX_BUCKETS))
        self._set("max_distance", whole("position.max_distance", self.max_distance, 1, MAX_DISTANCE))


@dataclass(frozen=True, slots=True)
class NormConfig(Section):
    """RMSNorm or LayerNorm. ``bias`` defaults to that of the kind; the weight counts as ``weight + offset``."""

    _path: ClassVar[str] = "norm."
    kind: str = "rms"
    eps: float = 1e-5
    bias: bool | None = None
    offset: float = 0.0

    def __post_init__(self) -> None:
        choice("norm.kind", self.kind, NORMS)
        self._set("eps", number("norm.eps", self.eps, minimum=0))
        self._set("bias", self.kind == "layer" if self.bias is None else flag("norm.bias", self.bias))
        self._set("offset", number("norm.offset", self.offset))


@dataclass(frozen=True, slots=True)
class MLPConfig(Section):
    """The position-wise network; ``moe`` chooses ``top_k`` of ``num_experts`` networks of ``expert_kind``."""

    _path: ClassVar[str] = "mlp."
    kind: str
    d_ff: int
    bias: bool = False
    num_experts: int = 0
    top_k: int = 0
    norm_topk: bool = True
    expert_kind: str = "swiglu"

    def __post_init__(self) -> None:
        choice("mlp.kind", self.kind, MLPS)
        self._set("d_ff", whole("mlp.d_ff", self.d_ff, 1))
        for name in ("bias", "norm_topk"):
            flag(f"mlp.{name}", getattr(self, name))
        choice("mlp.expert_kind", self.expert_kind, (*PLAIN_MLPS, *GATED_MLPS))
        if self.kind == "moe":
            self._set("num_experts", whole("mlp.num_experts", self.num_experts, 1))
            self._set("top_k", whole("mlp.top_k", self.top_k, 1, self.num_experts))
        else:
            for name in ("num_experts", "top_k"):
                self._set(name, whole(f"mlp.{name}", getattr(self, name), 0))
                if getattr(self, name):
                    raise FieldError(f"mlp.{name}", f"must be 0 for kind {self.kind!r}; got {getattr(self, name)}")


@dataclass(frozen=True, slots=True)
class BlockConfig(Section):
    """Where the norms stand (NRM-2), and dropout.

    ``pre``: x + f(norm(x)); ``post``: norm(x + f(x)); ``sandwich``: x + norm'(f(norm(x))). ``dropout`` acts on the
    embedding and on the result of every sub-layer, while training.
    """

    _path: ClassVar[str] = "block."
    placement: str = "pre"
    dropout: float = 0.0

    def __post_init__(self) -> None:
        choice("block.placement", self.placement, PLACEMENTS)
        self._set("dropout", number("block.dropout", self.dropout, minimum=0))
        if self.dropout >= 1:
            raise FieldError("block.dropout", f"must be < 1; got {self.dropout}")


@dataclass(frozen=True, slots=True)
class LayerOverride(Section):
    """What one layer of the pattern does differently; ``None`` leaves the model's own setting."""

    _sections: ClassVar[Mapping[str, type[Section]]] = {"position": PositionConfig, "mlp": MLPConfig}
    window: int | tuple[int | None, int | None] | None = None
    position: PositionConfig | None = None
    mlp: MLPConfig | None = None

    def __post_init__(self) -> None:
        self._set("window", _window("window", self.window))
        if self.position is not None:
            instance("position", self.position, PositionConfig)
            choice("position.kind", self.position.kind, LAYER_POSITIONS)
        if self.mlp is not None:
            instance("mlp", self.mlp, MLPConfig)


def _window(path: str, window: Any) -> int | tuple[int | None, int | None] | None:
    if window is None:
        return None
    if isinstance(window, tuple | list):
        if len(window) != 2:
            raise FieldError(path, f"must be an integer or a pair (left, right); got {window!r}")
        left, right = (None if side is None else whole(path, side, 0) for side in window)
        return left, right
    return whole(path, window, 1)


def _scaling_value(path: str, kind: str, name: str, value: Any) -> Any:
    if name == "original_max_positions":
        return whole(path, value, 2 if kind == "longrope" else 1)  # longrope divides by its logarithm
    if name in ("short_factor", "long_factor"):
        if not isinstance(value, tuple | list):
            raise FieldTypeError(path, f"must be a list of numbers; got {value!r}")
        return tuple(number(path, entry, above=0, maximum=MAX_SCALING) for entry in value)
    if name == "factor":
        return number(path, value, minimum=1, maximum=MAX_SCALING)
    low = {"minimum": 0} if name.startswith("mscale") else {"above": 0}
    return number(path, value, **low, maximum=MAX_SCALING)
