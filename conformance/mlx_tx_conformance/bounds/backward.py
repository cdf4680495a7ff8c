"""The row-wise half of a backward pass: what dP, Dl and dS are, and how they err.

dP = dO V^T, Dl = sum dO o - dL, p = exp(s - lse), dS = p (dP - Dl), dR = dS sech^2(r/c). Derivation:
``conformance/BOUNDS.md``, section 5.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .attention import row_errors
from .classes import PrecisionClass
from .problem import AttentionProblem, Tile
from .rows import alike
from .scores import TANH_ULPS, RowFacts, row_facts
from .units import EXP_FLOOR, LAMBDA, U, gamma, unit


@dataclass(frozen=True)
class Backward:
    """One tile of the backward pass: ``[heads, rows, T_kv]``, figures of a row ``[heads, rows, 1]``.

    ``d_biased`` is dS, ``d_scores`` dR, ``delta`` Dl. ``*_det`` are bounds of errors. ``own_*`` are variances of the
    errors of dS and dR that are independent from key to key; ``delta_sd`` and ``lse_sd`` are standard deviations of
    errors that a whole row shares. ``rho_*`` are relative errors of a recomputed weight. ``floor`` is the largest
    weight that may be flushed to zero, ``flushed`` what that takes from dS.
    """

    facts: RowFacts
    d_out: np.ndarray
    d_biased: np.ndarray
    d_scores: np.ndarray
    slope: np.ndarray | float
    delta: np.ndarray
    delta_det: np.ndarray
    delta_sd: np.ndarray
    rho_det: np.ndarray
    rho_prob: np.ndarray
    lse_det: np.ndarray
    lse_sd: np.ndarray
    d_biased_det: np.ndarray
    d_scores_det: np.ndarray
    own_biased: np.ndarray
    own_scores: np.ndarray
    floor: np.ndarray
    flushed: np.ndarray


def backward(
    problem: AttentionProblem, tile: Tile, precision: PrecisionClass, d_out: np.ndarray, d_lse: np.ndarray
) -> Backward:
    """The backward pass of one tile; ``d_out`` ``[B, N_q, T_q, D_v]`` and ``d_lse`` ``[B, N_q, T_q]``."""
    facts = row_facts(problem, tile, precision)
    kind = unit(problem.dtype)
    p, v, o = facts.p, facts.v, facts.o
    errors = row_errors(problem, tile, facts, precision)
    lse_det, lse_prob = errors.lse_det, errors.lse_prob
    dO, dL = tile.of(d_out), tile.of(d_lse)[..., None]
    abs_dO, abs_o = np.abs(dO), np.abs(o)
    v_t = np.swapaxes(v, -1, -2)
    E = v.shape[-1]

    live = p > 0
    dP = np.where(live, dO @ v_t, 0.0)
    out_delta = (dO * o).sum(-1, keepdims=True)
    delta = out_delta - dL
    dS = p * (dP - delta)
    distance = np.where(live, np.abs(dP - delta), 0.0)
    slope = facts.error.cap_slope
    dR = dS * slope
    cap_error: np.ndarray | float = 0.0
    if problem.softcap:
        cap_error = np.abs(dS) * (2.0 * facts.error.det / problem.softcap + TANH_ULPS * U)

    # Deterministic: products of length D_v, the stored output, and Dl as either sum dO o or sum p dP.
    dP_det = gamma(E) * (abs_dO @ np.abs(v_t)) + _incoming_dP(problem, tile, abs_dO, v_t)
    stored = errors.out_det + kind.u * (abs_o + errors.out_det) + kind.tau
    delta_det = (abs_dO * stored).sum(-1, keepdims=True) + gamma(E + 2) * (abs_dO * abs_o).sum(-1, keepdims=True)
    delta_det = delta_det + (p * dP_det).sum(-1, keepdims=True) + U * np.abs(dL)
    if "d_out" in problem.input_error:
        delta_det = delta_det + (tile.of(problem.input_error["d_out"]) * (abs_o + stored)).sum(-1, keepdims=True)
    rho_det = np.where(live, facts.eta_det + lse_det, 0.0)
    rho_prob = np.where(live, facts.eta_prob, 0.0)
    floor = np.minimum(p, EXP_FLOOR / facts.total)
    flushed = floor * distance
    d_biased_det = rho_det * p * distance + p * (1.0 + rho_det) * (dP_det + delta_det) + 4.0 * U * np.abs(dS)

    # Probabilistic: the same errors as standard deviations, in root-sum-square.
    dP_sd = U * np.sqrt(E / 3 * dP**2 + (E / 6 + 2) * ((dO * dO) @ (v_t * v_t)))
    own = (rho_prob * p * distance) ** 2 + (p * dP_sd) ** 2 + (4.0 * U * dS) ** 2
    delta_sd = _delta_sd(problem, facts, precision, errors.out_prob, dO, dP, out_delta, distance, dP_sd)
    return Backward(
        facts=facts,
        d_out=dO,
        d_biased=dS,
        d_scores=dR,
        slope=slope,
        delta=delta,
        delta_det=delta_det,
        delta_sd=delta_sd + U * np.abs(dL),
        rho_det=rho_det,
        rho_prob=rho_prob,
        lse_det=lse_det,
        lse_sd=lse_prob / LAMBDA,
        d_biased_det=d_biased_det,
        d_scores_det=d_biased_det * slope + cap_error,
        own_biased=own,
        own_scores=own * slope**2 + cap_error**2,
        floor=floor,
        flushed=flushed,
    )


def _delta_sd(
    problem: AttentionProblem,
    facts: RowFacts,
    precision: PrecisionClass,
    out_prob: np.ndarray,
    dO: np.ndarray,
    dP: np.ndarray,
    out_delta: np.ndarray,
    distance: np.ndarray,
    dP_sd: np.ndarray,
) -> np.ndarray:
    """Standard deviation of Dl: weights, their rounding, stored output, and the two ways to sum it."""
    kind = unit(problem.dtype)
    p, o = facts.p, facts.o
    E = o.shape[-1]

    def root(square: np.ndarray) -> np.ndarray:
        return np.sqrt(square.sum(-1, keepdims=True))

    # A rounding to the dtype is not rarely near half an ulp: it stays whole. The rest is a bound of 4 deviations.
    stored = ((out_prob * (1.0 + kind.u) + kind.tau) / LAMBDA) ** 2 + (kind.u * o) ** 2
    # Channels with the same value in a row (V constant across channels) err together.
    total = root(alike(o) * dO * dO * stored) + root(facts.mu.score * (p * facts.eta_prob * distance) ** 2)
    # A whole row shares this sum: E/2 where an average over sums would take E/6 (19 of 20 random walks stay below).
    total = total + U * np.sqrt(E / 3 * out_delta**2 + (E / 2 + 2) * (dO * dO * o * o).sum(-1, keepdims=True))
    total = total + root((p * dP_sd) ** 2)
    if precision.rounds_weights:
        total = total + kind.u * root(facts.mu.stored * (p * dP) ** 2)
    return total


def _incoming_dP(problem: AttentionProblem, tile: Tile, abs_dO: np.ndarray, v_t: np.ndarray) -> np.ndarray | float:
    """B_dO |V|^T + |dO| B_V^T + B_dO B_V^T."""
    errors = problem.input_error
    total: np.ndarray | float = 0.0
    size = abs_dO
    if "d_out" in errors:
        total = tile.of(errors["d_out"]) @ np.abs(v_t)
        size = abs_dO + tile.of(errors["d_out"])
    if "v" in errors:
        total = total + size @ np.swapaxes(problem.shared(errors["v"], tile), -1, -2)
    return total
