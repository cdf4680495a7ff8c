"""The checks of models and their parts as the spec sees them; see :mod:`.check_signatures`."""

from __future__ import annotations

from . import kinds
from .signature import Argument, CheckSignature, check

_NETWORKS = ("mlp", "moe")
_NORMS = ("rms_norm", "layer_norm")
_MODEL = ("model",)
_GRADIENTS = ("model_gradients",)

MODEL_CHECKS: tuple[CheckSignature, ...] = (
    check(
        "position_wise",
        "Positions in another order give the results in that order, and one position changes no other.",
        ops=(*_NETWORKS, *_NORMS),
    ),
    check(
        "not_linear",
        "The result for a sum is not the sum of the results; it would be without the activation.",
        Argument("margin", kinds.NUMBER, "Least departure, as a share of the result's size.", required=True),
        ops=("mlp",),
    ),
    check(
        "scale_invariant",
        "Inputs times powers of two give the same result.",
        Argument("by", kinds.NUMBERS, "The factors.", required=True),
        ops=_NORMS,
    ),
    check(
        "shift_is_linear",
        "The code of a position moved by k is a fixed matrix, which depends on k only, times the code of the position.",
        Argument("by", kinds.INTEGERS, "The shifts k.", required=True),
        ops=("sinusoidal",),
    ),
    check(
        "stages_equal_oracle",
        "Every stage lies within its bound of the oracle's, computed from the implementation's own previous stages.",
        Argument(
            "end", kinds.BOOLEAN, "The logits are held to the spread of perturbed oracle runs too; true where absent."
        ),
        ops=_MODEL,
    ),
    check(
        "token_dependence",
        "Another token at position p changes a stage at positions i, or leaves it bit for bit the same.",
        Argument("change", kinds.choice("tokens", "source"), "Which tokens; tokens where absent."),
        Argument("stage", kinds.TEXT, "The stage, or a glob of several; logits where absent."),
        Argument("changed", kinds.EXPRESSION, "Over i, p and the dims: where it must change."),
        Argument("unchanged", kinds.EXPRESSION, "Over i, p and the dims: where it must not."),
        ops=_MODEL,
    ),
    check(
        "order_matters",
        "Tokens in another order give the logits in that order, or others.",
        Argument("expected", kinds.BOOLEAN, "Whether the order matters.", required=True),
        ops=_MODEL,
    ),
    check(
        "stages_alike",
        "Stages that hold the same numbers, bit for bit.",
        Argument("first", kinds.TEXT, "Name of a stage.", required=True),
        Argument("others", kinds.NAMES, "Names of the others.", required=True),
        ops=_MODEL,
    ),
    check(
        "attends",
        "A query puts its weight on a key, in one layer and head.",
        Argument("layer", kinds.INTEGER, "The layer.", required=True),
        Argument("head", kinds.INTEGER, "The head.", required=True),
        Argument("query", kinds.INTEGER, "Position of the query.", required=True),
        Argument("key", kinds.INTEGER, "Position of the key.", required=True),
        Argument("at_least", kinds.NUMBER, "The least weight.", required=True),
        ops=_MODEL,
    ),
    check(
        "parameters_are",
        "The trainable parameters are those of the configuration.",
        Argument("present", kinds.NAMES, "Globs that a parameter must match."),
        Argument("absent", kinds.NAMES, "Globs that none may match."),
        ops=_GRADIENTS,
    ),
    check(
        "gradient_rows",
        "The gradient reaches exactly those rows of a table that were used.",
        Argument("of", kinds.TEXT, "Name of the table.", required=True),
        Argument("rows", kinds.EXPRESSION, "Over the row i and the dims; the tokens that occur where absent."),
        ops=_GRADIENTS,
    ),
    check("gradient_equals_difference", "Gradients along a direction are the oracle's difference.", ops=_GRADIENTS),
    check(
        "gradient_with_depth",
        "The gradient at the input, over the number of layers.",
        Argument("layers", kinds.INTEGERS, "Numbers of layers.", required=True),
        Argument("at_least", kinds.NUMBER, "Least size at the deepest, as a share of that at the shallowest."),
        Argument("at_most", kinds.NUMBER, "Greatest size there, likewise."),
        ops=_GRADIENTS,
    ),
    check(
        "keeps_what_was_fed",
        "After every step each query sees exactly the tokens that a plain list of them says.",
        ops=("cache",),
        needs="steps",
    ),
    check(
        "steps_equal_oracle",
        "What is left of a text after all steps has, at every stage, what the oracle computes from it at once.",
        ops=("model_steps",),
        needs="steps",
    ),
    check("alone_equals_batched", "Each row of a batch with padding gives what its tokens give alone.", ops=_MODEL),
    check(
        "same_in_chunks",
        "Tokens fed in chunks give what they give at once.",
        Argument(
            "chunks", kinds.LISTING, "Sizes of chunks: one number, or a list of them, for each run.", required=True
        ),
        ops=_MODEL,
    ),
    check(
        "gradient_reach",
        "The gradient from the last output to the first input does not shrink with the length; a plain RNN's vanishes.",
        Argument("sizes", kinds.INTEGERS, "Lengths.", required=True),
        Argument(
            "flat_within", kinds.NUMBER, "Largest over smallest norm for attention, less 1, at most.", required=True
        ),
        Argument("vanishes_below", kinds.NUMBER, "What is left in the RNN at the longest, at most.", required=True),
        ops=("attention_gradients",),
    ),
    check(
        "figure_ratio",
        "A figure of the call over that of a changed form of it.",
        Argument("figure", kinds.choice("cache_bytes", "step_bytes", "depth", "flops"), "Which figure.", required=True),
        Argument("with", kinds.CHANGES, "What changes: call, inputs and layout, as in a case."),
        Argument("ratio", kinds.NUMBER, "What the ratio must be.", required=True),
    ),
)
