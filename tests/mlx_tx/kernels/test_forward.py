"""``attention_forward`` on the emulated device, against the float64 oracle."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from mlx_tx.kernels.forward import forward_work
from mlx_tx_conformance import emulator
from tests.mlx_tx.kernels.tools import agrees, normal, plain, qkv

RNG = np.random.default_rng(9)


def forward(q: mx.array, k: mx.array, v: mx.array, checked: bool = False, **options: Any) -> list[mx.array]:
    with emulator.device(checked=checked):
        return forward_work(*plain(q, k, v, **options)).run()


@pytest.mark.parametrize("dtype", [mx.float32, mx.float16, mx.bfloat16])
def test_head_sizes_that_are_no_multiple_of_eight(dtype: mx.Dtype) -> None:
    q, k, v = qkv(D=13, D_v=21, dtype=dtype)
    agrees(*forward(q, k, v), q, k, v)


def test_every_feature_together_without_a_report_of_the_checked_build() -> None:
    q, k, v = qkv()
    options: dict[str, Any] = {
        "causal": True,
        "window": 25,
        "alibi": mx.abs(normal(4, 4)) * 0.1,
        "softcap": 3.0,
        "sinks": normal(5, 4),
        "bias": normal(6, 4, 1, 70),
        "mask": mx.array(RNG.random((2, 1, 33, 70)) < 0.8),
        "kv_lengths": [61, 70],
        "q_offset": [20, 37],
        "segments": (mx.arange(66).reshape(2, 33) // 40, mx.arange(140).reshape(2, 70) // 60),
    }
    agrees(*forward(q, k, v, checked=True, **options), q, k, v, **options)


def test_inputs_are_read_where_they_lie() -> None:
    """A transposed projection for q, every second slot of a cache for k, reversed channels for v."""
    q = normal(1, 2, 33, 4, 16).swapaxes(1, 2)
    k = normal(2, 2, 2, 140, 24)[:, :, ::2, 8:]
    v = normal(3, 2, 2, 70, 16)[..., ::-1]
    agrees(*forward(q, k, v), q, k, v)


def test_rows_without_a_key_are_zero_and_their_log_sum_exp_is_minus_infinity() -> None:
    q, k, v = qkv(B=1)
    out, lse = forward(q, k, v, causal=True, q_offset=-20)
    assert mx.all(out[:, :, :20] == 0).item()
    assert mx.all(mx.isneginf(lse[:, :, :20])).item()
    assert not mx.any(mx.isnan(out)).item()


def test_a_kernel_without_a_feature_carries_no_trace_of_it() -> None:
    """Only q, k, v, their strides and the numbers are read, and only weights cost an exponential."""
    q, k, v = qkv(B=1, N_q=1, N_kv=1, T_q=32, T_kv=64)
    with emulator.device(checked=True) as device:
        forward_work(*plain(q, k, v)).run()
    counts = device.counts["attention_forward"]
    read = {name for name, size in counts.bytes_read.items() if size}
    assert read == {"q", "k", "v", "q_strides", "k_strides", "v_strides", "sizes", "factors"}
    blocks = 64 // 32
    # A weight for each score, and one factor a lane to rescale with in each block.
    assert counts.exp == 32 * 64 + blocks * 128
    # Q K^T and P V: 4 simdgroups, 4 fragments of 8 keys, 2 of 8 channels each.
    assert counts.mma == blocks * 4 * (4 * 2 + 2 * 4)
    assert counts.barriers == blocks * 4
    assert counts.bytes_read["k"] == counts.bytes_read["v"] == 64 * 16 * 4
    assert counts.threadgroup_bytes >= 32 * (16 * 4 + 16) * 2


def test_keys_outside_the_window_are_not_read() -> None:
    q, k, v = qkv(B=1, N_q=1, N_kv=1, T_q=96, T_kv=96)
    with emulator.device(checked=True) as device:
        forward_work(*plain(q, k, v, window=17)).run()
    counts = device.counts["attention_forward"]
    # Tiles of 32 queries: the first reads its own 32 keys, the others 16 more.
    assert counts.bytes_read["k"] == (32 + 48 + 48) * 16 * 4


def test_segments_that_no_row_of_a_tile_is_in_are_not_read() -> None:
    q, k, v = qkv(B=1, N_q=1, N_kv=1, T_q=96, T_kv=96)
    with emulator.device(checked=True) as device:
        forward_work(*plain(q, k, v, segments=mx.arange(96)[None] // 32)).run()
    assert device.counts["attention_forward"].bytes_read["v"] == 96 * 16 * 4
