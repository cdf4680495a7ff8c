"""Comparing results: with the oracle by a derived bound, or with one another."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..bounds import Bound
from ..call import DTYPES, Call, Result
from ..outcome import Outcome, failed, passed, undecidable

# Outputs that are float32 whatever the dtype of the call.
FLOAT32_OUTPUTS = frozenset({"lse"})


@dataclass(frozen=True)
class Worst:
    """The element with the largest error/bound of one output."""

    output: str
    index: tuple[int, ...]
    actual: float
    expected: float
    limit: float
    headroom: float

    def __str__(self) -> str:
        place = ",".join(map(str, self.index))
        return (
            f"{self.output}[{place}] = {self.actual:.9g}, expected {self.expected:.9g} within {self.limit:.3g} "
            f"(error/bound {self.headroom:.3g})"
        )

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return {
            "output": self.output,
            "index": list(self.index),
            "actual": _plain(self.actual),
            "expected": _plain(self.expected),
            "limit": _plain(self.limit),
            "headroom": _plain(self.headroom),
        }


def float64(array: np.ndarray) -> np.ndarray:
    """Any array as float64 (bfloat16 included)."""
    return np.asarray(array).astype(np.float64)


def shape_and_dtype_fault(call: Call, name: str, actual: np.ndarray, shape: tuple[int, ...]) -> str | None:
    """What is wrong with the shape or dtype of an output, or ``None``."""
    if tuple(actual.shape) != tuple(shape):
        return f"{name} has shape {tuple(actual.shape)}, expected {tuple(shape)}"
    expected = np.dtype(np.float32) if name in FLOAT32_OUTPUTS else DTYPES[call.dtype]
    if call.op.startswith("attention") and name not in ("mask", "bias", "sinks") and actual.dtype != expected:
        return f"{name} has dtype {actual.dtype}, expected {expected}"
    return None


def worst_element(name: str, actual: np.ndarray, bound: Bound) -> Worst | None:
    """The element of an output that stands worst against its bound (``None`` for an empty output)."""
    headroom = bound.headroom(actual)
    if headroom.size == 0:
        return None
    flat = int(np.argmax(np.where(np.isnan(headroom), np.inf, headroom)))
    index = tuple(int(i) for i in np.unravel_index(flat, headroom.shape))
    value = float(float64(actual)[index])
    return Worst(name, index, value, float(bound.value[index]), float(bound.limit[index]), float(headroom[index]))


def against_bounds(call: Call, result: Result, bounds: Mapping[str, Bound], outputs: Iterable[str]) -> Outcome:
    """Hold every named output to its bound: the verdict, with the worst element in the message."""
    worsts: list[Worst] = []
    for name in outputs:
        bound, actual = bounds[name], result.outputs[name]
        fault = shape_and_dtype_fault(call, name, actual, bound.value.shape)
        if fault:
            return failed(fault)
        if not bool(np.all(bound.decidable)):
            return undecidable(f"the bound of {name} says nothing for {int(np.sum(~bound.decidable))} of its elements")
        worst = worst_element(name, actual, bound)
        if worst is not None:
            worsts.append(worst)
    if not worsts:
        return passed("nothing to compare: the outputs are empty")
    top = max(worsts, key=lambda worst: worst.headroom if worst.headroom == worst.headroom else np.inf)
    details = {"worst": top.as_dict()}
    if not top.headroom <= 1:
        return failed(str(top), headroom=top.headroom, details=details)
    return passed(headroom=top.headroom, details=details)


def within_sum(name: str, one: np.ndarray, other: np.ndarray, limit: np.ndarray) -> Outcome:
    """Two results that stand for the same numbers may differ by the sum of their bounds."""
    if one.shape != other.shape:
        return failed(f"{name} has shape {tuple(one.shape)} in one call and {tuple(other.shape)} in the other")
    a, b = float64(one), float64(other)
    if a.size == 0:
        return passed()
    with np.errstate(invalid="ignore", divide="ignore"):
        error = np.abs(a - b)
        ratio = np.where(a == b, 0.0, error / limit)
    ratio = np.where(np.isnan(ratio), np.inf, ratio)
    index = tuple(int(i) for i in np.unravel_index(int(np.argmax(ratio)), ratio.shape))
    worst = float(ratio[index])
    if not worst <= 1:
        return failed(
            f"{name}[{','.join(map(str, index))}] is {a[index]:.9g} in one call and {b[index]:.9g} in the other, "
            f"allowed difference {float(np.broadcast_to(limit, ratio.shape)[index]):.3g}",
            headroom=worst,
        )
    return passed(headroom=worst)


def first_difference(name: str, one: np.ndarray, other: np.ndarray, where: np.ndarray | None = None) -> str | None:
    """The first element in which two arrays are not bit for bit the same (NaN equals NaN), or ``None``."""
    if one.shape != other.shape:
        return f"{name} has shapes {tuple(one.shape)} and {tuple(other.shape)}"
    a, b = float64(one), float64(other)
    differs = ~((a == b) | (np.isnan(a) & np.isnan(b)))
    if where is not None:
        differs &= where
    if not differs.any():
        return None
    index = tuple(int(i) for i in np.argwhere(differs)[0])
    return f"{name}[{','.join(map(str, index))}] was {a[index]:.9g} and became {b[index]:.9g}"


def merge(outcomes: Iterable[Outcome]) -> Outcome:
    """The first outcome that does not pass; otherwise a pass with the largest headroom."""
    best: Outcome | None = None
    for outcome in outcomes:
        if outcome.verdict not in ("pass", "weak"):
            return outcome
        if best is None or (outcome.headroom or 0.0) > (best.headroom or 0.0) or outcome.verdict == "weak":
            best = outcome
    return best if best is not None else passed()


def _plain(value: float) -> float | str:
    return float(value) if np.isfinite(value) else str(value)
