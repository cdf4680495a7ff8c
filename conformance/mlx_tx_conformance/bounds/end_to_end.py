"""How far the end of a whole model may be from the oracle's: an estimate by perturbed runs, for a sanity check.

Worst-case propagation says nothing after a few products. Instead the oracle runs several times with every stage
perturbed as a correct implementation may perturb it; the spread of the results is what an error is compared with.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..oracle.record import Recorder
from .bound import Bound
from .classes import PrecisionClass
from .stages import Model, stage_bounds
from .units import LAMBDA, unit

RUNS = 8
# A correct model stays below both: largest error over 6 sigma, and ratio of root mean squares.
SIGMAS = 6.0
RMS_RATIO = 1.25


@dataclass(frozen=True)
class Spread:
    """The oracle's result ``value``, and by element the deviation of perturbed ones, ``sigma``."""

    value: np.ndarray
    sigma: np.ndarray
    roundoff: float

    @property
    def limit(self) -> np.ndarray:
        """6 sigma and one rounding of the result."""
        return SIGMAS * self.sigma + self.roundoff * np.abs(self.value)

    def worst(self, actual: np.ndarray) -> float:
        """Largest error over the limit."""
        error = np.abs(np.asarray(actual).astype(np.float64) - self.value)
        return float(np.max(error / self.limit, initial=0.0))

    def rms_ratio(self, actual: np.ndarray) -> float:
        """Root mean square of the error over that of sigma."""
        error = np.asarray(actual).astype(np.float64) - self.value
        return float(np.sqrt(np.mean(error**2)) / np.sqrt(np.mean(self.sigma**2)))


class _Noisy(Recorder):
    """A recorder that hands on noisy stages: a uniform rounding, and normal noise for the rest of a bound."""

    def __init__(self, bounds: Mapping[str, Bound], roundoff: float, rng: np.random.Generator) -> None:
        super().__init__()
        self.bounds, self.roundoff, self.rng = bounds, roundoff, rng

    def __call__(
        self, name: str, value: NDArray[np.float64], op: str, *rest: Any, **options: Any
    ) -> NDArray[np.float64]:
        super().__call__(name, value, op, *rest, **options)
        if op == "routing":
            return value
        size = np.abs(value)
        inside = np.maximum(self.bounds[name].limit - self.roundoff * size, 0.0) / LAMBDA
        inside = np.where(np.isfinite(inside), inside, 0.0)
        uniform = self.roundoff * size * self.rng.uniform(-1, 1, value.shape)
        self.values[name] = value + uniform + inside * self.rng.standard_normal(value.shape)
        return self.values[name]


def end_to_end(
    model: Model, of: str, dtype: str, precision: PrecisionClass, *, runs: int = RUNS, seed: int = 0
) -> Spread:
    """The spread of stage ``of``. Sigma is floored by the root mean square of its row (the last axis)."""
    clean = model.run(Recorder())
    bounds = stage_bounds(model, clean.values, dtype, precision)
    roundoff = unit(dtype).u
    value = clean.values[of]
    square = np.zeros_like(value)
    for n in range(runs):
        rng = np.random.Generator(np.random.PCG64([seed, n]))
        noisy = model.run(_Noisy(bounds, roundoff, rng)).values[of]
        square += (noisy - value) ** 2
    sigma = np.sqrt(square / runs)
    floor = np.sqrt(np.mean(square / runs, axis=-1, keepdims=True))
    return Spread(value, np.maximum(sigma, floor), roundoff)
