"""The closed registry of ops: their arrays, options and outputs, and what of them the spec must exercise."""

from __future__ import annotations

from collections.abc import Mapping

from . import features as f
from . import kinds
from . import part_features as p
from .model_ops import MODEL_OPS
from .op import DIM_HELP, DIMS, Array, Op, Option, named
from .part_ops import PART_OPS

__all__ = ["DEFAULT_OP", "DIMS", "DIM_HELP", "OPS", "Array", "Op", "Option"]

_QKV = (
    Array("q", ("B", "N_q", "T_q", "D"), "Queries.", required=True),
    Array("k", ("B", "N_kv", "T_kv", "D"), "Keys.", required=True),
    Array("v", ("B", "N_kv", "T_kv", "D_v"), "Values.", required=True),
)
_FULL = ("B", "N_q", "T_q", "T_kv")
_BESIDE = (
    Array("mask", _FULL, "Boolean (true: may see) or additive; 2-D to 4-D.", broadcasts=True),
    Array("bias", _FULL, "Added to the scores; 2-D to 4-D.", broadcasts=True),
    Array("sinks", ("N_q",), "One more logit a head, in the softmax without a value."),
    Array("alibi", ("N_q",), "ALiBi slopes, [N_q] or [B, N_q].", broadcasts=True),
    Array("kv_lengths", ("B",), "Keys from this position on do not exist."),
    Array("segments", ("B", "T_q"), "Segment ids of queries and keys alike."),
    Array("q_segments", ("B", "T_q"), "Segment ids of the queries."),
    Array("kv_segments", ("B", "T_kv"), "Segment ids of the keys."),
    Array("q_offset", ("B",), "Position of the first query, by batch row."),
)
_ATTENTION_OPTIONS = (
    Option("scale", kinds.NUMBER, "Factor of the scores; 1/sqrt(D) where absent."),
    Option("causal", kinds.BOOLEAN, "Query i sees keys up to its own position."),
    Option("mask", kinds.choice("causal"), "The word causal: the same as causal: true."),
    Option("window", kinds.WINDOW, "Sliding window: a count with the query itself, or [left, right]."),
    Option("alibi", kinds.BOOLEAN, "True: ALiBi with the standard slopes."),
    Option("softcap", kinds.NUMBER, "Scores become softcap * tanh(scores / softcap)."),
    Option("q_offset", kinds.INTEGER, "Position of the first query; T_kv - T_q where absent."),
    Option("path", kinds.choice("auto", "composed", "blockwise", "mlx", "fused"), "Which way to compute is asked for."),
    Option("force_fused", kinds.BOOLEAN, "An error rather than another path where no fused kernel fits."),
    Option("check", kinds.BOOLEAN, "The values inside arrays are checked too."),
    Option("compiled", kinds.BOOLEAN, "The call is traced and compiled first."),
)
_ATTENTION_FEATURES = (
    f.DTYPE,
    f.flag("causal"),
    f.WINDOW,
    f.MASK,
    f.HEADS,
    f.given("softcap"),
    f.array("sinks"),
    f.ALIBI,
    f.array("bias"),
    f.array("kv_lengths"),
    f.SEGMENTS,
    f.Q_OFFSET,
    f.given("scale"),
    f.VALUE_SIZE,
    f.LENGTHS,
    f.BATCH,
)

_ATTENTION = Op(
    "attention",
    "softmax(scores) V, with everything that may act on the scores.",
    named(*_QKV, *_BESIDE),
    named(*_ATTENTION_OPTIONS),
    ("out", "lse"),
    ("out",),
    ("q", "k", "v"),
    (
        *_ATTENTION_FEATURES,
        f.outputs("out", "lse"),
        f.shapes_of("mask", "boolean"),
        f.shapes_of("mask", "additive"),
        f.shapes_of("bias"),
        f.HEAD_SIZE,
        f.layouts("q", "k", "v"),
    ),
    needs=("N_q", "N_kv"),
)

_GRADIENTS = Op(
    "attention_gradients",
    "Gradients of attention by its inputs, for cotangents of out and lse.",
    named(
        *_QKV,
        *_BESIDE,
        Array("d_out", ("B", "N_q", "T_q", "D_v"), "Cotangent of out."),
        Array("d_lse", ("B", "N_q", "T_q"), "Cotangent of lse."),
    ),
    named(*_ATTENTION_OPTIONS),
    ("q", "k", "v", "bias", "mask", "sinks", "out", "lse"),
    ("q", "k", "v"),
    ("q", "k", "v", "d_out"),
    (*_ATTENTION_FEATURES, f.outputs("q", "k", "v", "bias", "mask", "sinks"), f.array("d_lse")),
    needs=("N_q", "N_kv"),
)

_ROPE = Op(
    "rope",
    "Rotary position encoding of x.",
    named(
        Array("x", ("B", "N_q", "T_q", "D"), "What is rotated.", required=True),
        Array("offset", ("B",), "Position of the first row, by batch row."),
    ),
    named(
        Option("offset", kinds.INTEGER, "Position of the first row; 0 where absent."),
        Option("base", kinds.NUMBER, "Base of the wavelengths; 10000 where absent."),
        Option("dims", kinds.COUNT, "How many leading channels turn; all where absent."),
        Option("traditional", kinds.BOOLEAN, "Pairs are neighbours (interleaved) rather than halves apart."),
        Option("scale", kinds.NUMBER, "Factor of the positions; 1 where absent."),
        Option("scaling", kinds.SCALING, "A recipe for longer texts: kind and its numbers."),
        Option("length", kinds.COUNT, "Length of the text, which dynamic and longrope look at."),
        Option("compiled", kinds.BOOLEAN, "The call is traced and compiled first."),
    ),
    ("out",),
    ("out",),
    ("x",),
    (
        f.DTYPE,
        f.ROPE_OFFSET,
        f.flag("traditional"),
        f.ROTATED,
        f.given("base"),
        f.given("scale"),
        f.BATCH,
        f.layouts("x"),
        p.SCALING,
        p.TRUNCATED,
        p.FACTORS,
    ),
)

_SLOPES = Op(
    "alibi_slopes",
    "The standard ALiBi slopes for a number of heads.",
    named(),
    named(Option("n_heads", kinds.COUNT, "How many heads.", default="N_q")),
    ("out",),
    ("out",),
    (),
    (f.HEAD_COUNT,),
)

_LAYER = Op(
    "attention_layer",
    "Projections, heads, attention, concatenation and output projection.",
    named(
        Array("x", ("B", "T_q", "d_model"), "Input; queries come from it.", required=True),
        Array("memory", ("B", "T_kv", "d_model"), "Where keys and values come from; x where absent."),
        Array("w_q", ("d_model", "N_q * D"), "Q = x w_q.", required=True),
        Array("w_k", ("d_model", "N_kv * D"), "K = x w_k.", required=True),
        Array("w_v", ("d_model", "N_kv * D_v"), "V = x w_v.", required=True),
        Array("w_o", ("N_q * D_v", "d_model"), "Output projection.", required=True),
        Array("b_q", ("N_q * D",), "Bias of Q."),
        Array("b_k", ("N_kv * D",), "Bias of K."),
        Array("b_v", ("N_kv * D_v",), "Bias of V."),
        Array("b_o", ("d_model",), "Bias of the output."),
    ),
    named(
        Option("N_q", kinds.COUNT, "Query heads.", default="N_q"),
        Option("N_kv", kinds.COUNT, "Key/value heads.", default="N_kv"),
        Option("causal", kinds.BOOLEAN, "Query i sees keys up to its own position."),
        Option("rope", kinds.ROPE, "Queries and keys are rotated: true, or its arguments."),
        Option("compiled", kinds.BOOLEAN, "The call is traced and compiled first."),
    ),
    ("out",),
    ("out",),
    ("x", "memory"),
    (f.DTYPE, f.flag("causal"), f.HEADS, f.array("memory"), f.PROJECTION_BIASES, f.given("rope")),
    needs=("N_q", "N_kv"),
)

_SOFTMAX = Op(
    "softmax",
    "softmax of x along an axis.",
    named(Array("x", _FULL, "Scores.", required=True)),
    named(
        Option("axis", kinds.INTEGER, "Axis; the last where absent."),
        Option("compiled", kinds.BOOLEAN, "The call is traced and compiled first."),
    ),
    ("out",),
    ("out",),
    ("x",),
    (f.DTYPE, f.AXIS),
)

OPS: Mapping[str, Op] = named(_ATTENTION, _GRADIENTS, _ROPE, _SLOPES, _LAYER, _SOFTMAX, *PART_OPS, *MODEL_OPS)
DEFAULT_OP = "attention"
