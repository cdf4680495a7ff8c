"""Softmax as attention means it: float32 inside, and zeros rather than NaN where nothing is allowed."""

from __future__ import annotations

import mlx.core as mx


def softmax(x: mx.array, axis: int = -1) -> mx.array:
    """``exp(x) / sum(exp(x))`` along ``axis``, computed in float32, in the dtype of ``x`` (ATT-3).

    The maximum is subtracted first, so that large values do not overflow. A row that is -inf throughout gives zeros
    (SEM-1), where ``mx.softmax`` gives NaN.
    """
    if x.dtype not in (mx.float32, mx.float16, mx.bfloat16):
        name = str(x.dtype).removeprefix("mlx.core.")
        raise TypeError(f"[softmax] x must be float32, float16 or bfloat16; got {name}")
    wide = x.astype(mx.float32)
    top = mx.stop_gradient(wide.max(axis=axis, keepdims=True))
    top = mx.where(mx.isneginf(top), mx.zeros_like(top), top)
    weights = mx.exp(wide - top)
    total = weights.sum(axis=axis, keepdims=True)
    return (weights / mx.where(total == 0, mx.ones_like(total), total)).astype(x.dtype)
