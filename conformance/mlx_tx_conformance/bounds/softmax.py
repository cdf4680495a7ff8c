"""Bounds of a softmax over exact numbers and of their log-sum-exp."""

from __future__ import annotations

import numpy as np

from ..call import Call
from ..oracle.softmax import normalise
from .bound import Bound, finish
from .classes import PrecisionClass
from .problem import float64
from .rows import effective_additions, multiplicities
from .scores import EXP_ULPS
from .units import EXP_FLOOR, LAMBDA, U, gamma


def softmax_bounds(call: Call, precision: PrecisionClass) -> dict[str, Bound]:
    """Bounds of ``out`` (the softmax of ``x`` along option ``axis``, -1 by default) and of ``lse`` along it.

    With eta = u (8 + g (m - x)) the relative error of an exponential: p (eta + S + a + 4 u), S the relative error of
    the sum of exponentials and a that of adding them up. An entry of -inf has weight exactly 0.
    """
    axis = int(call.options.get("axis", -1))
    x = np.moveaxis(float64(call.arrays["x"]), axis, -1)
    shape = x.shape
    x = x.reshape(-1, shape[-1])
    p, _, lse = normalise(x)
    allowed = x > -np.inf
    peak = np.where(allowed, x, -np.inf).max(-1, keepdims=True, initial=-np.inf)
    peak = np.where(np.isfinite(peak), peak, 0.0)
    gap = np.where(allowed, peak - np.where(allowed, x, 0.0), 0.0)
    eta = np.where(p > 0, U * (EXP_ULPS + precision.exp_slope * gap), 0.0)
    additions = effective_additions(p) + 2.0
    mu = multiplicities(np.where(allowed, x, 0.0), p, allowed, peak, None)
    added = np.maximum((mu.added * p).sum(-1, keepdims=True), 1.0)
    log_total = np.where(np.isfinite(lse), lse - peak[:, 0], 0.0)
    floor = np.minimum(p, EXP_FLOOR / np.exp(log_total)[:, None])

    pe = (p * eta).sum(-1, keepdims=True)
    sum_sd = np.sqrt((mu.score * (p * eta) ** 2).sum(-1, keepdims=True))
    det = p * (eta + pe + gamma(additions) + 4.0 * U) + floor
    prob = p * (eta + LAMBDA * (sum_sd + U * np.sqrt(additions * added)) + 4.0 * U) + floor

    rounding = U * (3.0 * np.abs(peak) + 6.0 * np.abs(log_total)[:, None] + np.abs(np.nan_to_num(lse))[:, None] + 4.0)
    lse_det = (pe / (1.0 - np.minimum(pe, 0.5)) + gamma(additions) + rounding)[:, 0]
    lse_prob = (LAMBDA * np.sqrt(sum_sd**2 + U * U * additions * added) + rounding)[:, 0]

    def back(array: np.ndarray) -> np.ndarray:
        return np.moveaxis(array.reshape(shape), -1, axis)

    hidden = ~allowed
    out = finish(back(p), back(det), back(prob), call.dtype, zero=back(hidden))
    lse, lse_det, lse_prob = (array.reshape(shape[:-1]) for array in (lse, lse_det, lse_prob))
    total = finish(lse, lse_det, lse_prob, "float32", rounded=False)
    return {"out": out, "lse": total}
