"""What a call becomes: kernel, template, operands."""

from __future__ import annotations

import mlx.core as mx

from mlx_tx.kernels.chassis import INPUTS, SIGNATURES, kernel, operands, sizes
from mlx_tx.kernels.decode import decode_work, is_decode, splits_of
from mlx_tx.kernels.forward import forward_work
from tests.mlx_tx.kernels.tools import normal, plain, qkv


def test_a_plain_call_switches_every_feature_off() -> None:
    work = forward_work(*plain(*qkv()))
    switches = dict(work.template)
    assert {name for name, value in switches.items() if value is True} == set()
    assert switches["MASK"] == 0
    assert switches["T"] == mx.float32
    assert (switches["D"], switches["D_V"]) == (16, 16)


def test_each_feature_switches_on_what_it_needs() -> None:
    q, k, v = qkv(T_q=70)
    options = {
        "LEFT": {"window": (3, None)},
        "RIGHT": {"causal": True},
        "LENGTHS": {"kv_lengths": [70, 9]},
        "SEGMENTS": {"segments": mx.zeros((2, 70), dtype=mx.int32)},
        "MASK": {"mask": mx.ones((70, 70), dtype=mx.bool_)},
        "BIAS": {"bias": normal(4, 70, 70)},
        "ALIBI": {"alibi": True},
        "SOFTCAP": {"softcap": 2.0},
        "SINKS": {"sinks": normal(5, 4)},
    }
    off = dict(forward_work(*plain(q, k, v)).template)
    for name, given in options.items():
        on = dict(forward_work(*plain(q, k, v, **given)).template)
        assert {switch for switch in on if on[switch] != off[switch]} == {name}


def test_kernels_share_their_inputs_and_the_common_header() -> None:
    for name, (inputs, outputs) in SIGNATURES.items():
        made = kernel(name)
        assert (made.input_names, made.output_names) == (inputs, outputs)
        assert not made.ensure_row_contiguous
        assert "online_softmax" in made.header
        assert made.source.isascii()
        assert made.header.isascii()


def test_masks_are_broadcast_by_strides_not_copied() -> None:
    spec, arrays = plain(*qkv(), mask=mx.ones((1, 1, 1, 70), dtype=mx.bool_), bias=normal(4, 4, 1, 70))
    given = dict(zip(INPUTS, operands(spec, arrays), strict=True))
    for name in ("mask", "bias"):
        assert given[name].shape == (2, 4, 33, 70)
        mx.eval(given[name])
        assert memoryview(given[name]).strides[2] == 0  # type: ignore[index]


def test_numbers_that_the_host_knows() -> None:
    spec, _ = plain(*qkv(D=20, D_v=12), window=(5, None))
    assert sizes(spec, splits=3).tolist() == [33, 70, 2, 20, 12, 5, 2**31 - 1, 3]
    wide, _ = plain(*qkv(), window=(2**40, None))
    assert sizes(wide).tolist()[5] == 2**31 - 1


def test_segment_ids_keep_64_bits_where_they_have_them() -> None:
    spec, arrays = plain(*qkv(), segments=(mx.zeros((2, 33), dtype=mx.int64), mx.zeros((2, 70), dtype=mx.int8)))
    assert dict(forward_work(spec, arrays).template)["Id"] == mx.int64
    spec, arrays = plain(*qkv(), segments=(mx.zeros((2, 33), dtype=mx.uint32), mx.zeros((2, 70), dtype=mx.uint32)))
    assert dict(forward_work(spec, arrays).template)["Id"] == mx.int32


def test_few_queries_on_a_long_cache_are_split() -> None:
    assert not is_decode(plain(*qkv(T_q=9, T_kv=4096))[0])
    assert not is_decode(plain(*qkv(T_q=1, T_kv=255))[0])
    spec, arrays = plain(*qkv(T_q=1, T_kv=4096))
    assert is_decode(spec)
    assert splits_of(spec) == 32
    assert decode_work(spec, arrays).output_shapes == ((2, 4, 1, 32, 16), (2, 4, 1, 32, 2))


def test_a_window_that_the_host_knows_makes_fewer_parts() -> None:
    spec, _ = plain(*qkv(T_q=1, T_kv=4096), window=512)
    assert splits_of(spec) == 4
    assert not is_decode(plain(*qkv(T_q=1, T_kv=4096), window=100)[0])


def test_small_inputs_make_another_instantiation() -> None:
    few, many = (forward_work(*plain(*qkv(N_q=n, N_kv=1), sinks=normal(4, n))) for n in (2, 4))
    assert few.template == many.template
    assert few.instantiation != many.instantiation
    assert few.label.startswith("attention_forward<T=float32, D=16, D_V=16, ROWS=32, COLUMNS=32, ")
