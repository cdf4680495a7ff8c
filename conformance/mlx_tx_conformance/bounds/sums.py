"""Errors of sums over many terms, collected tile by tile."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from .units import LAMBDA, U, gamma


@dataclass(frozen=True)
class Parts:
    """What the error of a sum y = sum x is made of; arrays of the sum's shape.

    ``det``: sum of bounds of the terms' errors. ``variance``: sum of their variances, coherent errors included.
    ``common``: part of either form that is neither. ``magnitude``: sum |x|. ``square``: sum x^2.
    """

    det: np.ndarray
    variance: np.ndarray
    common: np.ndarray | float
    magnitude: np.ndarray
    square: np.ndarray

    def times(self, factor: float) -> Parts:
        """The parts of ``factor`` times the sum."""
        size = abs(factor)
        square = factor * factor
        return Parts(
            self.det * size, self.variance * square, self.common * size, self.magnitude * size, self.square * square
        )

    def errors(
        self, value: np.ndarray, additions: float, alike: np.ndarray | float = 1.0
    ) -> tuple[np.ndarray, np.ndarray]:
        """(deterministic, probabilistic) error of ``value``, a float32 sum with that many additions.

        Deterministic: the terms' errors and gamma(n) sum |x|. Probabilistic: lambda times the root of their variances
        and of the second moment of the partial sums over orders, u^2 (n/3 y^2 + (n/6 + 2) sum x^2), and of (2 u y)^2;
        there n counts every addition ``alike`` times, as often as others round the same way.
        """
        det = self.det + gamma(additions) * self.magnitude + self.common
        n = additions * alike
        moment = U * U * (n / 3 * value**2 + (n / 6 + 2) * self.square) + (2.0 * U * value) ** 2
        return det, LAMBDA * np.sqrt(self.variance + moment) + self.common


class Sums:
    """Parts of sums whose terms come in several tiles."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.parts = Parts(*(np.zeros(shape) for _ in fields(Parts)))

    def add(self, place: tuple, parts: Parts) -> None:
        """Add the parts of some terms at ``place``, an index of the sums' array."""
        for part in fields(Parts):
            getattr(self.parts, part.name)[place] += getattr(parts, part.name)
