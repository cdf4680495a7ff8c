"""Bounds of RMSNorm and LayerNorm whose statistics are float32 (derivation: ``conformance/BOUNDS.md``)."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..call import Call
from ..oracle.norms import layer_norm, rms_norm
from .bound import Bound, finish
from .problem import float64
from .units import LAMBDA, U, gamma

# Roundings of a normalised value besides those of its statistics: root and its reciprocal (4 ulp), two products, and
# the sum of weight and offset.
TAIL = 8.0


def rms_norm_errors(
    x: np.ndarray,
    weight: np.ndarray | None = None,
    bias: np.ndarray | None = None,
    *,
    eps: float = 1e-5,
    offset: float = 0.0,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(value, deterministic, probabilistic error) of the norm of x ``[..., C]``, unrounded.

    The mean square errs by k of itself, k as for a sum of C terms; of that eps damps the share f = ms / (ms + eps), and
    the root halves it.
    """
    value = rms_norm(x, weight, eps=eps, offset=offset)
    square = np.mean(x * x, axis=-1, keepdims=True)
    with np.errstate(invalid="ignore"):
        damped = np.where(square > 0, square / (square + eps), 0.0)
    size = np.abs(value)
    det, prob = (size * (0.5 * damped * k + TAIL * U) for k in _sum_error(x))
    if bias is None:
        return value, det, prob
    value = value + bias
    return value, det + U * np.abs(value), prob + U * np.abs(value)


def layer_norm_errors(
    x: np.ndarray,
    weight: np.ndarray | None = None,
    bias: np.ndarray | None = None,
    *,
    eps: float = 1e-5,
    offset: float = 0.0,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(value, deterministic, probabilistic error) of the norm of x ``[..., C]``, unrounded.

    The mean errs by k mean|x|, which every centred value inherits; the variance by that squared and by k of itself.
    The root's relative error cannot exceed sqrt((var + eps) / eps) - 1, since r never exceeds eps^-1/2: this is what
    keeps constant rows finite.
    """
    value = layer_norm(x, weight, bias, eps=eps, offset=offset)
    mean = x.mean(axis=-1, keepdims=True)
    centred = x - x[..., :1]
    centred = centred - centred.mean(axis=-1, keepdims=True)
    var = np.mean(centred * centred, axis=-1, keepdims=True)
    r = 1.0 / np.sqrt(var + eps)
    w = np.ones(x.shape[-1]) if weight is None else np.abs(weight + offset)
    errors = []
    for k in _sum_error(x):
        d_mean = k * np.mean(np.abs(x), axis=-1, keepdims=True) + U * np.abs(mean)
        d_centred = d_mean + U * (np.abs(centred) + d_mean)
        d_var = (k + 6.0 * U) * var + d_mean**2 + 2.0 * U * var
        with np.errstate(divide="ignore", invalid="ignore"):
            first = np.where(d_var < var + eps, (1.0 - np.minimum(d_var / (var + eps), 1.0)) ** -0.5 - 1.0, np.inf)
            second = np.sqrt((var + eps) / eps) - 1.0 if eps > 0 else np.inf
        d_r = np.fmin(first, second)
        errors.append(w * r * (d_centred * (1.0 + d_r) + np.abs(centred) * (d_r + TAIL * U)) + U * np.abs(value))
    return value, errors[0], errors[1]


def norm_bounds(call: Call) -> dict[str, Bound]:
    """Bound of ``out`` of ``rms_norm`` or ``layer_norm``."""
    given: dict[str, Any] = {name: float64(call.arrays[name]) for name in ("weight", "bias") if name in call.arrays}
    given |= {name: float(call.options[name]) for name in ("eps", "offset") if name in call.options}
    errors: Any = layer_norm_errors if call.op == "layer_norm" else rms_norm_errors
    value, det, prob = errors(float64(call.arrays["x"]), **given)
    return {"out": finish(value, det, prob, call.dtype)}


def _sum_error(x: np.ndarray) -> tuple[float, np.ndarray]:
    """k, the relative error of the sum of C terms: gamma(C + 2), and lambda u sqrt(C mu), mu how many terms are alike.

    Equal terms round alike; a row of one number has mu = C.
    """
    C = x.shape[-1]
    ranks = np.sort(np.abs(x), axis=-1).reshape(-1, C)
    fresh = np.ones(ranks.shape, dtype=bool)
    fresh[:, 1:] = ranks[:, 1:] != ranks[:, :-1]
    # The mean over the terms of how many equal it: the sum of the squared sizes of the groups, over C.
    groups = np.cumsum(fresh, axis=-1) - 1
    counts = np.zeros(ranks.shape)
    np.add.at(counts, (np.arange(len(ranks))[:, None], groups), 1.0)
    mu = (counts**2).sum(axis=-1) / max(C, 1)
    return float(gamma(C + 2)), LAMBDA * U * np.sqrt(C * mu).reshape(*x.shape[:-1], 1)
