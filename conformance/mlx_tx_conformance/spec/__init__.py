"""The spec format: YAML clause files, expanded to cases.

``load_spec()`` reads every clause; ``Spec.cases`` are the calls to pose and what is checked of them. Nothing here
imports MLX, runs a target or computes an expected value.
"""

from .errors import Finding, SpecError
from .expand import at, changed, expand
from .expr import ExpressionError, evaluate
from .loader import Spec, load_spec
from .model import Case, Clause, Source, Sources

__all__ = [
    "Case",
    "Clause",
    "ExpressionError",
    "Finding",
    "Source",
    "Sources",
    "Spec",
    "SpecError",
    "at",
    "changed",
    "evaluate",
    "expand",
    "load_spec",
]
