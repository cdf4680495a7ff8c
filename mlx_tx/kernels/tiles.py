"""Tile sizes of the attention kernels, chosen so that threadgroup memory and registers fit every Apple GPU.

A threadgroup has at most 32 KB of memory; two must be resident on a core of about 60 KB, so the aim is at most 29 KB.
Up to 384 threads of 128 registers fit the register file of an M1; the kernels use at most 128 threads.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

LARGEST_HEAD = 256
MOST_BYTES = 32768
AIM_BYTES = 29 * 1024
FEW_QUERIES = 8
# Few queries against fewer keys than this are the forward kernel's: a second pass would not pay.
LONG_CACHE = 256


def padded(size: int) -> int:
    """A head size rounded up to whole fragments."""
    return -(-size // 8) * 8


def row_bytes(size: int, itemsize: int) -> int:
    """Bytes of a staged row: the padded head size, and 16 bytes against bank conflicts."""
    return padded(size) * itemsize + 16


@dataclass(frozen=True)
class ForwardTile:
    """Queries and keys of one step of ``attention_forward``, and its bytes of threadgroup memory without segments."""

    rows: int
    columns: int
    bytes: int

    @property
    def threads(self) -> int:
        return 4 * self.rows


@dataclass(frozen=True)
class DecodeTile:
    """Row tiles of 8, ways that deal out the keys, and keys a way, of one step of ``attention_decode``."""

    tiles: int
    ways: int
    columns: int
    bytes: int

    @property
    def threads(self) -> int:
        return 32 * self.tiles * self.ways


def _forward_bytes(rows: int, columns: int, D: int, D_v: int, itemsize: int) -> int:
    return rows * row_bytes(D, itemsize) + columns * row_bytes(max(D, D_v), itemsize)


@lru_cache(maxsize=256)
def forward_tile(D: int, D_v: int, itemsize: int) -> ForwardTile:
    """32 queries against 32 keys, or 16 keys from D = 128 on (registers); smaller where float32 would not fit."""
    sizes = ((32, 32), (32, 16), (16, 16), (16, 8))
    for rows, columns in sizes[1 if max(D, D_v) >= 128 else 0 :]:
        size = _forward_bytes(rows, columns, D, D_v, itemsize)
        if size <= AIM_BYTES:
            return ForwardTile(rows, columns, size)
    raise ValueError(f"[mlx_tx] head sizes must be at most {LARGEST_HEAD}; got D={D}, D_v={D_v}")


def _decode_bytes(tiles: int, ways: int, columns: int, D: int, D_v: int, itemsize: int) -> int:
    rows = 8 * tiles
    staged = ways * columns * row_bytes(max(D, D_v), itemsize)
    sums = rows * (padded(D_v) + 2) * 4 if ways > 1 else 0
    return rows * row_bytes(D, itemsize) + max(staged, sums)


@lru_cache(maxsize=256)
def decode_tile(rows: int, D: int, D_v: int, itemsize: int) -> DecodeTile:
    """Four simdgroups for up to 32 ``rows`` of a K/V head: as many row tiles as are needed, the rest share the keys."""
    tiles = next(n for n in (1, 2, 4) if 8 * n >= min(rows, 32))
    fewer = min(tiles, 2)  # float32 with the largest heads: half the simdgroups
    choices = ((tiles, 4 // tiles, 16, 12 * 1024), (tiles, 4 // tiles, 8, AIM_BYTES), (fewer, 2 // fewer, 8, AIM_BYTES))
    for number, ways, columns, aim in choices:
        size = _decode_bytes(number, ways, columns, D, D_v, itemsize)
        if size <= aim:
            return DecodeTile(number, ways, columns, size)
    raise ValueError(f"[mlx_tx] head sizes must be at most {LARGEST_HEAD}; got D={D}, D_v={D_v}")
