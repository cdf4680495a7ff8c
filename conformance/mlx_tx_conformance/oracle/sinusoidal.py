"""The fixed sine and cosine table of the original Transformer, in float64.

    PE(p, 2r)     = sin(p / base^(2r / d_model))
    PE(p, 2r + 1) = cos(p / base^(2r / d_model))

Source: Vaswani et al. 2017, section 3.5.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

Float64 = NDArray[np.float64]


def sinusoidal_table(positions: ArrayLike, d_model: int, *, base: float = 10000.0, scale: float = 1.0) -> Float64:
    """The table's rows at ``positions`` [...], any numbers, times ``scale``; returns [..., d_model] (POS-1).

    An odd ``d_model`` ends with the sine of a pair whose cosine has no channel left. ``scale=0`` gives zeros. The
    angle is the nearest float64 to within a few units in the last place, so that a value at position p is right to
    about 1e-15 p: 1e-9 at one million.
    """
    if d_model < 1:
        raise ValueError(f"[sinusoidal_table] d_model must be >= 1; got {d_model}")
    angles = np.asarray(positions).astype(np.float64)[..., None] * frequencies(d_model, base)
    table = np.empty((*angles.shape[:-1], d_model))
    table[..., 0::2] = np.sin(angles)
    table[..., 1::2] = np.cos(angles[..., : d_model // 2])
    return scale * table


def frequencies(d_model: int, base: float = 10000.0) -> Float64:
    """Radians per position of each pair of channels, [ceil(d_model / 2)]."""
    return base ** (-np.arange(0, d_model, 2) / d_model)


def shift_matrix(k: float, d_model: int, base: float = 10000.0) -> Float64:
    """The matrix M [d_model, d_model] with PE(p + k) = PE(p) M^T for every p: it depends on k only (POS-1).

    Each pair turns by its own angle. ``d_model`` must be even: a lone sine does not determine its shift.
    """
    if d_model % 2:
        raise ValueError(f"[shift_matrix] d_model must be even; got {d_model}")
    matrix = np.zeros((d_model, d_model))
    for r, w in enumerate(frequencies(d_model, base)):
        c, s = math.cos(k * w), math.sin(k * w)
        matrix[2 * r : 2 * r + 2, 2 * r : 2 * r + 2] = [[c, s], [-s, c]]
    return matrix
