"""NumPy to MLX and back, bit for bit (bfloat16 included)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import ml_dtypes
import numpy as np


def to_mlx(array: np.ndarray) -> Any:
    """An MLX array of the same dtype and values."""
    import mlx.core as mx

    if array.dtype == ml_dtypes.bfloat16:
        return mx.array(np.ascontiguousarray(array).view(np.uint16)).view(mx.bfloat16).reshape(array.shape)
    return mx.array(array)


def to_numpy(array: Any) -> np.ndarray:
    """The NumPy array of an MLX array (or of anything that NumPy takes). A copy."""
    import mlx.core as mx

    if not isinstance(array, mx.array):
        return np.array(array)
    if array.dtype == mx.bfloat16:
        # NumPy has no bfloat16 of its own; the 16 bits travel as an integer (a scalar has no view, hence the reshape).
        bits = np.array(array.reshape(-1).view(mx.uint16))
        return bits.view(ml_dtypes.bfloat16).reshape(array.shape)
    return np.array(array)


def paired(arrays: Mapping[str, Any]) -> dict[str, Any]:
    """The arrays with the two of a segment pair as one argument, as an implementation is given them."""
    given = dict(arrays)
    if "q_segments" in given:
        given["segments"] = (given.pop("q_segments"), given.pop("kv_segments"))
    return given
