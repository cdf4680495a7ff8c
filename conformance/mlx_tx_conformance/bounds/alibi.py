"""Bound of ALiBi's standard slopes, which an implementation computes as powers of two."""

from __future__ import annotations

import numpy as np

from ..call import Call
from ..oracle.positions import alibi_slopes
from .bound import Bound, finish
from .units import U

# 2^-x with x in (0, 8] rounded once errs by 8 ln 2 u = 5.6 u, and the power itself by at most 4 ulp = 8 u.
SLOPE_ULPS = 14.0


def alibi_slopes_bounds(call: Call) -> dict[str, Bound]:
    """Bound of ``out``, the float32 slopes of option ``n_heads`` heads."""
    value = alibi_slopes(int(call.options["n_heads"]))
    error = SLOPE_ULPS * U * np.abs(value)
    return {"out": finish(value, error, error, "float32")}
