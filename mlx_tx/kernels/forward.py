"""``attention_forward`` for one call: tile, grid and outputs."""

from __future__ import annotations

import mlx.core as mx

from mlx_tx.arguments import AttentionArrays, AttentionSpec
from mlx_tx.kernels.chassis import Work, kernel, operands, switches
from mlx_tx.kernels.tiles import forward_tile, padded


def forward_work(spec: AttentionSpec, arrays: AttentionArrays) -> Work:
    """The launch whose outputs are out ``[B, N_q, T_q, D_v]`` in the dtype of the call, and lse, float32 [B, N_q, T_q].

    The log-sum-exp is always written, a number a row: the backward needs it, and nothing tells the forward whether
    there will be one.
    """
    tile = forward_tile(spec.D, spec.D_v, spec.dtype.size)
    rows = (spec.B, spec.N_q, spec.T_q)
    return Work(
        kernel("attention_forward"),
        operands(spec, arrays),
        ((*rows, spec.D_v), rows),
        (spec.dtype, mx.float32),
        (-(-spec.T_q // tile.rows), spec.N_q, spec.B),
        tile.threads,
        (
            ("T", spec.dtype),
            ("D", padded(spec.D)),
            ("D_V", padded(spec.D_v)),
            ("ROWS", tile.rows),
            ("COLUMNS", tile.columns),
            *switches(spec, arrays),
            ("SINKS", arrays.sinks is not None),
        ),
    )
