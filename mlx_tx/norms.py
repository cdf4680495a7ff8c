"""RMSNorm and LayerNorm over the last axis (NRM-1).

Statistics, normalisation and weights are float32 whatever the dtype of the input, and the result is rounded once.
``mx.fast.layer_norm`` and ``mx.fast.rms_norm`` round in between on some devices.
"""

from __future__ import annotations

import mlx.core as mx
from mlx import nn

from mlx_tx.config import NormConfig

# Squares of larger numbers may overflow float32; such rows are divided by a power of two first, which is exact. What
# becomes of eps then is below float32; anything above 0 that is as negligible keeps a constant row from 0 / 0.
_LARGE = 2.0**60
_SHRINK = 2.0**-72
_SHRUNK_EPS = 2.0**-120


def rms_norm(
    x: mx.array,
    weight: mx.array | None = None,
    bias: mx.array | None = None,
    *,
    eps: float = 1e-5,
    offset: float = 0.0,
) -> mx.array:
    """``x / sqrt(mean(x^2) + eps) * (weight + offset) + bias`` for ``x`` ``[..., C]``; same shape and dtype.

    Source: Zhang and Sennrich 2019, section 4.
    """
    wide, inside = _shrunk(x.astype(mx.float32), eps)
    return _weighed(_unit(wide, inside), weight, bias, offset).astype(x.dtype)


def layer_norm(
    x: mx.array,
    weight: mx.array | None = None,
    bias: mx.array | None = None,
    *,
    eps: float = 1e-5,
    offset: float = 0.0,
) -> mx.array:
    """``(x - mean(x)) / sqrt(var(x) + eps) * (weight + offset) + bias`` for ``x`` ``[..., C]``; same shape and dtype.

    The variance divides by C. A constant row gives the bias.

    Source: Ba et al. 2016, section 3.1.
    """
    wide, inside = _shrunk(x.astype(mx.float32), eps)
    centred = wide - mx.mean(wide, axis=-1, keepdims=True)
    # The second time takes away what the rounding of the first mean left, all of it in a constant row.
    centred = centred - mx.mean(centred, axis=-1, keepdims=True)
    return _weighed(_unit(centred, inside), weight, bias, offset).astype(x.dtype)


class Norm(nn.Module):
    """The norm of a configuration, with its ``weight`` ``[width]`` and, where it has one, ``bias``."""

    def __init__(self, width: int, config: NormConfig, *, bias: bool | None = None) -> None:
        super().__init__()
        self._config = config
        self.weight = mx.full((width,), 1.0 - config.offset)
        if config.bias if bias is None else bias:
            self.bias = mx.zeros((width,))

    def __call__(self, x: mx.array) -> mx.array:
        norm = layer_norm if self._config.kind == "layer" else rms_norm
        return norm(x, self.weight, self.get("bias"), eps=self._config.eps, offset=self._config.offset)


def _shrunk(x: mx.array, eps: float) -> tuple[mx.array, mx.array]:
    """``x`` with rows of huge numbers made smaller, and the eps that goes with every row."""
    huge = mx.stop_gradient(mx.max(mx.abs(x), axis=-1, keepdims=True)) > _LARGE
    return x * mx.where(huge, _SHRINK, 1.0), mx.where(huge, _SHRUNK_EPS, eps)


def _unit(x: mx.array, eps: mx.array) -> mx.array:
    """x / sqrt(mean(x^2) + eps)."""
    return x * mx.rsqrt(mx.mean(x * x, axis=-1, keepdims=True) + eps)


def _weighed(y: mx.array, weight: mx.array | None, bias: mx.array | None, offset: float) -> mx.array:
    if weight is not None:
        wide = weight.astype(mx.float32)
        y = y * (wide + offset if offset else wide)
    return y if bias is None else y + bias.astype(mx.float32)
