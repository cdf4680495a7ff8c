"""Bounds of the rotary embedding stretched to longer texts, and of one at given positions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..call import Call
from ..oracle.rope_scaling import rope_parameters, scaled_rope
from .bound import Bound, finish
from .classes import PrecisionClass
from .problem import float64
from .units import U

# Roundings that a recipe adds to a frequency: quotients, a blend of two, the stretched base.
RECIPE = 8.0


def scaled_rope_errors(
    x: np.ndarray,
    precision: PrecisionClass,
    *,
    offset: Any = 0,
    positions: np.ndarray | None = None,
    base: float = 10000.0,
    dims: int | None = None,
    traditional: bool = False,
    scaling: Mapping[str, Any] | None = None,
    length: Any = None,
    x_error: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """(value, error) of the rotation of x ``[B, ..., T, D]``, unrounded; the arguments are the oracle's.

    As for the plain rotation, with RECIPE more roundings in every frequency, whose exponent's error the (stretched)
    base amplifies, and one for the attention factor, which multiplies everything.
    """
    value = scaled_rope(
        x,
        offset=offset,
        positions=positions,
        base=base,
        dims=dims,
        traditional=traditional,
        scaling=scaling,
        length=length,
    )
    T, D = x.shape[-2:]
    dims = D if dims is None else dims
    at = np.asarray(offset)[..., None] + np.arange(T) if positions is None else np.asarray(positions)
    at = np.broadcast_to(np.atleast_2d(at), (x.shape[0] if x.ndim > 2 else 1, T))
    lengths = np.broadcast_to(at.max(axis=-1, initial=-1) + 1 if length is None else np.asarray(length), (len(at),))
    found = [rope_parameters(dims, base, scaling, length=int(L)) for L in lengths]
    frequencies = np.array([of_row for of_row, _ in found])[:, None, :]
    factor = np.array([factor for _, factor in found])[:, None, None]
    # t ln base of a frequency base^-t is its logarithm, whatever base a recipe took.
    exponent = np.abs(np.log(np.maximum(frequencies, 1e-300)))
    ulps = 10.0 + 3.0 * exponent + (0.0 if scaling is None else RECIPE)
    theta = at[..., None] * frequencies
    d_theta = np.abs(theta) * U * ulps
    shape = (len(at), *(1,) * (x.ndim - 3), T, dims // 2) if x.ndim > 2 else (T, dims // 2)
    cos, sin, d_theta = (part.reshape(shape) for part in (np.abs(np.cos(theta)), np.abs(np.sin(theta)), d_theta))
    factor = factor.reshape(len(at), *(1,) * (x.ndim - 1)) if x.ndim > 2 else factor.reshape(1, 1)

    R = dims // 2
    first, second = (slice(0, 2 * R, 2), slice(1, 2 * R, 2)) if traditional else (slice(0, R), slice(R, 2 * R))
    a, b = np.abs(x[..., first]), np.abs(x[..., second])
    size = np.hypot(a, b)
    turn = np.minimum(size * d_theta, 2.0 * size) + precision.trig * (a + b)
    roundings = 2.0 + (0.0 if scaling is None else 1.0)
    error = np.zeros(x.shape)
    error[..., first] = factor * (turn + roundings * U * (a * cos + b * sin))
    error[..., second] = factor * (turn + roundings * U * (b * cos + a * sin))
    if x_error is not None:
        a_error, b_error = x_error[..., first], x_error[..., second]
        error[..., first] += factor * (a_error * cos + b_error * sin)
        error[..., second] += factor * (b_error * cos + a_error * sin)
        error[..., 2 * R :] += x_error[..., 2 * R :]
    return value, error


def scaled_rope_bounds(
    call: Call, precision: PrecisionClass, input_error: Mapping[str, np.ndarray] | None = None
) -> dict[str, Bound]:
    """Bound of ``out``, the rotation of ``x`` [B, N_q, T_q, D] by a recipe; no ``scale`` of the positions besides."""
    names = ("base", "dims", "traditional", "scaling", "length")
    options = {name: call.options[name] for name in names if name in call.options}
    offset = call.arrays["offset"] if "offset" in call.arrays else call.options.get("offset", 0)
    x = float64(call.arrays["x"])
    value, error = scaled_rope_errors(x, precision, offset=offset, x_error=(input_error or {}).get("x"), **options)
    return {"out": finish(value, error, error, call.dtype)}
