"""The parts of a model as ops: tables, positions, norms, and the position-wise networks."""

from __future__ import annotations

from . import features as f
from . import kinds
from . import part_features as p
from .op import Array, Op, Option, named

_COMPILED = Option("compiled", kinds.BOOLEAN, "The call is traced and compiled first.")
_STREAM = ("B", "T_q", "d_model")
_OUT = ("out",)

_EMBEDDING = Op(
    "embedding",
    "Rows of a table by token id.",
    named(
        Array("ids", ("B", "T_q"), "Token ids.", required=True),
        Array("table", ("vocab", "d_model"), "One row for each id.", required=True),
    ),
    named(
        Option("scale", kinds.NUMBER, "Factor of the rows; 1 where absent."),
        Option("check", kinds.BOOLEAN, "The ids are read and checked."),
        _COMPILED,
    ),
    _OUT,
    _OUT,
    ("table",),
    (f.DTYPE, f.given("scale"), p.IDS),
    scope="model",
)

_SINUSOIDAL = Op(
    "sinusoidal",
    "Sines and cosines of positions, float32.",
    named(Array("positions", ("T_q",), "Positions, integers; 0, 1, ... where absent.", required=True)),
    named(
        Option("dims", kinds.COUNT, "Channels.", default="d_model"),
        Option("base", kinds.NUMBER, "Base of the wavelengths; 10000 where absent."),
        Option("scale", kinds.NUMBER, "Factor of the result; 1 where absent."),
        _COMPILED,
    ),
    _OUT,
    _OUT,
    (),
    (p.FAR_POSITIONS, p.CHANNELS, f.given("base"), f.given("scale")),
    scope="model",
)

_LEARNED = Op(
    "learned_positions",
    "Rows of a trained table by position.",
    named(
        Array("positions", ("T_q",), "Positions, integers; 0, 1, ... where absent.", required=True),
        Array("table", ("vocab", "d_model"), "One row for each position that was trained.", required=True),
    ),
    named(Option("check", kinds.BOOLEAN, "The positions are read and checked."), _COMPILED),
    _OUT,
    _OUT,
    (),
    (f.DTYPE,),
    scope="model",
)

_RELATIVE = Op(
    "relative_bias",
    "T5's bias of every query and key by the bucket of their distance.",
    named(Array("table", ("vocab", "N_q"), "One bias for each bucket and head.", required=True)),
    named(
        Option("T_q", kinds.COUNT, "Length of the queries.", default="T_q"),
        Option("T_kv", kinds.COUNT, "Length of the keys.", default="T_kv"),
        Option("bidirectional", kinds.BOOLEAN, "Keys ahead have buckets of their own.", default="false"),
        Option("max_distance", kinds.COUNT, "From here on all is one bucket; 128 where absent."),
        Option("q_offset", kinds.INTEGER, "Position of the first query; T_kv - T_q where absent."),
        _COMPILED,
    ),
    _OUT,
    _OUT,
    (),
    (f.DTYPE, f.flag("bidirectional"), f.given("max_distance")),
    scope="model",
)

_NORM_OPTIONS = (
    Option("eps", kinds.NUMBER, "Added to the mean square or variance, inside the root; 1e-5 where absent."),
    Option("offset", kinds.NUMBER, "Added to the weight; 0 where absent."),
    _COMPILED,
)
_NORM_ARRAYS = (
    Array("x", _STREAM, "What is normalised, over the last axis.", required=True),
    Array("weight", ("d_model",), "Factor of each channel; 1 where absent."),
)
_NORM_BIAS = Array("bias", ("d_model",), "Added to each channel; 0 where absent.")
_NORM_FEATURES = (f.DTYPE, f.array("weight"), f.given("eps"), f.given("offset"), f.layouts("x"))

_RMS_NORM = Op(
    "rms_norm",
    "x / sqrt(mean(x^2) + eps), times a weight, plus a bias.",
    named(*_NORM_ARRAYS, _NORM_BIAS),
    named(*_NORM_OPTIONS),
    _OUT,
    _OUT,
    ("x",),
    (*_NORM_FEATURES, f.array("bias")),
    scope="model",
)

_LAYER_NORM = Op(
    "layer_norm",
    "(x - mean(x)) / sqrt(var(x) + eps), times a weight, plus a bias.",
    named(*_NORM_ARRAYS, _NORM_BIAS),
    named(*_NORM_OPTIONS),
    _OUT,
    _OUT,
    ("x",),
    (*_NORM_FEATURES, f.array("bias")),
    scope="model",
)

_MLP_KIND = kinds.choice(*p.MLP_KINDS)

_MLP = Op(
    "mlp",
    "act(x w_up) w_down, or (act(x w_gate) * (x w_up)) w_down.",
    named(
        Array("x", _STREAM, "Input.", required=True),
        Array("w_up", ("d_model", "d_ff"), "First layer.", required=True),
        Array("w_gate", ("d_model", "d_ff"), "The gate; used by the gated kinds only.", required=True),
        Array("w_down", ("d_ff", "d_model"), "Last layer.", required=True),
        Array("b_up", ("d_ff",), "Bias of the first layer."),
        Array("b_gate", ("d_ff",), "Bias of the gate."),
        Array("b_down", ("d_model",), "Bias of the last layer."),
    ),
    named(Option("kind", _MLP_KIND, "Activation, and whether there is a gate."), _COMPILED),
    _OUT,
    _OUT,
    ("x",),
    (f.DTYPE, p.KIND, p.BIASES),
    scope="model",
)

_MOE = Op(
    "moe",
    "A mixture of experts: top_k networks for every token, weighted by the softmax of the router.",
    named(
        Array("x", _STREAM, "Input.", required=True),
        Array("w_router", ("d_model", "experts"), "Logits of the experts.", required=True),
        Array("w_up", ("experts", "d_model", "d_ff"), "First layers.", required=True),
        Array("w_gate", ("experts", "d_model", "d_ff"), "Gates; used by the gated kinds only.", required=True),
        Array("w_down", ("experts", "d_ff", "d_model"), "Last layers.", required=True),
    ),
    named(
        Option("top_k", kinds.COUNT, "How many experts a token has."),
        Option("norm_topk", kinds.BOOLEAN, "Weights of the chosen ones are divided by their sum.", default="true"),
        Option("kind", _MLP_KIND, "What the experts are."),
        _COMPILED,
    ),
    _OUT,
    _OUT,
    ("x",),
    (f.DTYPE, p.TOP_K, f.flag("norm_topk"), p.choice_of("kind", "relu", "swiglu")),
    scope="model",
)

PART_OPS = (_EMBEDDING, _SINUSOIDAL, _LEARNED, _RELATIVE, _RMS_NORM, _LAYER_NORM, _MLP, _MOE)
