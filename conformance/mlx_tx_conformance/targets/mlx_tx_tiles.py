"""The tile sizes with which the kernels of ``mlx_tx`` take a call, for closed forms of what they do."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mlx_tx.arguments import AttentionSpec


def tiles_of(spec: AttentionSpec) -> dict[str, int]:
    """By the names of ``spec.count_checks.TILE_NAMES``."""
    from mlx_tx.kernels.decode import is_decode, splits_of
    from mlx_tx.kernels.tiles import decode_tile, forward_tile

    if is_decode(spec):
        tile = decode_tile(spec.group * spec.T_q, spec.D, spec.D_v, spec.dtype.size)
        return {
            "rows": 8 * tile.tiles,
            "columns": tile.ways * tile.columns,
            "splits": splits_of(spec),
            "threads": tile.threads,
        }
    block = forward_tile(spec.D, spec.D_v, spec.dtype.size)
    return {"rows": block.rows, "columns": block.columns, "splits": 1, "threads": block.threads}
