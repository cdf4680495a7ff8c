"""A bound: the oracle's value of every element and how far from it a correct result may lie."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from .units import unit


@dataclass(frozen=True)
class Bound:
    """Element-wise a-priori error bound of one output.

    ``value``, ``det`` and ``prob`` are float64 of the output's shape: the oracle's value, the deterministic bound
    (no assumption beyond the declared roundings) and the probabilistic one (independent roundings, 4 standard
    deviations). ``decidable`` is False where the data amplify roundings so much that neither says anything.
    ``dtype`` is that of the output (it sets where a result overflows).
    """

    value: np.ndarray
    det: np.ndarray
    prob: np.ndarray
    decidable: np.ndarray
    dtype: str = "float32"

    @cached_property
    def limit(self) -> np.ndarray:
        """The bound that decides: the smaller of the two forms."""
        return np.fmin(self.det, self.prob)

    def headroom(self, actual: np.ndarray) -> np.ndarray:
        """Error/limit of every element, float64; at most 1 is right.

        Where the limit is 0 (a row that sees no key) only the exact value counts, -inf for its log-sum-exp: 0 or
        inf. NaN is never right: inf. An infinity of the right sign is right where value and limit reach the
        overflow threshold of the dtype, and where the oracle's value is that infinity. Elements that are not
        decidable have their error over the limit all the same (0 where that is infinite): read ``decidable`` too.
        Raises ``ValueError`` for an array of another shape.
        """
        actual64 = np.asarray(actual).astype(np.float64)
        if actual64.shape != self.value.shape:
            raise ValueError(f"[headroom] actual must have shape {self.value.shape}; got {actual64.shape}")
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            error = np.abs(actual64 - self.value)
            ratio = np.where(actual64 == self.value, 0.0, error / self.limit)
            infinite = np.isinf(actual64) & np.isfinite(self.value)
            if infinite.any():
                same_sign = np.sign(actual64) == np.sign(self.value)
                missing = np.maximum(unit(self.dtype).overflow - np.abs(self.value), 0.0) / self.limit
                ratio = np.where(infinite, np.where(same_sign & (missing <= 1), missing, np.inf), ratio)
        return np.where(np.isnan(actual64) | np.isnan(ratio), np.inf, ratio)


def finish(
    value: np.ndarray,
    det: np.ndarray,
    prob: np.ndarray,
    dtype: str,
    *,
    rounded: bool = True,
    zero: np.ndarray | None = None,
) -> Bound:
    """Close a bound: add the rounding of the result and mark what is decidable.

    ``det`` and ``prob`` are the errors before the result is rounded to ``dtype``; infinities in them mean that the
    form says nothing there. ``rounded=False`` for a result that is not rounded further (a float32 log-sum-exp).
    Elements in ``zero`` (broadcast to the shape) must come out exactly as the oracle has them.
    """
    kind = unit(dtype)
    finite = np.isfinite(value)
    if rounded:
        magnitude = np.abs(np.where(finite, value, 0.0))
        det = det + kind.u * (magnitude + det) + kind.tau
        prob = prob + kind.u * (magnitude + prob) + kind.tau
    exact = ~finite & ~np.isnan(value)
    if zero is not None:
        exact = exact | np.broadcast_to(zero, value.shape)
    det, prob = np.where(exact, 0.0, det), np.where(exact, 0.0, prob)
    decidable = exact | (finite & (np.isfinite(det) | np.isfinite(prob)))
    det, prob = (np.where(np.isnan(form), np.inf, form) for form in (det, prob))
    return Bound(value, det, prob, decidable, dtype)
