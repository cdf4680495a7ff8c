"""The checks of models and their parts as the spec sees them; see :mod:`.check_signatures`."""

from __future__ import annotations

from . import kinds
from .signature import Argument, CheckSignature, check

_NETWORKS = ("mlp", "moe")
_NORMS = ("rms_norm", "layer_norm")
_NUMBERS = kinds.NUMBERS

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
        Argument("by", _NUMBERS, "The factors.", required=True),
        ops=_NORMS,
    ),
    check(
        "shift_is_linear",
        "The code of a position moved by k is a fixed matrix, which depends on k only, times the code of the position.",
        Argument("by", kinds.INTEGERS, "The shifts k.", required=True),
        ops=("sinusoidal",),
    ),
)
