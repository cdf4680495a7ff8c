"""Adversarial inputs: ways to make q, k and v that show a fault whatever the tolerance."""

from . import boundary, exact, scores, values
from .setting import DESIGNS, Design, Setting, find_design

__all__ = ["DESIGNS", "Design", "Setting", "boundary", "exact", "find_design", "scores", "values"]
