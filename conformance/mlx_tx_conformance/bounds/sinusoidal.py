"""Bounds of the fixed table of sines and cosines."""

from __future__ import annotations

import numpy as np

from ..call import Call
from ..oracle.sinusoidal import sinusoidal_table
from .bound import Bound, finish
from .classes import PrecisionClass
from .units import U


def sinusoidal_errors(
    positions: np.ndarray, d_model: int, precision: PrecisionClass, *, base: float = 10000.0, scale: float = 1.0
) -> tuple[np.ndarray, np.ndarray]:
    """(value, error) of the rows at ``positions`` [...], unrounded: [..., d_model].

    The angle theta = position base^-t errs by |theta| u (10 + 3 t ln base), as a rotary angle does, and a sine moves by
    no more than its angle, nor by more than 2; sine and cosine err by themselves, and the factor is one product more.
    """
    value = sinusoidal_table(positions, d_model, base=base, scale=scale)
    exponent = np.repeat(np.arange(0, d_model, 2) / d_model, 2)[:d_model]
    theta = np.abs(np.asarray(positions, dtype=np.float64))[..., None] * base**-exponent
    d_theta = theta * U * (10.0 + 3.0 * exponent * np.log(max(base, 1.0)))
    return value, abs(scale) * (np.minimum(d_theta, 2.0) + precision.trig) + U * np.abs(value)


def sinusoidal_bounds(call: Call, precision: PrecisionClass) -> dict[str, Bound]:
    """Bound of ``out`` [T_q, dims], float32."""
    given = {name: call.options[name] for name in ("base", "scale") if name in call.options}
    value, error = sinusoidal_errors(call.arrays["positions"], int(call.options["dims"]), precision, **given)
    return {"out": finish(value, error, error, "float32")}
