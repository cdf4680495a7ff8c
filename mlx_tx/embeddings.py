"""Tables of token embeddings and learned positions."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
from mlx import nn


class Embedding(nn.Module):
    """A table ``weight`` ``[vocab, d_model]``; :meth:`as_linear` is the tied output head (EMB-1)."""

    def __init__(self, vocab_size: int, d_model: int) -> None:
        super().__init__()
        self.weight = mx.random.normal((vocab_size, d_model), scale=d_model**-0.5)

    def __call__(self, ids: mx.array, *, check: bool = False) -> mx.array:
        """Rows for integer ``ids`` ``[...]``: ``[..., d_model]``.

        An id outside 0..vocab - 1 gives a row of NaN, and with ``check``, which reads the ids, a ``ValueError``: never
        the row of another id.
        """
        return rows(self.weight, ids, function="Embedding", name="ids", check=check)

    def as_linear(self, x: mx.array) -> mx.array:
        """x weight^T: logits ``[..., vocab]``."""
        return x @ self.weight.T


class LearnedPositions(nn.Module):
    """A trained row ``weight[p]`` for every position p < ``max_positions``; there is none beyond (POS-2)."""

    def __init__(self, max_positions: int, d_model: int) -> None:
        super().__init__()
        self.weight = mx.random.normal((max_positions, d_model), scale=0.02)

    def __call__(self, positions: mx.array, *, check: bool = False) -> mx.array:
        """Rows for integer ``positions`` ``[...]``; outside the table NaN, and with ``check`` a ``ValueError``."""
        return rows(self.weight, positions, function="LearnedPositions", name="positions", check=check)


def rows(table: mx.array, ids: Any, *, function: str, name: str, check: bool) -> mx.array:
    """Rows of ``table`` ``[n, d]`` for integer ``ids`` ``[...]``; NaN, or an error with ``check``, outside 0..n - 1."""
    if not isinstance(ids, mx.array):
        ids = mx.array(ids)
    if not mx.issubdtype(ids.dtype, mx.integer):
        raise TypeError(f"[{function}] {name} must hold integers; got {ids.dtype}")
    n = table.shape[0]
    inside = ids < n
    if mx.issubdtype(ids.dtype, mx.signedinteger):
        inside = mx.logical_and(inside, ids >= 0)
    if check and ids.size:
        wrong = mx.where(inside, 0, ids.astype(mx.int64))
        bad = mx.any(~inside)
        try:
            mx.eval(bad, wrong)
        except ValueError as error:
            raise ValueError(f"[{function}] check=True reads {name}, which compile and vmap do not allow") from error
        if bad.item():
            first = wrong.reshape(-1)[mx.argmax(~inside.reshape(-1)).item()].item()
            raise ValueError(f"[{function}] {name} must lie in 0..{n - 1}; got {first}")
    found = table[mx.where(inside, ids, 0)]
    return mx.where(inside[..., None], found, mx.array(float("nan"), dtype=table.dtype))
