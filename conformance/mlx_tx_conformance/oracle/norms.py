"""RMSNorm and LayerNorm over the last axis, in float64.

    rms_norm(x)   = x / sqrt(mean(x^2) + eps) * (weight + offset)
    layer_norm(x) = (x - mean(x)) / sqrt(var(x) + eps) * (weight + offset) + bias

The variance divides by the number of channels; eps stands inside the root.

Sources: Zhang and Sennrich 2019, "Root Mean Square Layer Normalization", section 4; Ba et al. 2016, "Layer
Normalization", section 3.1. The offset, 1, is that of Gemma, which stores weight - 1.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

Float64 = NDArray[np.float64]


def rms_norm(x: ArrayLike, weight: ArrayLike | None = None, *, eps: float = 1e-5, offset: float = 0.0) -> Float64:
    """RMSNorm of ``x`` [..., C] with ``weight`` [C] (none: 1, whatever the offset); same shape (NRM-1)."""
    array = np.asarray(x).astype(np.float64)
    return _weigh(array / np.sqrt((array**2).mean(axis=-1, keepdims=True) + eps), weight, offset)


def layer_norm(
    x: ArrayLike,
    weight: ArrayLike | None = None,
    bias: ArrayLike | None = None,
    *,
    eps: float = 1e-5,
    offset: float = 0.0,
) -> Float64:
    """LayerNorm of ``x`` [..., C] with ``weight`` and ``bias`` [C] (none: 1 and 0); same shape (NRM-1).

    A constant row has centred values of 0 and gives the bias.
    """
    array = np.asarray(x).astype(np.float64)
    # A mean of equal numbers may miss them by rounding; the first channel as origin makes a constant row exact.
    array = array - array[..., :1]
    centred = array - array.mean(axis=-1, keepdims=True)
    y = _weigh(centred / np.sqrt((centred**2).mean(axis=-1, keepdims=True) + eps), weight, offset)
    return y if bias is None else y + np.asarray(bias).astype(np.float64)


def _weigh(y: Float64, weight: ArrayLike | None, offset: float) -> Float64:
    return y if weight is None else y * (np.asarray(weight).astype(np.float64) + offset)
