"""Whole models as ops: their tokens, their configuration, and what is done with them."""

from __future__ import annotations

from . import features as f
from . import kinds
from . import model_features as m
from .op import Array, Op, Option, named

_TOKENS = (
    Array("tokens", ("B", "T_q"), "Token ids; of the decoder where there are two stacks.", required=True),
    Array("source", ("B", "T_kv"), "Token ids of the encoder; only where there are two stacks."),
    Array("lengths", ("B",), "Tokens from here on are padding."),
    Array("left_padding", ("B",), "Tokens before are padding, and positions count from here."),
    Array("source_lengths", ("B",), "Tokens of the source from here on are padding."),
    Array("segments", ("B", "T_q"), "Several texts in a row, each seeing itself only."),
)
_SETTINGS = (
    Option("config", kinds.CONFIG, "The configuration: a plain mapping."),
    Option("preset", kinds.CONFIG, "What the implementation is asked for in place of the configuration."),
    Option("weights", kinds.WEIGHTS, "Weights other than random ones: zero, scale, set."),
)
_FEATURES = (
    f.DTYPE,
    m.MODEL_KIND,
    m.PLACEMENT,
    m.POSITION,
    m.NORM,
    m.MLP,
    m.HEADS,
    m.TIED,
    m.config_flag("qk_norm", "attention"),
    m.config_flag("sinks", "attention"),
    m.config_flag("bias", "attention"),
    m.config_given("softcap", "attention"),
    m.config_given("window", "attention"),
    m.config_given("layers"),
    m.config_given("final_softcap"),
    m.config_given("embedding_scale"),
    f.array("lengths"),
    f.array("left_padding"),
    f.array("segments"),
    f.array("source_lengths"),
    m.CACHE,
)

_MODEL = Op(
    "model",
    "A whole model on tokens, every stage of it by name.",
    named(*_TOKENS),
    named(
        *_SETTINGS,
        Option("cache", kinds.CACHE, "The cache that the tokens are fed through: kind and what it takes."),
        Option("chunks", kinds.INTEGERS, "How many tokens each step is fed; all at once where absent."),
        Option("rope_length", kinds.COUNT, "The length that scaled rotary positions plan for."),
        Option("attention_weights", kinds.BOOLEAN, "The attention weights are read out too."),
        Option("stages", kinds.BOOLEAN, "Every stage is a result, under its name."),
    ),
    ("logits",),
    ("logits",),
    (),
    _FEATURES,
    scope="model",
    weighted=True,
)

_MODEL_GRADIENTS = Op(
    "model_gradients",
    "Gradients of a whole model by every trainable parameter and by the embedded tokens, for the cotangent d_logits.",
    named(*_TOKENS, Array("d_logits", ("B", "T_q", "vocab"), "Cotangent of the logits.", required=True)),
    named(*_SETTINGS),
    ("embedded",),
    ("embedded",),
    (),
    (f.DTYPE, m.MODEL_KIND, m.PLACEMENT, m.POSITION),
    scope="model",
    weighted=True,
)

MODEL_OPS = (_MODEL, _MODEL_GRADIENTS)
