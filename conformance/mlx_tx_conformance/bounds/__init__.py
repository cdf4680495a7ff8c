"""A-priori error bounds: how far from the float64 oracle a correct implementation may be, element by element.

A bound is derived from shapes and data, for a declared class of roundings; nothing here is a chosen tolerance. The
derivation of every constant is in ``conformance/BOUNDS.md``.
"""

from .bound import Bound
from .classes import PrecisionClass, precision_class
from .registry import bound_call, bounded_ops
from .scale_fit import ScaleFit, score_test
from .units import UNITS, Unit, gamma
from .weakness import Weakness, quality, weak

__all__ = [
    "UNITS",
    "Bound",
    "PrecisionClass",
    "ScaleFit",
    "Unit",
    "Weakness",
    "bound_call",
    "bounded_ops",
    "gamma",
    "precision_class",
    "quality",
    "score_test",
    "weak",
]
