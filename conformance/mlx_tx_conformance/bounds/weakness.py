"""Results within their bound but worse than they need to be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from ..call import DEFAULT_PRECISION, Call, Result
from .bound import Bound
from .classes import precision_class
from .problem import float64
from .reference import Sequential

# Below this share of the bound an error is not worth a remark: the plain computation may be exact by luck.
_NOTABLE = 0.1
# How many times the root-mean-square error of the plain computation is called weak. Twice would call twice as many
# correct results weak (BOUNDS.md, section 7).
_WEAK_RATIO = 3.0


@dataclass(frozen=True)
class Weakness:
    """An output whose root-mean-square error is ``ratio`` times that of the plain sequential float32 computation."""

    output: str
    ratio: float
    headroom: float

    def __str__(self) -> str:
        return (
            f"{self.output} is within its bound (error/bound {self.headroom:.2g}) but its rms error is "
            f"{self.ratio:.3g} times that of the plain sequential float32 computation"
        )


def weak(call: Call, result: Result, bound: Mapping[str, Bound], precision: str | None = None) -> Weakness | None:
    """The weakest output of an attention call, or ``None`` where nothing is worth a remark.

    Weak is: a headroom above 0.1 and a root-mean-square error more than 3 times that of the sequential float32
    computation with the same declared roundings (class ``precision``, by default that of the call's dtype). Other
    operations have no plain computation to compare with and are never weak.
    """
    if call.op != "attention":
        return None
    notable: dict[str, float] = {}
    for name in call.outputs:
        if name in bound and bound[name].value.size:
            headroom = float(np.max(bound[name].headroom(result.outputs[name])))
            if headroom > _NOTABLE:
                notable[name] = headroom
    if not notable:
        return None
    declared = precision_class(DEFAULT_PRECISION[call.dtype] if precision is None else precision)
    plain = Sequential(declared.rounds_weights)(replace(call, layout={}))
    found = [
        Weakness(name, ratio, headroom)
        for name, headroom in notable.items()
        if (ratio := _rms_ratio(result.outputs[name], plain[name], bound[name].value)) > _WEAK_RATIO
    ]
    return max(found, key=lambda weakness: weakness.ratio, default=None)


def quality(call: Call, result: Result, bound: Mapping[str, Bound], precision: str | None = None) -> str | None:
    """The remark of :func:`weak` as a sentence, or ``None``."""
    weakness = weak(call, result, bound, precision)
    return None if weakness is None else str(weakness)


def _rms_ratio(actual: np.ndarray, plain: np.ndarray, value: np.ndarray) -> float:
    finite = np.isfinite(value) & np.isfinite(float64(actual)) & np.isfinite(float64(plain))
    if not finite.any():
        return 0.0
    errors = [np.sqrt(np.mean((float64(array)[finite] - value[finite]) ** 2)) for array in (actual, plain)]
    return float(errors[0] / errors[1]) if errors[1] > 0 else float("inf") if errors[0] > 0 else 0.0
