"""The fixed sine and cosine table of the original Transformer (POS-1)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import mlx.core as mx
import numpy as np

from mlx_tx.angles import angles


def sinusoidal_positions(
    positions: mx.array | np.ndarray | Sequence[int] | int, dims: int, *, base: float = 10000.0, scale: float = 1.0
) -> mx.array:
    """Rows of the sinusoidal table, float32 ``[..., dims]`` for integer ``positions`` ``[...]``.

    .. code-block:: text

        PE(p, 2i) = scale * sin(p * base^(-2i / dims)),   PE(p, 2i + 1) = scale * cos(p * base^(-2i / dims))

    Right to float32 at any integer position, as the angle is exact modulo a turn. An odd ``dims`` ends with a sine
    whose cosine has no channel left; ``scale=0`` gives zeros.

    Source: Vaswani et al. 2017, section 3.5.
    """
    if isinstance(dims, bool) or not isinstance(dims, int):
        raise TypeError(f"[sinusoidal_positions] dims must be an integer; got {dims!r}")
    if dims < 1:
        raise ValueError(f"[sinusoidal_positions] dims must be >= 1; got {dims}")
    for name, value in (("base", base), ("scale", scale)):
        if not math.isfinite(value) or (name == "base" and value <= 0):
            raise ValueError(
                f"[sinusoidal_positions] {name} must be finite{' and > 0' if name == 'base' else ''}; got {value!r}"
            )
    at = positions if isinstance(positions, mx.array) else mx.array(np.asarray(positions))
    if not mx.issubdtype(at.dtype, mx.integer):
        raise TypeError(f"[sinusoidal_positions] positions must hold integers; got {at.dtype}")
    turned = angles(at.reshape(1, -1), [base ** (-2.0 * i / dims) for i in range((dims + 1) // 2)])
    table = mx.stack([mx.sin(turned), mx.cos(turned)], axis=-1).reshape(*at.shape, -1)
    return table[..., :dims] * mx.array(scale, dtype=mx.float32)
