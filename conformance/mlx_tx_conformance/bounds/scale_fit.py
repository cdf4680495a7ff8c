"""A fit that finds a wrong scale below the element-wise bound, and names it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ..call import Call, Result
from .bound import Bound
from .problem import AttentionProblem, attention_problem, float64


@dataclass(frozen=True)
class ScaleFit:
    """The error looks like that of a scale wrong by the factor 1 + ``eps``, ``z`` standard deviations from none.

    The deviation is computed with every bound taken as a standard deviation, which is conservative: correct code
    stays below 1 on data with independent channels.
    """

    z: float
    eps: float


def score_test(call: Call, result: Result, bound: Mapping[str, Bound]) -> ScaleFit:
    """Weighted least squares of the error of ``out`` along its derivative by the logarithm of the scale.

    The derivative is sum p r' v - o sum p r' with r' = r sech^2(r/softcap); weights are 1/limit^2. Use data whose
    channels are independent (not a balanced sink, whose channels round together). z = eps = 0 where the output does
    not depend on the scale.
    """
    problem = attention_problem(call)
    direction = _scale_derivative(problem)
    held = bound["out"]
    error = float64(result.outputs["out"]) - held.value
    usable = np.isfinite(error) & (held.limit > 0) & np.isfinite(held.limit)
    weight = np.where(usable, 1.0 / np.where(usable, held.limit, 1.0) ** 2, 0.0)
    information = float((weight * direction * direction).sum())
    if information == 0.0:
        return ScaleFit(0.0, 0.0)
    eps = float((weight * direction * np.where(usable, error, 0.0)).sum()) / information
    return ScaleFit(eps * float(np.sqrt(information)), eps)


def _scale_derivative(problem: AttentionProblem) -> np.ndarray:
    """d out / d ln scale, ``[B, N_q, T_q, D_v]``."""
    stages = problem.stages
    direction = np.zeros_like(stages.out)
    for tile in problem.tiles():
        allowed, p = tile.of(stages.allowed), tile.of(stages.weights)
        r = np.where(allowed, tile.of(stages.scores), 0.0)
        if problem.softcap:
            r = r / np.cosh(np.minimum(np.abs(r / problem.softcap), 300.0)) ** 2
        v, o = problem.shared(problem.v, tile), np.nan_to_num(tile.of(stages.out))
        p_r = p * r
        direction[tile.batch, tile.head, tile.rows] = p_r @ v - p_r.sum(-1, keepdims=True) * o
    return direction
