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
_OPERATIONS = Option("operations", kinds.LISTING, "What is done, in order; a check fills this in from steps.")
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

_MODEL_STEPS = Op(
    "model_steps",
    "A model fed in steps through a cache, with tokens taken back, saved and restored in between.",
    named(*(array for array in _TOKENS if array.name in ("tokens", "left_padding"))),
    named(*_SETTINGS, Option("cache", kinds.CACHE, "The cache: kind and what it takes."), _OPERATIONS),
    ("logits",),
    ("logits",),
    (),
    (f.DTYPE, m.FED_CACHE, m.POSITION, m.MODEL_OPERATIONS),
    scope="model",
    weighted=True,
    stateful=True,
)

_CACHE = Op(
    "cache",
    "A key/value cache on mlx-lm's protocol: what a step gets back, and the mask that goes with it.",
    named(Array("left_padding", ("B",), "Tokens before are padding.")),
    named(
        Option("cache", kinds.CACHE, "The cache: kind and what it takes."),
        _OPERATIONS,
        Option("B", kinds.COUNT, "Rows.", default="B"),
        Option("N_kv", kinds.COUNT, "Key/value heads.", default="N_kv"),
        Option("D", kinds.COUNT, "Head size of keys.", default="D"),
        Option("D_v", kinds.COUNT, "Head size of values.", default="D_v"),
    ),
    ("kept",),
    ("kept",),
    (),
    (f.DTYPE, m.KEY_CACHE, m.STATE_OPERATIONS, f.array("left_padding")),
    scope="model",
    stateful=True,
)

_RNN = Op(
    "rnn",
    "The recurrent baseline h_t = tanh(W_h h_(t-1) + W_x x_t) that attention is compared with.",
    named(
        Array("x", ("B", "T_q", "d_model"), "Inputs.", required=True),
        Array("w_x", ("d_model", "d_model"), "To the state.", required=True),
        Array("w_h", ("d_model", "d_model"), "From state to state.", required=True),
    ),
    named(),
    ("out",),
    ("out",),
    (),
    (f.BATCH,),
    scope="model",
)

MODEL_OPS = (_MODEL, _MODEL_GRADIENTS, _MODEL_STEPS, _CACHE, _RNN)
