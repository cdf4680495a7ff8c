"""Bounds of attention's gradients.

    dQ = scale dR K      dK = scale dR^T Q      dV = p^T dO      dBias = dS      dSink = -sum p_sink Dl

dK and dV sum over all query rows of all heads that share a K/V head, dBias and dMask over the axes that were
broadcast. Derivation: ``conformance/BOUNDS.md``, section 5.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..call import DTYPES, Call
from ..oracle.gradients import attention_gradients
from .attention import bounds_of_problem
from .backward import Backward, backward
from .bound import Bound, finish
from .classes import PrecisionClass
from .problem import AttentionProblem, Tile, attention_problem, float64, oracle_arguments
from .rows import alike
from .scores import EXP_ULPS
from .sums import Parts, Sums
from .units import EXP_FLOOR, U, unit


def gradient_bounds(
    call: Call, precision: PrecisionClass, input_error: Mapping[str, np.ndarray] | None = None
) -> dict[str, Bound]:
    """Bounds of the gradients ``q``, ``k``, ``v`` and, where given, ``bias``, ``mask`` (floating) and ``sinks``.

    ``input_error`` may hold errors of q, k, v and d_out; with one, only the deterministic form is used.
    """
    arrays = call.arrays
    d_out, d_lse = arrays["d_out"], arrays.get("d_lse")
    inputs = [arrays[name] for name in ("q", "k", "v")]
    values = attention_gradients(inputs[0], inputs[1], inputs[2], d_out, d_lse=d_lse, **oracle_arguments(call))
    problem = attention_problem(call, input_error, values.pop("stages"))
    allowed, lse = problem.stages.allowed, problem.stages.lse
    # As in the oracle: what is sent back to a row without keys does not count.
    dO = np.where(allowed.any(-1, keepdims=True), float64(d_out), 0.0)
    dL = np.zeros(lse.shape) if d_lse is None else np.where(np.isneginf(lse), 0.0, float64(d_lse))

    with np.errstate(invalid="ignore", over="ignore"):
        sums, added = _collected(problem, precision, values, dO, dL)
        # A call may ask for the forward results of the same run too.
        bounds = bounds_of_problem(problem, precision) if {"out", "lse"} & set(call.outputs) else {}
        for name, value in values.items():
            shape = _sum_shape(value, name)
            alike = _alike(name, shape, problem, added)
            det, prob = sums[name].parts.errors(value.reshape(shape), _additions(value, name, problem), alike)
            if problem.input_error:
                prob = np.full_like(det, np.inf)
            bounds[name] = finish(value, det.reshape(value.shape), prob.reshape(value.shape), _dtype_name(arrays[name]))
    return bounds


def _collected(
    problem: AttentionProblem,
    precision: PrecisionClass,
    values: Mapping[str, np.ndarray],
    dO: np.ndarray,
    dL: np.ndarray,
) -> tuple[dict[str, Sums], np.ndarray]:
    """What the error of every gradient is made of, summed over tiles, and each row's mean multiplicity of its keys."""
    sums = {name: Sums(_sum_shape(value, name)) for name, value in values.items()}
    added = np.ones((*problem.q.shape[:3], 1))
    equal_rows = _equal_rows(problem)
    rounding = unit(problem.dtype).u if precision.rounds_weights else 0.0
    for tile in problem.tiles():
        back = backward(problem, tile, precision, dO, dL)
        same = tile.of(equal_rows)[..., None]
        place, kv_head = (tile.batch, tile.head, tile.rows), tile.head // problem.group
        added[place] = back.facts.mean_added
        sums["q"].add(place, _query_parts(problem, tile, back, precision))
        _add_by_head(sums["k"], (tile.batch, kv_head), _key_parts(problem, tile, back, precision, same))
        _add_by_head(sums["v"], (tile.batch, kv_head), _value_parts(problem, tile, back, precision, same))
        for name in values.keys() & {"bias", "mask"}:
            _add_reduced(sums[name], problem, tile, back, same, rounding)
        if "sinks" in values:
            _add_by_head(sums["sinks"], (tile.head,), _sink_parts(back, precision, same))
    return sums, added


def _query_parts(problem: AttentionProblem, tile: Tile, back: Backward, precision: PrecisionClass) -> Parts:
    """dQ = scale dR K: sums over keys, in which errors of Dl and of the log-sum-exp stay coherent."""
    facts, k = back.facts, back.facts.k
    abs_k, k_square = np.abs(k), k * k
    mu = facts.mu.score
    rounding, underflow = _rounded_weight(back.d_scores, precision, problem.dtype)
    shared = (back.delta_sd * np.abs((facts.p * back.slope) @ k)) ** 2 + (back.lse_sd * np.abs(back.d_scores @ k)) ** 2
    det = (back.d_scores_det + rounding) @ abs_k
    if "k" in problem.input_error:
        det = det + (np.abs(back.d_scores) + back.d_scores_det) @ problem.shared(problem.input_error["k"], tile)
    return Parts(
        det=det,
        variance=(mu * (back.own_scores + rounding**2)) @ k_square + shared,
        common=(underflow + back.flushed * back.slope) @ abs_k,
        magnitude=np.abs(back.d_scores) @ abs_k,
        square=(back.d_scores**2) @ k_square,
    ).times(problem.stages.scale)


def _key_parts(
    problem: AttentionProblem, tile: Tile, back: Backward, precision: PrecisionClass, same: np.ndarray
) -> Parts:
    """dK = scale dR^T Q: sums over query rows, whose errors are independent unless the rows are equal."""
    q = back.facts.q
    abs_q, q_square = np.abs(q), q * q
    rounding, underflow = _rounded_weight(back.d_scores, precision, problem.dtype)
    row = (back.facts.p * back.slope * back.delta_sd) ** 2 + (back.lse_sd * back.d_scores) ** 2
    det = _t(back.d_scores_det + rounding) @ abs_q
    if "q" in problem.input_error:
        det = det + _t(np.abs(back.d_scores) + back.d_scores_det) @ tile.of(problem.input_error["q"])
    return Parts(
        det=det,
        variance=_t(same * (back.own_scores + rounding**2 + row)) @ q_square,
        common=_t(underflow + back.flushed * back.slope) @ abs_q,
        magnitude=_t(np.abs(back.d_scores)) @ abs_q,
        square=_t(back.d_scores**2) @ q_square,
    ).times(problem.stages.scale)


def _value_parts(
    problem: AttentionProblem, tile: Tile, back: Backward, precision: PrecisionClass, same: np.ndarray
) -> Parts:
    """dV = p^T dO: the recomputed weights, their rounding, and the sum over query rows."""
    p, dO = back.facts.p, back.d_out
    abs_dO, dO_square = np.abs(dO), dO * dO
    rounding, underflow = _rounded_weight(p, precision, problem.dtype)
    relative = (back.rho_prob**2 + back.lse_sd**2) * p * p + rounding**2
    det = _t(back.rho_det * p + rounding) @ abs_dO
    if "d_out" in problem.input_error:
        det = det + _t(p * (1.0 + back.rho_det)) @ tile.of(problem.input_error["d_out"])
    return Parts(
        det=det,
        variance=_t(same * relative) @ dO_square,
        common=_t(underflow + back.floor) @ abs_dO,
        magnitude=_t(p) @ abs_dO,
        square=_t(p * p) @ dO_square,
    )


def _sink_parts(back: Backward, precision: PrecisionClass, same: np.ndarray) -> Parts:
    """dSink = -sum over rows of p_sink Dl, one number per head."""
    facts = back.facts
    assert facts.sink is not None
    weight, delta = facts.sink_weight, np.abs(back.delta)
    # exp(sink - lse): the exponential, its argument (the product with log2 e included) and the log-sum-exp.
    own = U * (EXP_ULPS + 4.0 + np.abs(facts.sink) + precision.exp_slope * np.abs(facts.peak - facts.sink))
    own_lse = back.lse_sd + own
    term = weight * delta

    def total(x: np.ndarray) -> np.ndarray:
        return x.sum((-1, -2))

    return Parts(
        det=total(weight * ((back.lse_det + own) * delta + back.delta_det)),
        variance=total(same * weight**2 * ((own_lse * delta) ** 2 + back.delta_sd**2)),
        common=total(np.minimum(weight, EXP_FLOOR / facts.total) * delta),
        magnitude=total(term),
        square=total(term**2),
    )


def _add_reduced(
    sums: Sums, problem: AttentionProblem, tile: Tile, back: Backward, same: np.ndarray, rounding: float
) -> None:
    """dBias, dMask = dS, summed over the axes along which the array was broadcast."""
    p, dS = back.facts.p, back.d_biased
    shape, full = sums.parts.det.shape, problem.stages.allowed.shape
    over_batch, over_head, over_row, over_key = (size < whole for size, whole in zip(shape, full, strict=True))
    square = dS * dS
    if not (over_batch or over_head or over_row or over_key):
        rounding = 0.0  # a sum over rounded dS errs by their roundings; a single dS is rounded as the result
    own = back.own_biased + rounding**2 * square
    if over_key:
        # Errors of Dl and of the log-sum-exp stay coherent along the row; equal scores err together.
        shared = (back.delta_sd * p.sum(-1, keepdims=True)) ** 2
        shared = shared + (back.lse_sd * dS.sum(-1, keepdims=True)) ** 2
        variance = (back.facts.mu.score * own).sum(-1, keepdims=True) + shared
    else:
        variance = own + (back.delta_sd * p) ** 2 + (back.lse_sd * dS) ** 2
    terms = (back.d_biased_det + rounding * np.abs(dS), back.flushed, np.abs(dS), square)
    if over_key:
        det, common, magnitude, square = (term.sum(-1, keepdims=True) for term in terms)
    else:
        det, common, magnitude, square = terms
    if over_row:
        variance = same * variance
        det, variance, common, magnitude, square = (
            term.sum(-2, keepdims=True) for term in (det, variance, common, magnitude, square)
        )
    batch = np.zeros_like(tile.batch) if over_batch else tile.batch
    head = np.zeros_like(tile.head) if over_head else tile.head
    rows = slice(None) if over_row else tile.rows
    for n, place in enumerate(zip(batch, head, strict=True)):
        sums.add((*place, rows), Parts(det[n], variance[n], common[n], magnitude[n], square[n]))


def _add_by_head(sums: Sums, place: tuple[np.ndarray, ...], parts: Parts) -> None:
    """Add parts ``[heads, ...]`` at index arrays in which one place may occur for several heads."""
    assert isinstance(parts.common, np.ndarray)
    for n, one in enumerate(zip(*place, strict=True)):
        sums.add(one, Parts(parts.det[n], parts.variance[n], parts.common[n], parts.magnitude[n], parts.square[n]))


def _rounded_weight(x: np.ndarray, precision: PrecisionClass, dtype: str) -> tuple[Any, Any]:
    """Error of rounding ``x`` to the dtype where the class does so: the relative part and the underflow."""
    if not precision.rounds_weights:
        return 0.0, 0.0
    size = np.abs(x)
    return unit(dtype).u * size, np.minimum(size, unit(dtype).tau)


def _t(x: np.ndarray) -> np.ndarray:
    return np.swapaxes(x, -1, -2)


def _equal_rows(problem: AttentionProblem) -> np.ndarray:
    """``[B, N_q, T_q]``: how many query rows of its K/V head's group equal each row, and therefore err alike."""
    B, N_q, T_q, D = problem.q.shape
    # Equal rows have equal projections; others practically never (the direction is irrational).
    projection = problem.q @ np.cos(np.arange(1, D + 1))
    return alike(projection.reshape(B, N_q // problem.group, problem.group * T_q)).reshape(B, N_q, T_q)


def _alike(name: str, shape: tuple[int, ...], problem: AttentionProblem, added: np.ndarray) -> np.ndarray | float:
    """As how many additions each addition of a gradient's sums counts: how many of its terms round the same way.

    Sums over keys: the mean multiplicity of a row's weights. Sums over rows: that of rows whose weights agree to u.
    """
    if name == "q":
        return added
    B, N_q, T_q, T_kv = problem.stages.allowed.shape
    projection = problem.stages.weights @ np.cos(np.arange(1, T_kv + 1))
    rows = alike(projection.reshape(B, N_q // problem.group, problem.group * T_q), U)
    if name in ("k", "v"):
        return rows.mean(-1)[..., None, None] if rows.size else 1.0
    return float(rows.mean()) * float(added.mean() if len(shape) == 4 else 1.0) if rows.size else 1.0


def _sum_shape(value: np.ndarray, name: str) -> tuple[int, ...]:
    """Shape of the sums of an output: masks and biases get all four axes."""
    return (1,) * (4 - value.ndim) + value.shape if name in ("bias", "mask") else value.shape


def _additions(value: np.ndarray, name: str, problem: AttentionProblem) -> float:
    """How many additions one element of a gradient takes, with four more for its products and scaling."""
    T_q, T_kv = problem.q.shape[2], problem.k.shape[2]
    if name == "q":
        # Partial sums over blocks of keys may be merged in a tree.
        return T_kv + 4 + 2 * np.ceil(np.log2(T_kv + 1))
    if name in ("k", "v"):
        return problem.group * T_q + 4
    if name == "sinks":
        return problem.q.shape[0] * T_q
    full = problem.stages.allowed.size
    return max(1, full // max(1, value.size)) - 1


def _dtype_name(array: np.ndarray) -> str:
    return next((name for name, dtype in DTYPES.items() if array.dtype == dtype), "float32")
