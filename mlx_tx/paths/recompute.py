"""The backward of the blockwise path: every block of weights is computed again from the saved log-sum-exp.

With p = exp(s - lse), dP = dO V^T and Delta = rowsum(dO * O) - dLSE, the gradient of the scores is dS = p (dP - Delta)
(Dao et al. 2022, Appendix B.2; the dLSE term is the derivative of log-sum-exp). Blocks run one after another.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import mlx.core as mx

from mlx_tx import masks
from mlx_tx.arguments import AttentionArrays, AttentionSpec
from mlx_tx.masks import Tile
from mlx_tx.paths import scores
from mlx_tx.paths.blocks import Chain, Span, key_spans, tiles_of

TILES_BETWEEN_WRITES = 4  # of some 27 operations each; MLX's CPU backend runs about 50 operations ahead


@dataclass(frozen=True)
class Saved:
    """Outputs of the forward and the cotangents that came back for them, all float32."""

    out: mx.array
    lse: mx.array
    d_out: mx.array
    d_lse: mx.array


@dataclass(frozen=True)
class TileGradient:
    """One recomputed block. ``d_scores`` is the gradient after the soft-cap, ``d_raw`` before it."""

    tile: Tile
    heads: int
    q: mx.array  # folded
    k: mx.array  # scaled
    d_out: mx.array  # folded
    weights: mx.array
    d_scores: mx.array
    d_raw: mx.array


@dataclass(frozen=True)
class Rows:
    """What the backward needs of every query row, ``[B, N_q, T_q, 1]``: lse (0 where empty) and Delta."""

    shift: mx.array
    delta: mx.array

    @staticmethod
    def of(saved: Saved) -> Rows:
        # An empty row has lse -inf; whatever a loss makes of that must not come back as inf * 0.
        d_lse = mx.where(mx.isneginf(saved.lse), mx.zeros((), dtype=mx.float32), saved.d_lse)
        delta = mx.sum(saved.d_out * saved.out, axis=-1) - d_lse
        return Rows(scores.or_zero(saved.lse, scores.NEVER)[..., None], delta[..., None])


def tiles(
    spec: AttentionSpec, arrays: AttentionArrays, d_out: mx.array, rows: Rows, keys: Span, chain: Chain
) -> Iterator[TileGradient]:
    """The recomputed tiles of one key block, except those that the host can rule out."""
    k, v = scores.keys_and_values(spec, arrays, *keys)
    k, v = chain.wait(k, spec.scale), chain.wait(v)
    heads = k.shape[1]
    k_t, v_t = (mx.contiguous(x.swapaxes(-1, -2)) for x in (k, v))
    for tile in tiles_of(spec, keys):
        q0, q1 = tile.q0, tile.q1
        q = scores.fold(chain.wait(arrays.q[:, :, q0:q1].astype(mx.float32)), heads)
        d_out_rows = scores.fold(d_out[:, :, q0:q1], heads)
        capped, bent = scores.soft_capped(spec, scores.unfold(q @ k_t, spec.N_q))
        p = mx.exp(scores.finished(spec, arrays, capped, tile) - rows.shift[:, :, q0:q1])
        d_scores = p * (scores.unfold(d_out_rows @ v_t, spec.N_q) - rows.delta[:, :, q0:q1])
        d_raw = d_scores if bent is None else d_scores * (1 - bent * bent)
        yield TileGradient(tile, heads, q, k, d_out_rows, p, d_scores, d_raw)


def all_tiles(spec: AttentionSpec, arrays: AttentionArrays, saved: Saved, chain: Chain) -> Iterator[TileGradient]:
    """The tiles of every key block, one after another."""
    rows = Rows.of(saved)
    for keys in key_spans(spec):
        yield from tiles(spec, arrays, saved.d_out, rows, keys, chain)


def inputs(spec: AttentionSpec, arrays: AttentionArrays, saved: Saved) -> tuple[mx.array, mx.array, mx.array]:
    """Gradients of q, k and v, in their dtypes."""
    chain = Chain()
    dq: dict[Span, mx.array] = {}
    dk, dv = _InPlace(arrays.k), _InPlace(arrays.v)
    stats = Rows.of(saved)
    done, to_do = 0, sum(len(tiles_of(spec, keys)) for keys in key_spans(spec))
    for keys in key_spans(spec):
        dk_block = dv_block = None
        for part in tiles(spec, arrays, saved.d_out, stats, keys, chain):
            rows = (part.tile.q0, part.tile.q1)
            d_raw = scores.fold(part.d_raw, part.heads)
            weights = scores.fold(part.weights, part.heads)
            _accumulate(dq, rows, scores.unfold(d_raw @ part.k, spec.N_q))
            dk_part = _per_kv_head(spec, d_raw.swapaxes(-1, -2) @ part.q)
            dv_part = _per_kv_head(spec, weights.swapaxes(-1, -2) @ part.d_out)
            dk_block = dk_part if dk_block is None else dk_block + dk_part
            dv_block = dv_part if dv_block is None else dv_block + dv_part
            chain.finish(dq[rows], dk_block, dv_block)
            done += 1
        if dk_block is None or dv_block is None:
            continue
        dk.hold(keys, dk_block * spec.scale)
        dv.hold(keys, dv_block)
        if min(done, to_do - done) >= TILES_BETWEEN_WRITES:
            chain.finish(*chain.last, dk.written(), dv.written())
            done, to_do = 0, to_do - done
    return _joined(dq, arrays.q), dk.written(), dv.written()


class _InPlace:
    """A gradient that is filled along its third axis, so that no second copy of it exists at the end.

    MLX writes in place where nothing else holds the array. What the chain reads of it does, until it has run; hence
    the distance of some tiles between two writes.
    """

    def __init__(self, like: mx.array) -> None:
        self._whole = mx.zeros_like(like)
        self._held: dict[Span, mx.array] = {}

    def hold(self, at: Span, block: mx.array) -> None:
        """Keeps a block for the next write."""
        self._held[at] = block.astype(self._whole.dtype)

    def written(self) -> mx.array:
        """The gradient with every held block in its place."""
        for (start, end), block in self._held.items():
            self._whole[:, :, start:end] = block
        self._held.clear()
        return self._whole


def sinks(arrays: AttentionArrays, saved: Saved) -> mx.array:
    """Gradient of the sinks, ``[1 or B, N_q]``: a key that has a weight but no value."""
    assert arrays.sinks is not None
    sink = arrays.sinks[:, :, None]
    seen = ~mx.isneginf(saved.lse)
    lse = mx.where(seen, saved.lse, mx.zeros((), dtype=mx.float32))
    delta = mx.sum(saved.d_out * saved.out, axis=-1) - saved.d_lse
    d_sink = mx.where(seen, -mx.exp(sink - lse) * delta, mx.zeros((), dtype=mx.float32))
    return mx.sum(d_sink, axis=(0, 2) if arrays.sinks.shape[0] == 1 else 2).reshape(arrays.sinks.shape)


def added(spec: AttentionSpec, arrays: AttentionArrays, saved: Saved, name: str) -> mx.array:
    """Gradient of an additive ``mask`` or ``bias``: that of the scores, summed over the axes it was broadcast along."""
    term = getattr(arrays, name)
    whole = (spec.B, spec.N_q, spec.T_q, spec.T_kv)
    axes = tuple(axis for axis in range(4) if term.shape[axis] == 1 and whole[axis] != 1)
    chain = Chain()
    grid: dict[tuple[Span, Span], mx.array] = {}
    for part in all_tiles(spec, arrays, saved, chain):
        rows = (0, 1) if term.shape[2] == 1 else (part.tile.q0, part.tile.q1)
        keys = (0, 1) if term.shape[3] == 1 else (part.tile.k0, part.tile.k1)
        _accumulate(grid, (rows, keys), mx.sum(part.d_scores, axis=axes, keepdims=True) if axes else part.d_scores)
        chain.finish(grid[rows, keys])
    strips: dict[Span, mx.array] = {}
    for rows in {rows for rows, _ in grid}:
        strip = {keys: x for (at, keys), x in grid.items() if at == rows}
        strips[rows] = _joined(strip, term[:, :, rows[0] : rows[1]], axis=3)
    return _joined(strips, term)


def slopes(spec: AttentionSpec, arrays: AttentionArrays, saved: Saved) -> mx.array:
    """Gradient of the ALiBi slopes, ``[1 or B, N_q]``: minus the score gradients weighted by distance."""
    assert arrays.slopes is not None
    shape = (*arrays.slopes.shape, 1, 1)
    axes = (0, 2, 3) if arrays.slopes.shape[0] == 1 else (2, 3)
    chain = Chain()
    total = mx.zeros(shape, dtype=mx.float32)
    for part in all_tiles(spec, arrays, saved, chain):
        weighted = part.d_scores * masks.distances(arrays, part.tile)
        total = total - mx.sum(weighted, axis=axes).reshape(shape)
        chain.finish(total)
    return total.reshape(arrays.slopes.shape)


def _accumulate(store: dict, at: object, x: mx.array) -> None:
    store[at] = store[at] + x if at in store else x


def _per_kv_head(spec: AttentionSpec, x: mx.array) -> mx.array:
    """Sums over the query heads of a group where K and V were repeated for them."""
    if x.shape[1] == spec.N_kv:
        return x
    B, _, T, d = x.shape
    return x.reshape(B, spec.N_kv, spec.group, T, d).sum(axis=2)


def _joined(parts: dict[Span, mx.array], like: mx.array, axis: int = 2) -> mx.array:
    """The parts laid along ``axis`` in the shape and dtype of ``like``, zeros where no part reaches."""
    pieces, at = [], 0

    def gap(end: int) -> None:
        if end > at:
            pieces.append(mx.zeros((*like.shape[:axis], end - at, *like.shape[axis + 1 :]), dtype=like.dtype))

    for (start, end), part in sorted(parts.items(), key=lambda item: item[0]):
        gap(start)
        pieces.append(part.astype(like.dtype))
        at = end
    gap(like.shape[axis])
    return mx.concatenate(pieces, axis=axis) if len(pieces) > 1 else pieces[0]
