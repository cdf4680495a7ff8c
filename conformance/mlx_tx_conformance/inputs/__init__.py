"""Inputs of cases: recipes, adversarial designs, and the call they make; deterministic to the bit."""

from .build import build_call, fingerprint, rng_for
from .designs import DESIGNS, Design, Setting, find_design

__all__ = ["DESIGNS", "Design", "Setting", "build_call", "find_design", "fingerprint", "rng_for"]
