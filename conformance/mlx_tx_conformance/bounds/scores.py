"""Errors of attention scores and weights, row by row: what the bounds of outputs and gradients are made of.

With r = scale q.k, s the biased score, m the row's maximum and p = exp(s - m)/l, an implementation computes
exp(s - m) with the relative error eta = expm1(e) + c u, where e is the error of the exponent s - m. Three parts of e
are kept apart: its deterministic bound, a standard deviation of it, and what comes in with q and k.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .classes import PrecisionClass
from .problem import AttentionProblem, Tile
from .rows import Multiplicities, effective_additions, multiplicities, rescalings
from .units import U, gamma, unit

# Relative error in units of u of an exponential at argument 0, and of a tanh (at most 4 ulp each, an ulp is <= 2 u).
EXP_ULPS = 8.0
TANH_ULPS = 8.0

# An exponent that errs by this much is worthless; keeps exp of it finite.
_HOPELESS = 50.0


@dataclass(frozen=True)
class ScoreError:
    """Errors of the exponent, ``[heads, rows, T_kv]`` each: bound, standard deviation, and what q and k bring in.

    ``cap_slope`` is the derivative of the soft-cap, sech^2(r/c) (1 without one).
    """

    det: np.ndarray
    prob: np.ndarray
    incoming: np.ndarray | None
    cap_slope: np.ndarray | float


@dataclass(frozen=True)
class RowFacts:
    """One tile of an attention call: weights, their relative errors, and what decides how sums of them err.

    Shapes: ``[heads, rows, T_kv]`` for scores and weights, ``[heads, rows, 1]`` for figures of a row. ``eta_*`` are
    relative errors of a weight before normalisation; ``pe_*`` their sum over the row, the sink included.
    """

    q: np.ndarray
    k: np.ndarray
    v: np.ndarray
    o: np.ndarray
    p: np.ndarray
    s: np.ndarray
    peak: np.ndarray
    log_total: np.ndarray
    total: np.ndarray
    empty: np.ndarray
    lse: np.ndarray
    sink: np.ndarray | None
    sink_weight: np.ndarray
    sink_eta: np.ndarray
    error: ScoreError
    eta_det: np.ndarray
    eta_prob: np.ndarray
    eta_in: np.ndarray | None
    pe_det: np.ndarray
    pe_prob: np.ndarray
    pe_in: np.ndarray
    additions: np.ndarray
    mu: Multiplicities
    mean_added: np.ndarray


def score_error(
    problem: AttentionProblem, tile: Tile, precision: PrecisionClass, s: np.ndarray, gap: np.ndarray, live: np.ndarray
) -> ScoreError:
    """Error of the exponent for every key of a tile.

    Deterministic: gamma(D + 2) scale sum |q||k|. Standard deviation: u sqrt((D/3 + 2) r^2 + (D/6 + 2) scale^2
    sum q^2 k^2). Soft-cap c: e min(1, sech^2(r/c) + e/c) + 8 u c + 2 u |r| sech^2(r/c). Terms added to the score,
    t_1 .. t_n: u |s| + n u (|capped| + sum |t|). Exponent: u (2 |s| + g (m - s)).
    """
    q, k = tile.of(problem.q), problem.shared(problem.k, tile)
    scale, D = abs(problem.stages.scale), q.shape[-1]
    r = np.where(live, tile.of(problem.stages.scores), 0.0)
    k_t = np.swapaxes(k, -1, -2)
    abs_q, abs_k_t = np.abs(q), np.abs(k_t)
    det = gamma(D + 2) * scale * (abs_q @ abs_k_t)
    square = (q * q) @ (k_t * k_t)
    prob = U * np.sqrt((D / 3 + 2) * r * r + (D / 6 + 2) * scale * scale * square)
    incoming = _incoming(problem, tile, scale, abs_q, abs_k_t)
    extra = U * (2.0 * np.abs(s) + precision.exp_slope * gap)
    slope: np.ndarray | float = 1.0
    if problem.softcap:
        cap = problem.softcap
        slope = 1.0 - np.tanh(r / cap) ** 2
        rounding = TANH_ULPS * U * cap + 2.0 * U * np.abs(r) * slope
        if incoming is not None:
            det = det + incoming
            incoming = incoming * np.minimum(1.0, slope + incoming / cap)
        det = det * np.minimum(1.0, slope + det / cap)
        prob = prob * np.minimum(1.0, slope + prob / cap)
        extra = extra + rounding
    elif incoming is not None:
        det = det + incoming
    if problem.terms:
        capped = np.where(live, tile.of(problem.stages.capped), 0.0)
        terms = [tile.of(term) for term in problem.terms]
        size = np.abs(capped)
        for term in terms:
            size = size + term
        extra = extra + U * (np.abs(s) + len(terms) * size) + problem.term_error * U * terms[0]
    return ScoreError(det + extra, prob + extra, incoming, slope)


def _incoming(
    problem: AttentionProblem, tile: Tile, scale: float, abs_q: np.ndarray, abs_k_t: np.ndarray
) -> np.ndarray | None:
    """scale (B_q |k| + |q| B_k + B_q B_k) summed over channels, or ``None`` where q and k are exact."""
    errors = problem.input_error
    total: np.ndarray | None = None
    if "q" in errors:
        total = tile.of(errors["q"]) @ abs_k_t
    if "k" in errors:
        k_error = np.swapaxes(problem.shared(errors["k"], tile), -1, -2)
        size = abs_q + tile.of(errors["q"]) if "q" in errors else abs_q
        total = size @ k_error if total is None else total + size @ k_error
    return None if total is None else scale * total


def row_facts(problem: AttentionProblem, tile: Tile, precision: PrecisionClass) -> RowFacts:
    """Everything about one tile that bounds of its output, log-sum-exp and gradients need."""
    stages = problem.stages
    allowed, p = tile.of(stages.allowed), tile.of(stages.weights)
    s = np.where(allowed, tile.of(stages.biased), 0.0)
    lse = tile.of(stages.lse)[..., None]
    sink_weight = tile.of(stages.sink_weight)[..., None]
    peak = np.where(allowed, s, -np.inf).max(-1, keepdims=True, initial=-np.inf)
    sink = None
    if problem.sinks is not None:
        sink = problem.sinks[tile.head][:, None, None]
        peak = np.maximum(peak, sink)
    empty = ~np.isfinite(peak)
    peak = np.where(empty, 0.0, peak)
    log_total = np.where(empty, 0.0, lse - peak)
    gap = np.where(allowed, peak - s, 0.0)

    error = score_error(problem, tile, precision, s, gap, allowed)
    live = p > 0
    records = rescalings(s, allowed)
    eta_det = np.where(live, np.expm1(np.minimum(error.det, _HOPELESS)) + EXP_ULPS * U, 0.0)
    # Every rescaling multiplies by an exponential (8 u) and rounds the product (u) and the sum (u).
    eta_det = np.where(live, eta_det + (EXP_ULPS + 2.0) * U * records, 0.0)
    # Of many rescalings, two exponentials and their products decide a typical error; the rest is in the additions.
    eta_prob = np.where(live, np.expm1(np.minimum(error.prob, _HOPELESS)) + (EXP_ULPS + 2 * (EXP_ULPS + 2.0)) * U, 0.0)
    eta_in = None
    pe_in = np.zeros_like(peak)
    if error.incoming is not None:
        shift = np.minimum(error.incoming, _HOPELESS)
        eta_in = np.where(live, np.expm1(shift), 0.0)
        eta_prob = eta_prob * np.exp(shift)
        pe_in = (p * eta_in).sum(-1, keepdims=True)
    sink_eta = np.zeros_like(peak)
    if sink is not None:
        sink_eta = U * (EXP_ULPS + 2.0 * np.abs(sink) + precision.exp_slope * (peak - sink))
    weight_dtype = unit(problem.dtype).dtype if precision.rounds_weights and problem.dtype != "float32" else None
    mu = multiplicities(s, p, allowed, peak, weight_dtype)
    of_sink = sink_weight * sink_eta
    return RowFacts(
        q=tile.of(problem.q),
        k=problem.shared(problem.k, tile),
        v=problem.shared(problem.v, tile),
        o=np.nan_to_num(tile.of(stages.out), nan=0.0, posinf=0.0, neginf=0.0),
        p=p,
        s=s,
        peak=peak,
        log_total=log_total,
        total=np.exp(log_total),
        empty=empty,
        lse=lse,
        sink=sink,
        sink_weight=sink_weight,
        sink_eta=sink_eta,
        error=error,
        eta_det=eta_det,
        eta_prob=eta_prob,
        eta_in=eta_in,
        pe_det=(p * eta_det).sum(-1, keepdims=True) + of_sink,
        pe_prob=(p * eta_prob).sum(-1, keepdims=True) + pe_in + of_sink,
        pe_in=pe_in,
        additions=effective_additions(p) + 2.0 + records,
        mu=mu,
        mean_added=np.maximum((mu.added * p).sum(-1, keepdims=True), 1.0),
    )
