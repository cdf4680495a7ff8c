"""Bounds of the rotary position embedding: errors of the angle, of its sine and cosine, and of the rotation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..call import Call
from ..oracle.positions import rope
from .bound import Bound, finish
from .classes import PrecisionClass
from .problem import float64
from .rope_scaling import scaled_rope_bounds
from .units import U


def rope_errors(
    x: np.ndarray,
    precision: PrecisionClass,
    *,
    offset: Any = 0,
    base: float = 10000.0,
    dims: int | None = None,
    traditional: bool = False,
    scale: float = 1.0,
    x_error: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """(value, error) of the rotation of x ``[..., T, D]``, unrounded; the arguments are the oracle's.

    The angle theta = position base^-t, t in [0, 1), errs by |theta| u (10 + 3 t ln base): the power amplifies the
    rounding of its exponent t ln base. A pair (a, b) then errs by min(hypot(a, b) dtheta, 2 hypot(a, b)), by the error
    of sine and cosine times |a| + |b|, and by 2 u (|a cos| + |b sin|) for the products and their sum.
    """
    value = rope(x, offset=offset, base=base, dims=dims, traditional=traditional, scale=scale)
    T, D = x.shape[-2:]
    dims = D if dims is None else dims
    start = np.asarray(offset, dtype=np.float64)
    position = scale * (start[..., None] + np.arange(T))
    exponent = np.arange(0, dims, 2) / max(dims, 1)
    theta = position[..., None] * base**-exponent
    if start.ndim:
        theta = theta.reshape(start.shape[0], *(1,) * (x.ndim - 3), T, dims // 2)
    # A scaled position is one rounding more.
    ulps = 10.0 + (0.0 if scale == 1.0 else 1.0) + 3.0 * exponent * np.log(max(base, 1.0))
    d_theta = np.abs(theta) * U * ulps
    cos, sin = np.abs(np.cos(theta)), np.abs(np.sin(theta))
    R = dims // 2
    first, second = (slice(0, 2 * R, 2), slice(1, 2 * R, 2)) if traditional else (slice(0, R), slice(R, 2 * R))
    a, b = np.abs(x[..., first]), np.abs(x[..., second])
    length = np.hypot(a, b)
    turn = np.minimum(length * d_theta, 2.0 * length) + precision.trig * (a + b)
    error = np.zeros(x.shape)
    error[..., first] = turn + 2.0 * U * (a * cos + b * sin)
    error[..., second] = turn + 2.0 * U * (b * cos + a * sin)
    if x_error is not None:
        a_error, b_error = x_error[..., first], x_error[..., second]
        error[..., first] += a_error * cos + b_error * sin
        error[..., second] += b_error * cos + a_error * sin
        error[..., 2 * R :] += x_error[..., 2 * R :]
    return value, error


def rope_bounds(
    call: Call, precision: PrecisionClass, input_error: Mapping[str, np.ndarray] | None = None
) -> dict[str, Bound]:
    """Bound of ``out``, the rotation of ``x``; ``offset`` is an option or an array, the rest are options."""
    if call.options.get("scaling") is not None:
        return scaled_rope_bounds(call, precision, input_error)
    options = {name: call.options[name] for name in ("base", "dims", "traditional", "scale") if name in call.options}
    offset = call.arrays["offset"] if "offset" in call.arrays else call.options.get("offset", 0)
    x = float64(call.arrays["x"])
    value, error = rope_errors(x, precision, offset=offset, x_error=(input_error or {}).get("x"), **options)
    return {"out": finish(value, error, error, call.dtype)}
