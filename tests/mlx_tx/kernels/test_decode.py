"""``attention_decode`` and ``attention_merge`` on the emulated device, against the float64 oracle."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from mlx_tx.kernels.decode import decode
from mlx_tx_conformance import emulator
from tests.mlx_tx.kernels.tools import agrees, normal, plain, qkv

RNG = np.random.default_rng(9)


def run(q: mx.array, k: mx.array, v: mx.array, checked: bool = False, **options: Any) -> list[mx.array]:
    with emulator.device(checked=checked):
        return decode(*plain(q, k, v, **options))


@pytest.mark.parametrize(("T_q", "N_q", "N_kv"), [(1, 8, 1), (3, 4, 2), (8, 8, 1)])
def test_rows_of_one_key_head_share_its_tiles(T_q: int, N_q: int, N_kv: int) -> None:
    q, k, v = qkv(N_q=N_q, N_kv=N_kv, T_q=T_q, T_kv=261)
    agrees(*run(q, k, v, causal=True), q, k, v, causal=True)


def test_every_feature_together_without_a_report_of_the_checked_build() -> None:
    q, k, v = qkv(T_q=3, T_kv=300, dtype=mx.float16)
    options: dict[str, Any] = {
        "causal": True,
        "window": 270,
        "alibi": mx.abs(normal(4, 4)) * 0.05,
        "softcap": 3.0,
        "sinks": normal(5, 4),
        "bias": normal(6, 4, 1, 300),
        "mask": mx.array(RNG.random((2, 1, 3, 300)) < 0.8),
        "kv_lengths": [300, 131],
        "q_offset": [297, 128],
        "segments": (mx.array([[0, 1, 1], [2, 2, 0]]), mx.arange(600).reshape(2, 300) // 150),
    }
    agrees(*run(q, k, v, checked=True, **options), q, k, v, **options)


def test_a_cache_is_read_once_for_all_heads_that_share_it() -> None:
    q, k, v = qkv(B=1, N_q=8, N_kv=1, T_q=1, T_kv=512, D=64, D_v=64, dtype=mx.float16)
    with emulator.device(checked=True) as device:
        decode(*plain(q, k, v))
    counts = device.counts["attention_decode"]
    assert counts.threadgroups == 4
    assert counts.bytes_read["k"] == k.nbytes
    assert counts.bytes_read["v"] == v.nbytes


def test_rows_without_a_key_and_parts_without_a_key() -> None:
    q, k, v = qkv(T_q=2, T_kv=300)
    out, lse = run(q, k, v, kv_lengths=[0, 5])
    assert mx.all(out[0] == 0).item()
    assert mx.all(mx.isneginf(lse[0])).item()
    agrees(out, lse, q, k, v, kv_lengths=np.array([0, 5]))
