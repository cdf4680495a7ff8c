"""Embedding tables in float64: token ids to rows, learned positions to rows, and the tied output head.

    embed(ids)[...] = scale * table[ids]        logits = x table^T

Source: Vaswani et al. 2017, section 3.4 (shared table, scale sqrt(d_model)); learned positions: Gehring et al. 2017,
"Convolutional Sequence to Sequence Learning", section 3.1.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

Float64 = NDArray[np.float64]


def embed(ids: ArrayLike, table: ArrayLike, *, scale: float = 1.0, check: bool = False) -> Float64:
    """Rows of ``table`` [vocab, d_model] for integer ``ids`` [...], times ``scale``; returns [..., d_model] (EMB-1).

    An id outside 0..vocab - 1, a negative one included, gives a row of NaN, and with ``check`` a ``ValueError``:
    never the row of another id.
    """
    return scale * _rows("embed", "ids", ids, table, check)


def learned_positions(positions: ArrayLike, table: ArrayLike, *, check: bool = True) -> Float64:
    """Rows of ``table`` [max_positions, d_model] for integer ``positions`` [...]; returns [..., d_model] (POS-2).

    The table has no row for a position that was never trained: a ``ValueError``, or a row of NaN without ``check``.
    """
    return _rows("learned_positions", "positions", positions, table, check)


def output_head(x: ArrayLike, table: ArrayLike) -> Float64:
    """Logits x table^T for ``x`` [..., d_model] and ``table`` [vocab, d_model]; tied where it is the embedding's."""
    return np.asarray(x).astype(np.float64) @ np.asarray(table).astype(np.float64).T


def _rows(function: str, name: str, ids: ArrayLike, table: ArrayLike, check: bool) -> Float64:
    index = np.asarray(ids)
    if index.dtype.kind not in "iu":
        raise TypeError(f"[{function}] {name} must hold integers; got {index.dtype}")
    rows = np.asarray(table).astype(np.float64)
    if rows.ndim != 2:
        raise ValueError(f"[{function}] table must have two axes; got shape {rows.shape}")
    outside = (index < 0) | (index >= len(rows))
    if check and outside.any():
        raise ValueError(f"[{function}] {name} must lie in 0..{len(rows) - 1}; got {index[outside].flat[0]}")
    found = np.full((*index.shape, rows.shape[1]), np.nan)
    found[~outside] = rows[index[~outside]]
    return found
