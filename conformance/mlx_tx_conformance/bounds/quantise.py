"""Bounds of numbers that went through a quantised cache and came back."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..call import DTYPES
from ..oracle.quantise import quantise
from .units import U, unit


def quantised_errors(x: np.ndarray, dtype_name: str, *, bits: int, group_size: int, dtype: Any = None) -> Any:
    """(value, error) of ``x`` [..., C] after :func:`~..oracle.quantise.quantise`, unrounded.

    Codes are decisions of float32 arithmetic. Where a quotient lies so near to a half that its own rounding (4 u of it,
    and what the scale's and the bias's do to it) may decide otherwise, the value may be one step off; anywhere else
    code, scale and bias are the oracle's to 4 u, and unpacking rounds the product and the sum in the storage's dtype.
    """
    kind = unit(dtype_name)
    packed = quantise(x, bits=bits, group_size=group_size, dtype=DTYPES[dtype_name] if dtype is None else dtype)
    value = packed.values()
    scales, biases = (np.repeat(part, group_size, axis=-1) for part in (packed.scales, packed.biases))
    with np.errstate(divide="ignore", invalid="ignore"):
        exact = (x - biases) / scales
    # Scales are stored rounded, but codes come from the unrounded ones: the quotient is known to some roundings.
    doubt = (8.0 * kind.u + 8.0 * U) * (np.abs(exact) + np.abs(biases / scales) + 1.0)
    near_half = np.abs(np.abs(exact - np.floor(exact)) - 0.5) <= doubt
    step = np.where(near_half, np.abs(scales), 0.0)
    error = step + 2.0 * kind.u * (np.abs(packed.codes * scales) + np.abs(biases)) + 2.0 * kind.u * np.abs(biases)
    return value, error
