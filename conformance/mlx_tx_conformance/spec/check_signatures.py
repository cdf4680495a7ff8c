"""The closed registry of checks as the spec sees them: what each is called, which arguments it takes, what it says.

What a check does is written in the package ``checks``, one function of the same name and arguments for each of these
(a test holds the two together); loading and linting the spec needs the names only.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from . import kinds
from .count_checks import COUNT_CHECKS, KERNEL_FIGURES
from .model_checks import MODEL_CHECKS
from .signature import Argument, CheckSignature
from .signature import check as _check

# Changes to a whole call that leave its result alone, by the names that `agrees` knows.
TRANSFORMS = (
    "repeat_kv",
    "swap_keys",
    "reverse_keys",
    "shift_scores",
    "truncate_keys",
    "bool_to_additive",
    "materialise_mask",
)
# What a target may be asked to measure.
FIGURES = ("peak_bytes", "flops", "matmul_flops", "depth", "step_bytes", "cache_bytes", *KERNEL_FIGURES)
# Index along which a perturbation picks one place: batch row, head, query, key.
INDEX = kinds.choice("b", "h", "i", "j")

_WHERE = Argument("where", kinds.EXPRESSION, "Over b, h, i, j, the dims and the numeric options.", required=True)
_OUTPUTS = Argument("outputs", kinds.OUTPUTS, "Those outputs only; all of the call where absent.")
_PERTURB = Argument("perturb", kinds.ARRAYS, "The arrays of which one index at a time is replaced.", required=True)
_AT = Argument("at", INDEX, "The axis of that index; j where absent. The index is called p in where.")
_BITWISE = Argument("bitwise", kinds.BOOLEAN, "Bit for bit rather than within the bounds of both.")


_ATTENTION = ("attention",)
_BOTH = ("attention", "attention_gradients")

CHECKS: Mapping[str, CheckSignature] = MappingProxyType(
    {
        signature.name: signature
        for signature in (
            _check("equals_oracle", "Every element lies within its derived bound of the float64 oracle.", _OUTPUTS),
            _check(
                "exactly",
                "The outputs are the oracle's values rounded to the dtype, bit for bit.",
                Argument("ulp", kinds.INTEGER, "Units in the last place that are allowed; 0 where absent."),
                _OUTPUTS,
            ),
            _check(
                "unchanged",
                "Where the expression holds, outputs stay bit for bit the same when inputs change.",
                _PERTURB,
                _WHERE,
                _AT,
                Argument("by", kinds.REPLACEMENT, "What replaces it: value (the default), nan or inf."),
                _OUTPUTS,
                ops=_BOTH,
            ),
            _check(
                "changed",
                "Where the expression holds, outputs do change when inputs change.",
                _PERTURB,
                _WHERE,
                _AT,
                ops=_ATTENTION,
            ),
            _check(
                "gradient_zero",
                "Where the expression holds, the gradient of output row i by position j is exactly 0.",
                Argument("of", kinds.ARRAYS, "The arrays that the gradient is taken by.", required=True),
                _WHERE,
                ops=("attention_gradients",),
            ),
            _check(
                "equivariant",
                "Permuting an axis of the inputs permutes the outputs the same way (keys: leaves them alone).",
                Argument("permute", kinds.choice("heads", "keys", "batch", "positions"), "Which axis.", required=True),
                ops=_ATTENTION,
            ),
            _check(
                "same_for",
                "The result is the same for every value of one variable: an option, layout, or a name used in let.",
                _BITWISE,
                variable=True,
            ),
            _check(
                "agrees",
                "The call and a changed form of it give the same numbers.",
                Argument("with", kinds.CHANGES, "What changes: call, inputs and layout, as in a case; null removes."),
                Argument("transform", kinds.choice(*TRANSFORMS), "A named change to the whole call."),
                _BITWISE,
                _OUTPUTS,
            ),
            _check("rows_sum_to_one", "The weights of every row sum to one (less the sink's).", ops=_ATTENTION),
            _check("in_hull", "Every output lies between the least and greatest value of its channel.", ops=_ATTENTION),
            _check("linear", "The output is linear in V.", ops=_ATTENTION),
            _check("finite", "No output is NaN or infinite (a log-sum-exp may be -inf)."),
            _check(
                "nan_where", "The output is NaN where the expression holds, and nowhere else.", _WHERE, ops=_ATTENTION
            ),
            _check(
                "raises",
                "The call is refused by an error that names what is wrong (written as expect: {raises: ...}).",
                Argument(
                    "type", kinds.TEXT, "Name of the exception's class; several with a bar between.", required=True
                ),
                Argument("names", kinds.TEXTS, "What its message must hold."),
            ),
            _check(
                "deterministic",
                "The same call gives the same bits every time.",
                Argument("repeats", kinds.COUNT, "How often; 3 where absent."),
            ),
            _check("batch_invariant", "A batch row gives the same alone as among its batch mates.", ops=_ATTENTION),
            _check(
                "chunk_invariant",
                "Queries fed in chunks give what they give all at once.",
                Argument("chunks", kinds.INTEGERS, "Sizes of the chunks, one run for each.", required=True),
                ops=_ATTENTION,
            ),
            _check("compiled_equals_eager", "Compiled and eager runs agree."),
            _check("inputs_unmutated", "The call leaves its inputs as they were."),
            _check(
                "path_is",
                "The path that ran is the one named.",
                Argument("path", kinds.TEXT, "Name of the path.", required=True),
            ),
            _check(
                "order_does_not_matter",
                "Each call of steps gives the same bits first, last, and after any of the others.",
                needs="steps",
            ),
            _check(
                "path_length",
                "The least number of layers after which the last output depends on the first position.",
                Argument(
                    "expected", kinds.EXPRESSION_OR_NUMBER, "That number, over the dims and options.", required=True
                ),
                ops=_ATTENTION,
            ),
            _check(
                "law",
                "A figure measured over several sizes follows a power of the size.",
                Argument("exponent_at_most", kinds.NUMBER, "Greatest exponent from successive differences."),
                Argument("exponent_at_least", kinds.NUMBER, "Least exponent."),
                Argument("at_most", kinds.NUMBER, "Greatest figure at the largest size."),
                Argument("tolerance", kinds.NUMBER, "How far an exponent may lie beyond; 0 where absent."),
                Argument("flat_within", kinds.NUMBER, "Largest figure over the smallest, less 1, at most."),
                needs="over",
            ),
            _check(
                "score_test",
                "The error does not look like a wrong scale (finds one below the element-wise bound).",
                ops=_ATTENTION,
            ),
            _check(
                "score_variance",
                "Scores of unit-normal inputs have variance about 1.",
                Argument("low", kinds.NUMBER, "Least variance."),
                Argument("high", kinds.NUMBER, "Greatest variance."),
                ops=_ATTENTION,
            ),
            _check(
                "softmax_gradient_survives",
                "With the scale the softmax keeps its slope as D grows; without it, it does not.",
                Argument("sizes", kinds.INTEGERS, "Head sizes.", required=True),
                Argument("unscaled_below", kinds.NUMBER, "What the slope must fall below without the scale."),
                ops=_ATTENTION,
            ),
            _check(
                "derivative",
                "A derivative is right or refused by an error that names a path which has it.",
                Argument("kind", kinds.choice("second", "forward", "vmap"), "Which derivative.", required=True),
                ops=_ATTENTION,
            ),
            *COUNT_CHECKS,
            *MODEL_CHECKS,
        )
    }
)
