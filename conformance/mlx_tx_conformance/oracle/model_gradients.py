"""Gradients through whole models in float64, by central differences of fourth order.

    f'(0) = (8 (f(h) - f(-h)) - (f(2h) - f(-2h))) / (12 h) + O(h^4)

A difference knows nothing of the chain rule, so that it cannot share a mistake with a backward pass. It is right to
about nine digits where the model is smooth; where a perturbation crosses the corner of a ReLU or changes an expert's
choice it is not, and such entries must be left out.

Source: Xiong et al. 2020, sections 3.3 and 3.4 (gradients of pre-norm and post-norm with depth); the loss: Vaswani et
al. 2017, section 5.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from . import models
from .record import Recorder
from .softmax import log_sum_exp

Float64 = NDArray[np.float64]

# Offsets in steps and their weights: the stencil of the formula above.
STENCIL = ((1, 8 / 12), (-1, -8 / 12), (2, -1 / 12), (-2, 1 / 12))


def cross_entropy(logits: ArrayLike, targets: ArrayLike, where: ArrayLike | None = None) -> float:
    """Mean over the tokens, or over those that ``where`` [B, T] marks, of -ln softmax(logits)[target], in nats."""
    scores, ids = np.asarray(logits).astype(np.float64), np.asarray(targets)
    chosen = np.take_along_axis(scores, ids[..., None], axis=-1)[..., 0]
    losses = log_sum_exp(scores) - chosen
    counted = np.ones(ids.shape, dtype=bool) if where is None else np.asarray(where, dtype=bool)
    return float(losses[counted].mean())


def loss(
    config: Mapping[str, Any],
    weights: Mapping[str, ArrayLike],
    tokens: ArrayLike,
    targets: ArrayLike,
    *,
    where: ArrayLike | None = None,
    **options: Any,
) -> float:
    """Cross-entropy of a decoder's or an encoder's logits for ``tokens`` [B, T] against ``targets`` [B, T]."""
    return cross_entropy(_run(config, weights, tokens, **options)["logits"], targets, where)


def weight_gradient(
    config: Mapping[str, Any],
    weights: Mapping[str, ArrayLike],
    tokens: ArrayLike,
    targets: ArrayLike,
    entries: Sequence[tuple[str, tuple[int, ...]]],
    *,
    step: float = 1e-3,
    **options: Any,
) -> Float64:
    """d loss / d weight at each of ``entries``, (name, index) pairs; returns [len(entries)]."""

    def at(name: str, index: tuple[int, ...]) -> Callable[[float], float]:
        def moved(h: float) -> float:
            array = np.asarray(weights[name]).astype(np.float64).copy()
            array[index] += h
            return loss(config, {**weights, name: array}, tokens, targets, **options)

        return moved

    return np.array([derivative(at(name, index), step) for name, index in entries])


def derivative(f: Callable[[float], float], step: float = 1e-3) -> float:
    """f'(0) by the stencil above."""
    return sum(share * f(k * step) for k, share in STENCIL) / step


def input_gradient(
    config: Mapping[str, Any],
    weights: Mapping[str, ArrayLike],
    x: ArrayLike,
    cotangent: ArrayLike,
    *,
    of: str = "norm",
    at: Sequence[int] | None = None,
    step: float = 1e-3,
) -> Float64:
    """Gradient of sum(stage ``of`` * ``cotangent`` [T, d_model]) with respect to the stage ``embed``, ``x``.

    ``x`` [T, d_model] is one text as it enters the first block of an encoder or a decoder; ``at`` are the positions
    whose gradients are wanted (all of them). Returns [len(at), d_model]. Every entry is moved in a batch row of its
    own, so that all of it takes a single pass.
    """
    start, d_out = np.asarray(x).astype(np.float64), np.asarray(cotangent).astype(np.float64)
    T, width = start.shape
    rows = list(range(T) if at is None else at)
    moves = np.zeros((len(rows), width, T, width))
    for n, t in enumerate(rows):
        moves[n, :, t] = step * np.eye(width)
    batch = np.concatenate([start + k * moves.reshape(-1, T, width) for k, _ in STENCIL])
    record = Recorder({"embed": batch})
    _run(config, weights, np.zeros(batch.shape[:2], dtype=np.int64), record=record)
    values = (record.values[of] * d_out).sum(axis=(1, 2)).reshape(len(STENCIL), len(rows), width)
    shares = np.array([share for _, share in STENCIL])
    return np.tensordot(shares, values, axes=1) / step


def _run(
    config: Mapping[str, Any], weights: Mapping[str, ArrayLike], tokens: ArrayLike, **options: Any
) -> dict[str, Float64]:
    run = models.encoder if config["kind"] == "encoder" else models.decoder
    return run(config, weights, tokens, **options)
