"""From queries and keys to scores, for one tile: the one place where scale, soft-cap, biases and masks meet.

s = softcap(scale * q.k) + ALiBi + bias + additive mask, and -inf where a key is hidden; all of it in float32 whatever
the dtype of the inputs (PRC-1). The composed and the blockwise path both come here.
"""

from __future__ import annotations

import mlx.core as mx

from mlx_tx import masks
from mlx_tx.arguments import AttentionArrays, AttentionSpec
from mlx_tx.masks import Tile

NEVER = float("-inf")


def keys_and_values(spec: AttentionSpec, arrays: AttentionArrays, k0: int, k1: int) -> tuple[mx.array, mx.array]:
    """K and V of keys k0..k1-1 in float32, zero where no query may see them: ``[B, heads, k1 - k0, D or D_v]``.

    ``heads`` is N_kv, or N_q where a mask hides a key from one query head and not from another of its group.
    """
    keep = masks.visible_keys(spec, arrays, k0, k1)
    parts = []
    for x in (arrays.k, arrays.v):
        part = x[:, :, k0:k1].astype(spec.wide)
        if keep is not None:
            if keep.shape[1] != 1 and spec.group > 1:
                part = mx.repeat(part, spec.group, axis=1)
            part = mx.where(keep, part, mx.zeros((), dtype=mx.float32))
        parts.append(part)
    return parts[0], parts[1]


def fold(x: mx.array, heads: int) -> mx.array:
    """``[B, N_q, T, d]`` with the query heads of a group laid end to end: ``[B, heads, N_q / heads * T, d]``.

    One product then serves the whole group, and query head h meets K/V head h // group (GQA-1).
    """
    B, N_q, T, d = x.shape
    return x.reshape(B, heads, N_q // heads * T, d)


def unfold(x: mx.array, N_q: int) -> mx.array:
    """The inverse of :func:`fold`."""
    B, heads, rows, d = x.shape
    return x.reshape(B, N_q, heads * rows // N_q, d)


def soft_capped(spec: AttentionSpec, raw: mx.array) -> tuple[mx.array, mx.array | None]:
    """softcap * tanh(raw / softcap), and the tanh for the backward; ``raw`` and ``None`` without a soft-cap."""
    if spec.softcap is None:
        return raw, None
    bent = mx.tanh(raw / spec.softcap)
    return bent * spec.softcap, bent


def finished(spec: AttentionSpec, arrays: AttentionArrays, capped: mx.array, tile: Tile) -> mx.array:
    """The scores of the tile with every bias added and -inf where a key is hidden."""
    s = capped
    for term in masks.added(arrays, tile):
        s = s + term
    seen = masks.allowed(spec, arrays, tile)
    return s if seen is None else mx.where(seen, s, mx.array(NEVER, dtype=mx.float32))


def or_zero(x: mx.array, when: float) -> mx.array:
    """``x`` with 0 in the place of ``when``: a stand-in for rows that see nothing, so that no NaN arises there."""
    return mx.where(x == when, mx.zeros((), dtype=x.dtype), x)
