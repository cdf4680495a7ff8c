"""The bounds of attention written out element by element from the formulas of BOUNDS.md: slow, and for reading.

One head: q [T_q, D], k [T_kv, D], v [T_kv, D_v], float64. At most one term is added to the scores.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

U = 2.0**-24


def gamma(n: float) -> float:
    return n * U / (1 - n * U)


@dataclass(frozen=True)
class Row:
    """What a row's gradients need of its forward pass, by key: weights, their errors, how many err alike."""

    p: dict[int, float]
    r: dict[int, float]
    eta_det: dict[int, float]
    eta_prob: dict[int, float]
    exponent_det: dict[int, float]
    mu: dict[int, int]
    mu_rounded: dict[int, int]
    p_sink: float
    peak: float
    total: float


@dataclass(frozen=True)
class Forms:
    """Error before the rounding of the result: deterministic and probabilistic."""

    det: float
    prob: float


def records(scores: list[float]) -> int:
    """How often the maximum so far changes after the first score, counting from -inf where keys are hidden."""
    count, peak = 0, scores[0]
    for score in scores[1:]:
        if score > peak:
            count, peak = count + 1, score
    return count


def row_bounds(q, k, v, allowed, scale, *, cap=None, term=None, sink=None, ub=U, tau=2.0**-126, dtype=np.float32,
               rounds=False, partials=False, slope=3.0):  # fmt: skip
    """Of one row: a list of Forms for the channels of the output, the Forms of its log-sum-exp, and its Row."""
    T, D, D_v = len(k), len(q), v.shape[1]
    seen = [j for j in range(T) if allowed[j]]
    r = {j: scale * float(q @ k[j]) for j in seen}
    capped = {j: cap * math.tanh(r[j] / cap) if cap else r[j] for j in seen}
    s = {j: capped[j] + (term[j] if term is not None else 0.0) for j in seen}
    m = max([*s.values(), *([sink] if sink is not None else [])])
    e = {j: math.exp(s[j] - m) for j in seen}
    total = sum(e.values()) + (math.exp(sink - m) if sink is not None else 0.0)
    p = {j: e[j] / total for j in seen}
    p_sink = math.exp(sink - m) / total if sink is not None else 0.0
    o = [sum(p[j] * v[j, d] for j in seen) for d in range(D_v)]

    line = [s.get(j, -math.inf) for j in range(T)]
    R = max(records(line), records(line[::-1])) + 2 * math.ceil(math.log2(T + 1))
    n = 1 + sum(min(1.0, p[j] / U) for j in seen) + 2 + R

    def exponent_error(first: float, j: int) -> float:
        error = first
        if cap:
            sech2 = 1 / math.cosh(r[j] / cap) ** 2
            error = error * min(1.0, sech2 + error / cap) + 8 * U * cap + 2 * U * abs(r[j]) * sech2
        if term is not None:
            error += U * (abs(s[j]) + abs(capped[j]) + abs(term[j]))
        return error + U * (2 * abs(s[j]) + slope * (m - s[j]))

    eta_det, eta_prob, exponent_det = {}, {}, {}
    for j in seen:
        magnitude = scale * float(np.abs(q) @ np.abs(k[j]))
        square = scale**2 * float((q * q) @ (k[j] * k[j]))
        exponent_det[j] = exponent_error(gamma(D + 2) * magnitude, j)
        eta_det[j] = math.expm1(exponent_det[j]) + 8 * U + 10 * U * R
        deviation = U * math.sqrt((D / 3 + 2) * r[j] ** 2 + (D / 6 + 2) * square)
        eta_prob[j] = math.expm1(exponent_error(deviation, j)) + 28 * U
    eta_sink = U * (8 + 2 * abs(sink) + slope * (m - sink)) if sink is not None else 0.0
    pe = {
        "det": sum(p[j] * eta_det[j] for j in seen) + p_sink * eta_sink,
        "prob": sum(p[j] * eta_prob[j] for j in seen) + p_sink * eta_sink,
    }
    mu = {j: sum(abs(s[j] - s[other]) < 1e-13 for other in seen) for j in seen}
    stored = {j: float(np.asarray(e[j]).astype(dtype)) for j in seen}
    mu_rounded = {j: max(mu[j], sum(stored[j] == stored[other] for other in seen)) for j in seen}
    place = {j: math.floor(p[j] / U) for j in seen}
    added = {j: max(mu[j], sum(place[j] == place[other] for other in seen) if place[j] else 1) for j in seen}
    mean_added = max(1.0, sum(added[j] * p[j] for j in seen))

    channels = []
    for d in range(D_v):
        sum_abs = sum(p[j] * abs(v[j, d]) for j in seen)
        centred = sum(p[j] * abs(v[j, d] - o[d]) for j in seen)
        common = sum(min(p[j], 2.0**-124 / total) * abs(v[j, d]) for j in seen)
        if rounds:
            common += sum(min(p[j], tau) * abs(v[j, d]) for j in seen)
        if partials:
            common += ub * sum_abs + tau
        det = sum(p[j] * eta_det[j] * abs(v[j, d] - o[d]) for j in seen) + p_sink * eta_sink * abs(o[d])
        det = det / (1 - pe["det"]) + gamma(n) * (sum_abs + abs(o[d])) + 4 * U * abs(o[d]) + common
        if rounds:
            det += ub * max(sum_abs, centred)

        variance = sum(mu[j] * (p[j] * eta_prob[j] * (v[j, d] - o[d])) ** 2 for j in seen)
        variance += (p_sink * eta_sink * o[d]) ** 2
        prefix = largest_prefix([p.get(j, 0.0) for j in range(T)], v[:, d])
        square = sum(mu[j] * (p[j] * v[j, d]) ** 2 for j in seen)
        variance += U**2 * n * mean_added * (max(prefix, abs(o[d])) ** 2 + square + o[d] ** 2)
        if rounds:
            variance += ub**2 * sum(mu_rounded[j] * p[j] ** 2 * (v[j, d] ** 2 + (v[j, d] - o[d]) ** 2) for j in seen)
        coherent = 3 * U * abs(sum(p[j] * s[j] * (v[j, d] - o[d]) for j in seen))
        prob = (4 * math.sqrt(variance) + coherent) / (1 - pe["prob"]) + 4 * U * abs(o[d]) + common
        channels.append(Forms(det, prob))

    L = m + math.log(total)
    rounding = U * (3 * abs(m) + 6 * abs(math.log(total)) + abs(L) + 4)
    variance = sum(mu[j] * (p[j] * eta_prob[j]) ** 2 for j in seen) + U**2 * n * mean_added + (p_sink * eta_sink) ** 2
    coherent = 3 * U * abs(sum(p[j] * s[j] for j in seen))
    lse = Forms(
        pe["det"] / (1 - pe["det"]) + gamma(n) + rounding,
        (4 * math.sqrt(variance) + coherent) / (1 - pe["prob"]) + rounding,
    )
    return channels, lse, Row(p, r, eta_det, eta_prob, exponent_det, mu, mu_rounded, p_sink, m, total)


def largest_prefix(p: list[float], v: np.ndarray) -> float:
    """An upper bound of every partial sum of p v, exact at every 16th key."""
    sums, between = [0.0], []
    for start in range(0, len(p), 16):
        block = range(start, min(start + 16, len(p)))
        sums.append(sums[-1] + sum(p[j] * v[j] for j in block))
        between.append(sum(p[j] * abs(v[j]) for j in block))
    return max((abs(a) + abs(b) + c) / 2 for a, b, c in zip(sums[:-1], sums[1:], between, strict=True))
