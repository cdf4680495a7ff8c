"""Precision classes: which roundings an implementation declares to make inside, besides that of the result."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..call import PRECISION_CLASSES
from .units import U

# Option in the name of a class ("P+fast-exp"): exponential, sine and cosine of a vendor's fast maths.
FAST_EXP = "fast-exp"


@dataclass(frozen=True)
class PrecisionClass:
    """A set of declared roundings.

    ``rounds_weights``: the attention weights (in the backward pass also dS) are rounded once to the dtype of the
    inputs before they multiply. ``rounds_partials``: partial outputs of a split over keys are kept in that dtype.
    ``exp_slope``: relative error of exp(x) in units of u per unit of |x|. ``trig``: absolute error of sin and cos.
    Scores in the dtype of the inputs are in no class.
    """

    name: str
    rounds_weights: bool = False
    rounds_partials: bool = False
    exp_slope: float = 3.0
    trig: float = 4 * U


_BASE = {
    "f32-internal": PrecisionClass("f32-internal"),
    "P": PrecisionClass("P", rounds_weights=True),
    "split": PrecisionClass("split", rounds_weights=True, rounds_partials=True),
}
assert set(_BASE) == set(PRECISION_CLASSES)


def precision_class(name: str) -> PrecisionClass:
    """The class of that name: ``f32-internal``, ``P`` or ``split``, each optionally with ``+fast-exp``.

    Raises ``ValueError`` for any other name.
    """
    base, _, option = name.partition("+")
    if base not in _BASE or option not in ("", FAST_EXP) or name.endswith("+"):
        allowed = ", ".join(PRECISION_CLASSES)
        raise ValueError(
            f"[precision_class] precision must be one of {allowed}, optionally followed by +{FAST_EXP}; got {name!r}"
        )
    if not option:
        return _BASE[base]
    # exp2 with 3 + floor|2x| ulp, ulp <= 2u: at most 9 u per unit of |x| beyond the constant that every class has.
    return replace(_BASE[base], name=name, exp_slope=9.0, trig=2.0**-12)
