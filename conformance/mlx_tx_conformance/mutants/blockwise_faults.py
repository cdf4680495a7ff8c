"""Faults in the block-wise path: which blocks are walked, the online softmax, the recomputing backward."""

from __future__ import annotations

from .mutant import Mutant

_MASKS = "mlx_tx.masks"
_BLOCKS = "mlx_tx.paths.blocks"
_RECOMPUTE = "mlx_tx.paths.recompute"
_BLOCKWISE = "mlx_tx.paths.blockwise"
_TARGET = "mlx_tx:blockwise"

_FORWARD = (
    Mutant(
        "tail-block-dropped",
        _BLOCKS,
        "return spans(*masks.key_range(spec), block_sizes(spec)[1])",
        "found = spans(*masks.key_range(spec), block_sizes(spec)[1])\n"
        "    return found if len(found) == 1 else found[:-1]",
        "ATT-3",
        _TARGET,
        "The keys of the last block are lost.",
    ),
    Mutant(
        "block-skipped-too-early",
        _MASKS,
        "beyond = spec.right is not None and tile.k0 > tile.q1 - 1 + max(spec.offsets) + spec.right",
        "beyond = spec.right is not None and tile.k0 >= tile.q1 - 1 + max(spec.offsets) + spec.right",
        "MSK-1",
        _TARGET,
        "A block whose first key only the last query sees is skipped.",
    ),
    Mutant(
        "window-block-skipped-too-early",
        _MASKS,
        "before = spec.left is not None and tile.k1 - 1 < tile.q0 + min(spec.offsets) - spec.left",
        "before = spec.left is not None and tile.k1 - 1 < tile.q1 + min(spec.offsets) - spec.left",
        "SWA-1",
        _TARGET,
        "A block that only the first queries of the tile see is skipped.",
    ),
    Mutant(
        "key-range-too-short",
        _MASKS,
        "first = max(first, min(spec.offsets) - spec.left)",
        "first = max(first, min(spec.offsets) - spec.left + 1)",
        "SWA-1",
        _TARGET,
        "The oldest key that the first query sees is left out.",
    ),
    Mutant(
        "accumulator-not-rescaled",
        _BLOCKS,
        "acc = acc * rescale + ",
        "acc = acc + ",
        "ATT-3",
        _TARGET,
        "Earlier blocks keep the weight that they had under a lower maximum.",
    ),
    Mutant(
        "total-not-rescaled",
        _BLOCKS,
        "total = total * rescale + p.sum(axis=-1, keepdims=True)",
        "total = total + p.sum(axis=-1, keepdims=True)",
        "ATT-3",
        _TARGET,
        "The running sum keeps the weight that it had under a lower maximum.",
    ),
    Mutant(
        "infinite-maximum-subtracted",
        _BLOCKS,
        "shift = scores.or_zero(m_new, scores.NEVER)",
        "shift = m_new",
        "SEM-1",
        _TARGET,
        "-inf minus -inf in a block that is hidden whole.",
    ),
    Mutant(
        "sink-counted-for-each-block",
        _BLOCKS,
        "        m = m_new\n",
        "        m = m_new\n        if arrays.sinks is not None and k0:\n"
        "            total = total + mx.exp(arrays.sinks[:, :, None, None] - shift)\n",
        "SINK-1",
        _TARGET,
        "The sink joins once for each key block.",
    ),
    Mutant(
        "half-accumulator-blocks",
        _BLOCKS,
        "        m = m_new\n",
        "        m = m_new\n        acc = acc.astype(mx.float16).astype(mx.float32)\n",
        "PRC-1",
        _TARGET,
        "Partial outputs are kept in half precision.",
    ),
    Mutant(
        "scores-stored",
        _BLOCKS,
        "scores_per_head = max(BLOCK * BLOCK, spec.T_kv * spec.D // 16)",
        "scores_per_head = 1 << 40",
        "CPX-2",
        _TARGET,
        "One block holds everything.",
    ),
)

_BACKWARD = (
    Mutant(
        "gradient-without-delta",
        _RECOMPUTE,
        "d_scores = p * (scores.unfold(d_out_rows @ v_t, spec.N_q) - rows.delta[:, :, q0:q1])",
        "d_scores = p * scores.unfold(d_out_rows @ v_t, spec.N_q)",
        "GRAD-1",
        _TARGET,
        "The softmax's own derivative is missing its mean.",
    ),
    Mutant(
        "gradient-of-cap-missing",
        _RECOMPUTE,
        "d_raw = d_scores if bent is None else d_scores * (1 - bent * bent)",
        "d_raw = d_scores",
        "CAP-1/gradients",
        _TARGET,
        "The slope of the soft-cap is missing.",
    ),
    Mutant(
        "gradient-of-keys-unscaled",
        _RECOMPUTE,
        "dk.hold(keys, dk_block * spec.scale)",
        "dk.hold(keys, dk_block)",
        "GRAD-1",
        _TARGET,
        "dK lacks the scale.",
    ),
    Mutant(
        "gradient-of-first-head-only",
        _RECOMPUTE,
        "return x.reshape(B, spec.N_kv, spec.group, T, d).sum(axis=2)",
        "return x.reshape(B, spec.N_kv, spec.group, T, d)[:, :, 0]",
        "GRAD-1",
        _TARGET,
        "dK and dV of a group count one of its heads where a mask differs between them.",
    ),
    Mutant(
        "gradient-of-lse-ignored",
        _RECOMPUTE,
        "delta = mx.sum(saved.d_out * saved.out, axis=-1) - d_lse\n",
        "delta = mx.sum(saved.d_out * saved.out, axis=-1)\n",
        "GRAD-1/cotangent-of-the-lse",
        _TARGET,
        "The cotangent of the log-sum-exp does not count.",
    ),
    Mutant(
        "gradient-of-sinks-has-wrong-sign",
        _RECOMPUTE,
        "-mx.exp(sink - lse) * delta",
        "mx.exp(sink - lse) * delta",
        "GRAD-2/sinks",
        _TARGET,
        "The gradient of a sink has the wrong sign.",
    ),
    Mutant(
        "gradient-of-bias-not-summed",
        _RECOMPUTE,
        "axes = tuple(axis for axis in range(4) if term.shape[axis] == 1 and whole[axis] != 1)",
        "axes = tuple(axis for axis in range(1, 4) if term.shape[axis] == 1 and whole[axis] != 1)",
        "GRAD-2/bias",
        _TARGET,
        "The gradient of a bias shared by the batch rows is not summed over them.",
    ),
    Mutant(
        "gradient-of-empty-row-is-nan",
        _RECOMPUTE,
        "return Rows(scores.or_zero(saved.lse, scores.NEVER)[..., None], delta[..., None])",
        "return Rows(saved.lse[..., None], delta[..., None])",
        "SEM-1/gradients",
        _TARGET,
        "exp(-inf - -inf) in the backward.",
    ),
    Mutant(
        "second-derivative-is-zero",
        _BLOCKWISE,
        "def vjp(_values: Arrays, _cotangents: Arrays, _outputs: Arrays) -> Arrays:\n",
        "def vjp(_values: Arrays, _cotangents: Arrays, _outputs: Arrays) -> Arrays:\n"
        "        return tuple(mx.zeros_like(value) for value in _values)\n",
        "SEM-14/second-order",
        _TARGET,
        "A second derivative is silently zero.",
    ),
)

MUTANTS = _FORWARD + _BACKWARD
