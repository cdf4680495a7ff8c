"""The configuration of a model: small frozen dataclasses, each of which checks itself.

.. code-block:: text

    ModelConfig
      attention: AttentionConfig    position: PositionConfig (scaling: RopeScaling)    norm: NormConfig
      mlp: MLPConfig                block: BlockConfig                                 layers: (LayerOverride, ...)

A bad value is refused with the path of its field: ``[config] attention.num_kv_heads must divide num_heads=8; got 3``.
``to_dict`` and ``from_dict`` convert to and from plain dicts, the form that files and other programs read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

from mlx_tx.checking import FieldError, FieldTypeError, Section, choice, flag, instance, number, whole
from mlx_tx.sections import (
    GATED_MLPS,
    MLPS,
    NORMS,
    PLACEMENTS,
    POSITIONS,
    AttentionConfig,
    BlockConfig,
    LayerOverride,
    MLPConfig,
    NormConfig,
    PositionConfig,
    RopeScaling,
)

__all__ = [
    "GATED_MLPS",
    "KINDS",
    "MLPS",
    "NORMS",
    "PLACEMENTS",
    "POSITIONS",
    "AttentionConfig",
    "BlockConfig",
    "LayerConfig",
    "LayerOverride",
    "MLPConfig",
    "ModelConfig",
    "NormConfig",
    "PositionConfig",
    "RopeScaling",
]

KINDS = ("decoder", "encoder", "encoder_decoder")
MAX_LAYERS = 10_000


class LayerConfig(NamedTuple):
    """What one layer does: the model's settings with the overrides of its place in the pattern."""

    attention: AttentionConfig
    position: PositionConfig
    mlp: MLPConfig


@dataclass(frozen=True, slots=True)
class ModelConfig(Section):
    """A whole model. ``num_layers`` counts the decoder's layers where there is an encoder too.

    ``layers`` is a pattern of overrides, repeated over every stack; ``embedding_scale`` is a number or ``"sqrt"``, the
    square root of ``d_model``. ``final_norm`` defaults to whether the placement is not ``post``, ``causal`` to whether
    the model is no encoder. Presets: :meth:`original`, :meth:`modern`.
    """

    _sections: ClassVar[Mapping[str, type[Section]]] = {
        "attention": AttentionConfig,
        "position": PositionConfig,
        "norm": NormConfig,
        "mlp": MLPConfig,
        "block": BlockConfig,
    }
    _lists: ClassVar[Mapping[str, type[Section]]] = {"layers": LayerOverride}
    kind: str
    vocab_size: int
    d_model: int
    num_layers: int
    attention: AttentionConfig
    mlp: MLPConfig
    position: PositionConfig = PositionConfig()  # noqa: RUF009  frozen, so that sharing it is safe
    norm: NormConfig = NormConfig()  # noqa: RUF009
    block: BlockConfig = BlockConfig()  # noqa: RUF009
    layers: tuple[LayerOverride, ...] = ()
    num_encoder_layers: int | None = None
    tie_embeddings: bool = False
    embedding_scale: float | str | None = None
    final_norm: bool | None = None
    final_softcap: float | None = None
    causal: bool | None = None

    def __post_init__(self) -> None:
        choice("kind", self.kind, KINDS)
        for name in ("vocab_size", "d_model", "num_layers"):
            most = MAX_LAYERS if name == "num_layers" else None
            self._set(name, whole(name, getattr(self, name), 1, most))
        for name, section in self._sections.items():
            instance(name, getattr(self, name), section)
        if self.kind == "encoder_decoder":
            given = self.num_encoder_layers
            given = self.num_layers if given is None else whole("num_encoder_layers", given, 1, MAX_LAYERS)
            self._set("num_encoder_layers", given)
        elif self.num_encoder_layers is not None:
            raise FieldError("num_encoder_layers", f"must be absent for kind {self.kind!r}; it has one stack")
        flag("tie_embeddings", self.tie_embeddings)
        if self.embedding_scale is not None and self.embedding_scale != "sqrt":
            if isinstance(self.embedding_scale, str):
                raise FieldError("embedding_scale", f"must be a number or 'sqrt'; got {self.embedding_scale!r}")
            self._set("embedding_scale", number("embedding_scale", self.embedding_scale))
        for name, default in (("final_norm", self.block.placement != "post"), ("causal", self.kind != "encoder")):
            value = getattr(self, name)
            self._set(name, default if value is None else flag(name, value))
        if self.final_softcap is not None:
            self._set("final_softcap", number("final_softcap", self.final_softcap, above=0))
        if not isinstance(self.layers, tuple | list):
            raise FieldTypeError("layers", f"must be a tuple of LayerOverride; got {self.layers!r}")
        for n, override in enumerate(self.layers):
            instance(f"layers[{n}]", override, LayerOverride)
        self._set("layers", tuple(self.layers))
        self._set("attention", self._with_head_dim())
        for n, layer in enumerate(self.layer(i) for i in range(max(1, len(self.layers)))):
            try:
                _fits(self, layer)
            except FieldError as error:
                raise (error.within(f"layers[{n}].") if self.layers and self.layers[n].position else error) from None
        if len({layer.position.num_buckets for layer in self.stack() if layer.position.kind == "t5"}) > 1:
            raise FieldError("layers", "must have one position.num_buckets for all t5 layers, which share a table")

    def layer(self, n: int) -> LayerConfig:
        """The settings of layer ``n`` of any stack."""
        own = LayerConfig(self.attention, self.position, self.mlp)
        if not self.layers:
            return own
        override = self.layers[n % len(self.layers)]
        attention = own.attention if override.window is None else replace(own.attention, window=override.window)
        return LayerConfig(attention, override.position or own.position, override.mlp or own.mlp)

    def stack(self, *, encoder: bool = False) -> list[LayerConfig]:
        """The settings of every layer of the encoder of an encoder-decoder, or of the only or decoding stack."""
        number_of = self.num_encoder_layers if encoder else self.num_layers
        return [self.layer(n) for n in range(number_of or 0)]

    def _with_head_dim(self) -> AttentionConfig:
        if self.attention.head_dim is not None:
            return self.attention
        heads = self.attention.num_heads
        if self.d_model % heads:
            problem = f"must be given where num_heads={heads} does not divide d_model={self.d_model}"
            raise FieldError("attention.head_dim", problem)
        return replace(self.attention, head_dim=self.d_model // heads)

    @classmethod
    def original(cls, vocab_size: int, **settings: Any) -> ModelConfig:
        """The Transformer of 2017; :func:`mlx_tx.presets.original` has the keywords."""
        from mlx_tx import presets

        return presets.original(vocab_size, **settings)

    @classmethod
    def modern(cls, vocab_size: int, **settings: Any) -> ModelConfig:
        """A modern decoder; :func:`mlx_tx.presets.modern` has the keywords."""
        from mlx_tx import presets

        return presets.modern(vocab_size, **settings)


def _fits(model: ModelConfig, layer: LayerConfig) -> None:
    """Refuses a position that does not fit the heads it acts on."""
    position, D = layer.position, layer.attention.head_dim
    assert D is not None
    if position.kind == "rope":
        dims = D if position.dims is None else position.dims
        if dims > D or dims % 2:
            raise FieldError("position.dims", f"must be even and at most attention.head_dim={D}; got {dims}")
        for name in ("short_factor", "long_factor"):
            values = None if position.scaling is None else getattr(position.scaling, name)
            if values is not None and len(values) != dims // 2:
                problem = f"must hold one number for each of the {dims // 2} pairs; got {len(values)}"
                raise FieldError(f"position.scaling.{name}", problem)
    if position.kind == "t5":
        ahead = not model.causal or model.kind == "encoder_decoder"
        two_sided = ahead if position.bidirectional is None else position.bidirectional
        sides = 2 if two_sided or model.kind == "encoder_decoder" else 1
        if position.num_buckets < 2 * sides or position.num_buckets % sides:
            allowed = f">= {2 * sides}" + (" and even" if sides == 2 else "")
            raise FieldError("position.num_buckets", f"must be {allowed} for t5; got {position.num_buckets}")
        # The stack that looks back only has all of the buckets, half of them exact.
        exact = position.num_buckets // (2 if not two_sided or model.kind == "encoder_decoder" else 4)
        if position.max_distance <= exact:
            raise FieldError("position.max_distance", f"must be > {exact}; got {position.max_distance}")
