"""What the paths built on ``mx.custom_function`` share: the error for a missing transformation, and the vmap rule."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import mlx.core as mx

from mlx_tx.arguments import AttentionSpec

Arrays = tuple[mx.array, ...]


class UnsupportedTransformError(NotImplementedError, ValueError):
    """A transformation that a path does not have (a ``ValueError`` too, as MLX raises for its own primitives)."""


def fold_axis(
    build: Callable[[AttentionSpec], Callable[..., Arrays]],
    spec: AttentionSpec,
    values: Arrays,
    axes: tuple[int | None, ...],
    outputs: tuple[int | None, ...],
) -> tuple[Arrays, tuple[int, ...]]:
    """``vmap``: the mapped axis A joins the batch, every array being laid out to A * B rows.

    ``outputs`` names, for each result, the input whose gradient it is (``None``: it has all B rows). Where that input
    had one row for the whole batch, its gradient is summed over B again.
    """
    A = next(x.shape[axis] for x, axis in zip(values, axes, strict=True) if axis is not None)
    B = spec.B
    rows, wide = [], []
    for x, axis in zip(values, axes, strict=True):
        mapped = x[None] if axis is None else mx.moveaxis(x, axis, 0)
        rows.append(mapped.shape[1])
        wide.append(mx.broadcast_to(mapped, (A, B, *mapped.shape[2:])).reshape(A * B, *mapped.shape[2:]))
    offsets = spec.offsets if spec.offsets is None or len(spec.offsets) == 1 else spec.offsets * A
    lengths = None if spec.lengths is None else spec.lengths * A
    results = []
    compute = build(replace(spec, B=A * B, offsets=offsets, lengths=lengths))
    for result, source in zip(compute(*wide), outputs, strict=True):
        parted = result.reshape(A, B, *result.shape[1:])
        one_row = source is not None and rows[source] == 1 and B != 1
        results.append(parted.sum(axis=1, keepdims=True) if one_row else parted)
    return tuple(results), (0,) * len(results)
