"""Tiles fit the memory, threads and registers of every Apple GPU, whatever the head size."""

from __future__ import annotations

import pytest

from mlx_tx.kernels.tiles import LARGEST_HEAD, decode_tile, forward_tile, padded, row_bytes

SIZES = (1, 7, 8, 9, 20, 32, 64, 80, 96, 111, 112, 120, 128, 136, 160, 192, 208, 216, 256)


def test_a_head_is_padded_to_whole_fragments_and_its_row_by_sixteen_bytes() -> None:
    assert [padded(n) for n in (1, 8, 9, 111)] == [8, 8, 16, 112]
    assert row_bytes(9, 2) == 16 * 2 + 16


@pytest.mark.parametrize("itemsize", [2, 4])
def test_every_forward_tile_fits(itemsize: int) -> None:
    for D in SIZES:
        for D_v in SIZES:
            tile = forward_tile(D, D_v, itemsize)
            assert tile.bytes == tile.rows * row_bytes(D, itemsize) + tile.columns * row_bytes(max(D, D_v), itemsize)
            assert tile.bytes <= 29 * 1024
            assert tile.threads == 32 * tile.rows // 8 <= 256
            # O, S and their fragments, 32-bit registers a lane: 128 is all there is on an M1.
            assert padded(D_v) // 4 + tile.columns // 4 + 14 <= 90


def test_the_tile_is_that_of_mlx_where_both_have_one() -> None:
    for itemsize in (2, 4):
        assert (forward_tile(64, 64, itemsize).rows, forward_tile(64, 64, itemsize).columns) == (32, 32)
        assert (forward_tile(128, 128, itemsize).rows, forward_tile(128, 128, itemsize).columns) == (32, 16)


@pytest.mark.parametrize("itemsize", [2, 4])
@pytest.mark.parametrize("rows", [1, 8, 9, 16, 24, 64])
def test_every_decode_tile_fits(itemsize: int, rows: int) -> None:
    for D in SIZES:
        tile = decode_tile(rows, D, D, itemsize)
        assert tile.bytes <= 29 * 1024
        assert tile.threads <= 128
        assert tile.tiles * 8 >= min(rows, 16)


def test_eight_rows_are_one_tile_and_four_simdgroups_share_the_keys() -> None:
    tile = decode_tile(8, 128, 128, 2)
    assert (tile.tiles, tile.ways) == (1, 4)


def test_larger_heads_are_refused_by_name() -> None:
    for choose in (forward_tile, lambda D, D_v, size: decode_tile(8, D, D_v, size)):
        with pytest.raises(ValueError, match=f"at most {LARGEST_HEAD}; got D=320, D_v=64"):
            choose(320, 64, 4)
