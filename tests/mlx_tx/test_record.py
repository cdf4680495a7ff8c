"""Records of the path that every call took."""

import dataclasses

import mlx.core as mx
import pytest

import mlx_tx

Q = mx.zeros((1, 2, 3, 4))


def attend(**options):
    return mlx_tx.scaled_dot_product_attention(Q, Q, Q, stream=mx.cpu, **options)


def test_calls_are_recorded_in_order_inside_the_block_only():
    attend()
    with mlx_tx.record_paths() as records:
        attend(path="blockwise")
        attend()
    attend()
    assert [(record.requested, record.path) for record in records] == [("blockwise", "blockwise"), ("auto", "composed")]


def test_nested_blocks_see_their_own_calls():
    with mlx_tx.record_paths() as outer:
        attend()
        with mlx_tx.record_paths() as inner:
            attend(path="blockwise")
        attend()
    assert [record.path for record in inner] == ["blockwise"]
    assert [record.path for record in outer] == ["composed", "blockwise", "composed"]


def test_block_ends_where_an_error_leaves_it():
    with pytest.raises(ValueError, match="window"), mlx_tx.record_paths() as records:
        attend(window=0)
    attend()
    assert records == []


def test_record_is_frozen_and_complete():
    with mlx_tx.record_paths() as records:
        attend()
    assert dataclasses.asdict(records[0]) == {
        "path": "composed",
        "reason": "the scores take 72 bytes, at most 16777216",
        "requested": "auto",
        "q_shape": (1, 2, 3, 4),
        "k_shape": (1, 2, 3, 4),
        "v_shape": (1, 2, 3, 4),
        "dtype": "float32",
    }
    with pytest.raises(dataclasses.FrozenInstanceError):
        records[0].path = "fused"


def test_compiled_call_is_recorded_when_it_is_traced():
    call = mx.compile(lambda: attend(path="blockwise"))
    with mlx_tx.record_paths() as records:
        call()
        call()
    assert len(records) == 1
