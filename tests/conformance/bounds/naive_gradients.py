"""The bounds of attention's gradients written out element by element from the formulas of BOUNDS.md.

One K/V head and one query head, so that every row is a query of that head; no two rows are equal.
"""

from __future__ import annotations

import math

import numpy as np

from .naive import Forms, U, gamma, row_bounds


def root(*terms: float) -> float:
    return math.sqrt(sum(term * term for term in terms))


def gradient_bounds(q, k, v, dO, dL, allowed, scale, *, cap=None, term=None, sink=None, ub=U, tau=2.0**-126,
                    dtype=np.float32, rounds=False):  # fmt: skip
    """Forms by name: q [i][d], k [j][d], v [j][d], bias [i][j] (one element for each), sinks [1]."""
    T_q, T_kv, D, E = len(q), len(k), q.shape[1], v.shape[1]
    h = ub if rounds else 0.0
    cells, shared = {}, {}
    for i in range(T_q):
        channels, lse, row = row_bounds(
            q[i], k, v, allowed[i], scale, cap=cap, term=None if term is None else term[i], sink=sink, ub=ub, tau=tau,
            dtype=dtype, rounds=rounds,
        )  # fmt: skip
        p, seen = row.p, list(row.p)
        o = [sum(p[j] * v[j, d] for j in seen) for d in range(E)]
        dP = {j: float(dO[i] @ v[j]) for j in seen}
        plain = sum(dO[i, d] * o[d] for d in range(E))
        delta = plain - dL[i]
        same = [sum(abs(o[d] - o[other]) < 1e-13 for other in range(E)) for d in range(E)]
        dP_det = {j: gamma(E) * float(np.abs(dO[i]) @ np.abs(v[j])) for j in seen}
        dP_sd = {j: U * math.sqrt(E / 3 * dP[j] ** 2 + (E / 6 + 2) * float((dO[i] ** 2) @ (v[j] ** 2))) for j in seen}
        stored = [c.det + ub * (abs(o[d]) + c.det) + tau for d, c in enumerate(channels)]
        delta_det = sum(abs(dO[i, d]) * (stored[d] + gamma(E + 2) * abs(o[d])) for d in range(E))
        delta_det += sum(p[j] * dP_det[j] for j in seen) + U * abs(dL[i])
        delta_sd = math.sqrt(
            sum(
                same[d] * dO[i, d] ** 2 * (((c.prob * (1 + ub) + tau) / 4) ** 2 + (ub * o[d]) ** 2)
                for d, c in enumerate(channels)
            )
        )
        delta_sd += math.sqrt(sum(row.mu[j] * (p[j] * row.eta_prob[j] * (dP[j] - delta)) ** 2 for j in seen))
        delta_sd += U * math.sqrt(E / 3 * plain**2 + (E / 2 + 2) * sum((dO[i, d] * o[d]) ** 2 for d in range(E)))
        delta_sd += math.sqrt(sum((p[j] * dP_sd[j]) ** 2 for j in seen))
        delta_sd += h * math.sqrt(sum(row.mu_rounded[j] * (p[j] * dP[j]) ** 2 for j in seen))
        delta_sd += U * abs(dL[i])
        shared[i] = (delta, delta_det, delta_sd, lse.det, lse.prob / 4, row)
        for j in seen:
            slope = 1 / math.cosh(row.r[j] / cap) ** 2 if cap else 1.0
            dS = p[j] * (dP[j] - delta)
            distance = abs(dP[j] - delta)
            rho = row.eta_det[j] + lse.det
            flushed = min(p[j], 2.0**-124 / row.total) * distance
            dS_det = rho * p[j] * distance + p[j] * (1 + rho) * (dP_det[j] + delta_det) + 4 * U * abs(dS)
            capped = abs(dS) * (2 * row.exponent_det[j] / cap + 8 * U) if cap else 0.0
            own = root(row.eta_prob[j] * p[j] * distance, p[j] * dP_sd[j], 4 * U * dS)
            cells[i, j] = {
                "p": p[j],
                "dS": dS,
                "dR": dS * slope,
                "slope": slope,
                "rho": rho,
                "dS_det": dS_det,
                "dR_det": dS_det * slope + capped,
                "own_S": own,
                "own_R": root(own * slope, capped),
                "flushed": flushed,
                "floor": min(p[j], 2.0**-124 / row.total),
                "mu": row.mu[j],
                "eta": row.eta_prob[j],
            }

    def under(x: float) -> float:
        return min(abs(x), tau) if rounds else 0.0

    def moment(value: float, square: float, n: float) -> float:
        return U**2 * (n / 3 * value**2 + (n / 6 + 2) * square) + (2 * U * value) ** 2

    found: dict[str, list] = {"q": [], "k": [], "v": [], "bias": [], "sinks": []}
    tree = 2 * math.ceil(math.log2(T_kv + 1))
    for i in range(T_q):
        delta_sd, lse_sd = shared[i][2], shared[i][4]
        row_cells = {j: cells[i, j] for j in range(T_kv) if (i, j) in cells}
        line = []
        for d in range(D):
            y = sum(c["dR"] * k[j, d] for j, c in row_cells.items())
            common = sum((under(c["dR"]) + c["flushed"] * c["slope"]) * abs(k[j, d]) for j, c in row_cells.items())
            det = sum((c["dR_det"] + h * abs(c["dR"])) * abs(k[j, d]) for j, c in row_cells.items())
            det += gamma(T_kv + 4 + tree) * sum(abs(c["dR"] * k[j, d]) for j, c in row_cells.items())
            variance = sum(
                c["mu"] * (c["own_R"] ** 2 + (h * c["dR"]) ** 2) * k[j, d] ** 2 for j, c in row_cells.items()
            )
            variance += (delta_sd * sum(c["p"] * c["slope"] * k[j, d] for j, c in row_cells.items())) ** 2
            variance += (lse_sd * y) ** 2
            variance += moment(y, sum((c["dR"] * k[j, d]) ** 2 for j, c in row_cells.items()), T_kv + 4 + tree)
            line.append(Forms(scale * (det + common), scale * (4 * math.sqrt(variance) + common)))
        found["q"].append(line)
        found["bias"].append(
            [
                Forms(
                    c["dS_det"] + c["flushed"],
                    4 * math.sqrt(
                        c["own_S"] ** 2 + (delta_sd * c["p"]) ** 2 + (lse_sd * c["dS"]) ** 2
                        + moment(c["dS"], c["dS"] ** 2, 0)
                    ) + c["flushed"],
                )
                if (c := row_cells.get(j)) else Forms(0.0, 0.0)
                for j in range(T_kv)
            ]
        )  # fmt: skip
    for j in range(T_kv):
        column = {i: cells[i, j] for i in range(T_q) if (i, j) in cells}
        k_line, v_line = [], []
        for d in range(D):
            y = sum(c["dR"] * q[i, d] for i, c in column.items())
            common = sum((under(c["dR"]) + c["flushed"] * c["slope"]) * abs(q[i, d]) for i, c in column.items())
            det = sum((c["dR_det"] + h * abs(c["dR"])) * abs(q[i, d]) for i, c in column.items())
            det += gamma(T_q + 4) * sum(abs(c["dR"] * q[i, d]) for i, c in column.items())
            variance = sum(
                root(c["own_R"], h * c["dR"], c["p"] * c["slope"] * shared[i][2], shared[i][4] * c["dR"]) ** 2
                * q[i, d] ** 2
                for i, c in column.items()
            )  # fmt: skip
            variance += moment(y, sum((c["dR"] * q[i, d]) ** 2 for i, c in column.items()), T_q + 4)
            k_line.append(Forms(scale * (det + common), scale * (4 * math.sqrt(variance) + common)))
        for d in range(E):
            y = sum(c["p"] * dO[i, d] for i, c in column.items())
            common = sum((under(c["p"]) + c["floor"]) * abs(dO[i, d]) for i, c in column.items())
            det = sum((c["rho"] + h) * c["p"] * abs(dO[i, d]) for i, c in column.items())
            det += gamma(T_q + 4) * sum(abs(c["p"] * dO[i, d]) for i, c in column.items())
            variance = sum((root(c["eta"], shared[i][4], h) * c["p"] * dO[i, d]) ** 2 for i, c in column.items())
            variance += moment(y, sum((c["p"] * dO[i, d]) ** 2 for i, c in column.items()), T_q + 4)
            v_line.append(Forms(det + common, 4 * math.sqrt(variance) + common))
        found["k"].append(k_line)
        found["v"].append(v_line)
    if sink is not None:
        det = common = variance = magnitude = square = y = 0.0
        for delta, delta_det, delta_sd, lse_det, lse_sd, row in shared.values():
            own = U * (12 + abs(sink) + 3 * abs(row.peak - sink))
            det += row.p_sink * ((lse_det + own) * abs(delta) + delta_det)
            variance += row.p_sink**2 * root((lse_sd + own) * delta, delta_sd) ** 2
            common += min(row.p_sink, 2.0**-124 / row.total) * abs(delta)
            y -= row.p_sink * delta
            magnitude += abs(row.p_sink * delta)
            square += (row.p_sink * delta) ** 2
        variance += moment(y, square, T_q)
        found["sinks"] = [Forms(det + gamma(T_q) * magnitude + common, 4 * math.sqrt(variance) + common)]
    return found
