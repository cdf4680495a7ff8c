"""Walking over the scores in blocks: the partition, the order of evaluation, and the online softmax.

The scores of one block live at a time. m is the running row maximum, total the running sum of exp(s - m), acc the
running product with V; a new block rescales them by exp(m_old - m_new) (Milakov and Gimelshein 2018; Dao et al. 2022,
Algorithm 1). Extra memory is linear in T (CPX-4).
"""

from __future__ import annotations

import mlx.core as mx

from mlx_tx import masks
from mlx_tx.arguments import AttentionArrays, AttentionSpec
from mlx_tx.masks import Tile
from mlx_tx.paths import scores

Span = tuple[int, int]

BLOCK = 128  # smallest side of a block


def block_sizes(spec: AttentionSpec) -> Span:
    """Queries and keys of one block.

    A block of one head holds BLOCK^2 scores, or T_kv * D / 16 where that is more: then the memory of a block and the
    number of blocks both grow linearly with T. Few queries (decoding) take more keys at a time.
    """
    scores_per_head = max(BLOCK * BLOCK, spec.T_kv * spec.D // 16)
    q_size = BLOCK
    while 4 * q_size * q_size <= scores_per_head:
        q_size *= 2
    return q_size, scores_per_head // min(q_size, spec.T_q)


def spans(first: int, end: int, size: int) -> list[Span]:
    """[first, end) in pieces of ``size``."""
    return [(start, min(start + size, end)) for start in range(first, end, size)]


def query_spans(spec: AttentionSpec) -> list[Span]:
    """The query blocks of a call."""
    return spans(0, spec.T_q, block_sizes(spec)[0])


def key_spans(spec: AttentionSpec) -> list[Span]:
    """The key blocks of a call, over the keys that some query may see."""
    return spans(*masks.key_range(spec), block_sizes(spec)[1])


def tiles_of(spec: AttentionSpec, keys: Span) -> list[Tile]:
    """The tiles of one key block that the host cannot rule out."""
    tiles = [Tile(*rows, *keys) for rows in query_spans(spec)]
    return [tile for tile in tiles if not masks.is_ruled_out(spec, tile)]


class Chain:
    """Makes the blocks of a lazy graph run one after another.

    MLX evaluates a graph breadth first, so that independent blocks would all be alive at once. An operand of each
    block is multiplied by a number that is computed from the results of the block before it. (``mx.depends`` does the
    same, but has no ``vmap`` and no ``jvp`` rule.)
    """

    def __init__(self) -> None:
        self.last: tuple[mx.array, ...] = ()

    def wait(self, x: mx.array, factor: float = 1.0) -> mx.array:
        """``factor * x``, available only once the last finished block is."""
        number = mx.array(factor, dtype=mx.float32)
        if not self.last:
            return x * number
        ready = sum((y[:1, :1, :1, :1] for y in self.last[1:]), self.last[0][:1, :1, :1, :1])
        return x * mx.where(mx.array(True), number, ready)

    def finish(self, *results: mx.array) -> None:
        """Names the rank-4 results that the next block waits for."""
        self.last = results


def forward(spec: AttentionSpec, arrays: AttentionArrays) -> tuple[mx.array, mx.array]:
    """Output float32 ``[B, N_q, T_q, D_v]`` and log-sum-exp float32 ``[B, N_q, T_q]``, as a plain MLX graph."""
    chain = Chain()
    outs, lses = [], []
    for q0, q1 in query_spans(spec):
        out, lse = _rows(spec, arrays, q0, q1, chain)
        outs.append(out)
        lses.append(lse)
    return mx.concatenate(outs, axis=2), mx.concatenate(lses, axis=2)


def _rows(spec: AttentionSpec, arrays: AttentionArrays, q0: int, q1: int, chain: Chain) -> tuple[mx.array, mx.array]:
    """Output and log-sum-exp of one block of queries."""
    rows = (spec.B, spec.N_q, q1 - q0)
    if arrays.sinks is None:
        m = mx.full((*rows, 1), scores.NEVER, dtype=mx.float32)
        total = mx.zeros((*rows, 1), dtype=mx.float32)
    else:
        # The sink is a first block of one key without a value.
        m = mx.broadcast_to(arrays.sinks[:, :, None, None], (*rows, 1))
        total = mx.exp(m - scores.or_zero(m, scores.NEVER))
    acc = mx.zeros((*rows, spec.D_v), dtype=mx.float32)
    q = arrays.q[:, :, q0:q1].astype(mx.float32)
    for k0, k1 in key_spans(spec):
        tile = Tile(q0, q1, k0, k1)
        if masks.is_ruled_out(spec, tile):
            continue
        k, v = scores.keys_and_values(spec, arrays, k0, k1)
        heads = k.shape[1]
        # A product with a transposed second factor is slow in the reference BLAS of MLX's Linux wheel.
        k_t = mx.contiguous(chain.wait(k.swapaxes(-1, -2), spec.scale))
        raw = scores.unfold(scores.fold(q, heads) @ k_t, spec.N_q)
        s = scores.finished(spec, arrays, scores.soft_capped(spec, raw)[0], tile)
        m_new = mx.maximum(m, s.max(axis=-1, keepdims=True))
        shift = scores.or_zero(m_new, scores.NEVER)
        p = mx.exp(s - shift)
        rescale = mx.exp(m - shift)
        total = total * rescale + p.sum(axis=-1, keepdims=True)
        acc = acc * rescale + scores.unfold(scores.fold(p, heads) @ v, spec.N_q)
        m = m_new
        chain.finish(acc)
    empty = total == 0
    safe = mx.where(empty, mx.ones((), dtype=mx.float32), total)
    lse = mx.where(empty, mx.array(scores.NEVER, dtype=mx.float32), m + mx.log(safe))
    out = acc / safe
    chain.finish(out)
    return out, lse.squeeze(-1)
