"""Bounds of attention's output and log-sum-exp.

With eta the relative error of a weight before normalisation, the output errs by

    sum p eta (v - o) / (1 + sum p eta)

so errors of scores and exponentials enter through |v - o|: they vanish where all values agree. Roundings of the
weights and of accumulations enter through |v|. Derivations: ``conformance/BOUNDS.md``, sections 3 and 4.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ..call import Call
from .bound import Bound, finish
from .classes import PrecisionClass
from .problem import AttentionProblem, Tile, attention_problem
from .rows import centred_magnitude, centred_square, largest_prefix
from .scores import RowFacts, row_facts
from .units import EXP_FLOOR, LAMBDA, U, gamma, unit


@dataclass(frozen=True)
class RowErrors:
    """Errors of one tile before rounding: output ``[heads, rows, D_v]``, log-sum-exp ``[heads, rows, 1]``."""

    out_det: np.ndarray
    out_prob: np.ndarray
    lse_det: np.ndarray
    lse_prob: np.ndarray


def attention_bounds(
    call: Call, precision: PrecisionClass, input_error: Mapping[str, np.ndarray] | None = None
) -> dict[str, Bound]:
    """Bounds of ``out`` ``[B, N_q, T_q, D_v]`` and ``lse`` ``[B, N_q, T_q]`` of an attention call."""
    return bounds_of_problem(attention_problem(call, input_error), precision)


def bounds_of_problem(problem: AttentionProblem, precision: PrecisionClass) -> dict[str, Bound]:
    """The same for a problem whose stages are at hand."""
    stages = problem.stages
    out = (np.zeros_like(stages.out), np.zeros_like(stages.out))
    lse = (np.zeros_like(stages.lse), np.zeros_like(stages.lse))
    # Live NaN and infinities (of the inputs, or of an incoming error) end as elements that are not decidable.
    with np.errstate(invalid="ignore", over="ignore"):
        for tile in problem.tiles():
            errors = row_errors(problem, tile, row_facts(problem, tile, precision), precision)
            place = (tile.batch, tile.head, tile.rows)
            out[0][place], out[1][place] = errors.out_det, errors.out_prob
            lse[0][place], lse[1][place] = errors.lse_det[..., 0], errors.lse_prob[..., 0]
    # A row that sees no key gives exactly 0, and -inf for its log-sum-exp unless it has a sink.
    unseen = ~np.any(stages.allowed, axis=-1, keepdims=True)
    return {
        "out": finish(stages.out, *out, problem.dtype, zero=unseen),
        "lse": finish(stages.lse, *lse, "float32", rounded=False),
    }


def row_errors(problem: AttentionProblem, tile: Tile, facts: RowFacts, precision: PrecisionClass) -> RowErrors:
    """Both forms of the error of a tile, infinite where they say nothing (sum p eta >= 1)."""
    kind = unit(problem.dtype)
    p, v, o = facts.p, facts.v, facts.o
    abs_v, abs_o = np.abs(v), np.abs(o)
    sum_abs = p @ abs_v

    weights = [p * facts.eta_det]
    if precision.rounds_weights:
        weights.append(p)
    if facts.eta_in is not None:
        weights.append(p * facts.eta_in)
    centred = centred_magnitude(np.stack(weights, axis=1), v, o)

    # What both forms share: flushed exponentials, weights that underflow in the dtype, partials kept in the dtype.
    common = np.minimum(p, EXP_FLOOR / facts.total) @ abs_v
    if precision.rounds_weights:
        common = common + np.minimum(p, kind.tau) @ abs_v
    if precision.rounds_partials:
        common = common + kind.u * sum_abs + kind.tau
    incoming_v = None
    if "v" in problem.input_error:
        incoming_v = problem.shared(problem.input_error["v"], tile)

    # Deterministic form.
    sums = gamma(facts.additions)
    of_sink = facts.sink_weight * facts.sink_eta * abs_o
    shifts = centred[:, 0] + of_sink
    if incoming_v is not None:
        shifts = shifts + (p * (1.0 + facts.eta_det)) @ incoming_v
    det = _over(shifts, facts.pe_det) + sums * (sum_abs + abs_o) + 4.0 * U * abs_o + common
    if precision.rounds_weights:
        det = det + kind.u * np.maximum(sum_abs, centred[:, 1])

    # Probabilistic form: independent errors in root-sum-square, coherent ones added.
    p_square = p * p
    mu_p_square = facts.mu.score * p_square
    variance = centred_square(mu_p_square * facts.eta_prob**2, v, o) + of_sink**2
    v_square = mu_p_square @ (v * v)
    prefix = np.maximum(largest_prefix(p, v), abs_o)
    additions = facts.additions * facts.mean_added
    variance += U * U * additions * (prefix * prefix + v_square + o * o)
    if precision.rounds_weights:
        rounded = facts.mu.stored * p_square
        variance += kind.u**2 * (rounded @ (v * v) + centred_square(rounded, v, o))
    p_s = p * facts.s
    coherent = 3.0 * U * np.abs(p_s @ v - p_s.sum(-1, keepdims=True) * o)
    prob = LAMBDA * np.sqrt(variance) + coherent
    if facts.eta_in is not None:
        prob = prob + centred[:, -1]
    if incoming_v is not None:
        prob = prob + (p if facts.eta_in is None else p * (1.0 + facts.eta_in)) @ incoming_v
    prob = _over(prob, facts.pe_prob) + 4.0 * U * abs_o + common
    return RowErrors(det, prob, *_lse_errors(facts, additions, np.abs(p_s.sum(-1, keepdims=True)), mu_p_square))


def _lse_errors(
    facts: RowFacts, additions: np.ndarray, mean_score: np.ndarray, mu_p_square: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """L = m + ln l, both forms: the relative error of l, and the roundings of m, ln l and their sum."""
    lse = np.where(facts.empty, 0.0, facts.lse)
    rounding = U * (3.0 * np.abs(facts.peak) + 6.0 * np.abs(facts.log_total) + np.abs(lse) + 4.0)
    det = _over(facts.pe_det, facts.pe_det) + gamma(facts.additions) + rounding
    variance = (mu_p_square * facts.eta_prob**2).sum(-1, keepdims=True) + U * U * additions
    variance = variance + (facts.sink_weight * facts.sink_eta) ** 2
    prob = _over(LAMBDA * np.sqrt(variance) + 3.0 * U * mean_score + facts.pe_in, facts.pe_prob) + rounding
    return det, prob


def _over(error: np.ndarray, pe: np.ndarray) -> np.ndarray:
    """error / (1 - pe), infinite where pe reaches 1."""
    return np.where(pe < 1.0, error / np.maximum(1.0 - pe, 1e-300), np.inf)
