"""Softmax and log-sum-exp in float64, over all entries or over an allowed set, with or without a sink.

For logits s of one row and its maximum m (which cancels, and keeps exp from overflowing):

    weights_j = exp(s_j - m) / l        l = sum_j exp(s_j - m)        lse = m + ln l

An entry of -inf has no weight. A row in which every entry is -inf, or which has no entry, has weights 0 and
lse -inf, never NaN (SEM-1). NaN or +inf in an entry that counts gives NaN.

Source: Vaswani et al. 2017, section 3.2.1; sinks: Xiao et al. 2023, "Efficient Streaming Language Models with
Attention Sinks", section 3.2, in the form of one learned logit per head.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

Float64 = NDArray[np.float64]


def softmax(x: ArrayLike, axis: int = -1) -> Float64:
    """Softmax of ``x`` along ``axis``; same shape, float64."""
    rows = np.moveaxis(np.asarray(x).astype(np.float64), axis, -1)
    return np.moveaxis(normalise(rows)[0], -1, axis)


def log_sum_exp(x: ArrayLike, axis: int = -1) -> Float64:
    """ln sum exp(x) along ``axis``, which disappears; float64."""
    return normalise(np.moveaxis(np.asarray(x).astype(np.float64), axis, -1))[2]


def normalise(logits: Float64, sink: Float64 | None = None) -> tuple[Float64, Float64, Float64]:
    """Softmax over the last axis of ``logits`` [..., T], joined by one more logit per row where ``sink`` is given.

    ``sink`` broadcasts to [...] and takes part in the maximum and the denominator; it has no entry in the weights.
    Returns (weights [..., T], weight of the sink [...], lse [...] with the sink included). A row whose entries are
    all -inf but which has a finite sink gives all its weight to the sink: weights 0, lse equal to the sink.
    """
    top = np.max(logits, axis=-1, initial=-np.inf)
    if sink is not None:
        top = np.maximum(top, sink)
    # A row without any logit has maximum -inf, and -inf - -inf would be NaN.
    shift = np.where(np.isneginf(top), 0.0, top)
    with np.errstate(invalid="ignore"):
        weights = np.exp(logits - shift[..., None])
        sink_weight = np.zeros_like(shift) if sink is None else np.exp(sink - shift)
    total = weights.sum(axis=-1) + sink_weight
    empty = total == 0
    divisor = np.where(empty, 1.0, total)
    weights /= divisor[..., None]
    lse = np.where(empty, -np.inf, shift + np.log(divisor))
    return weights, sink_weight / divisor, lse
