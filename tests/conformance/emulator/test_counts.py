"""Counts are exact: against calculations by hand, and the same to the byte at every repetition and in every order."""

from __future__ import annotations

import numpy as np
import pytest

from mlx_tx_conformance.emulator import Counts, Options
from mlx_tx_conformance.emulator.counts import CountCase, count_rows, row
from mlx_tx_conformance.emulator.mlx_attention import steel, vector
from mlx_tx_conformance.emulator.mlx_unfused import unfused
from mlx_tx_conformance.oracle.attention import attention
from tests.conformance.emulator import flash

CHECKED = Options(checked=True)
SMALL = CountCase(T_q=32, T_kv=48, N_q=2, N_kv=1)


def test_vector_attention_by_hand() -> None:
    """One query: 1024 threads, 32 simdgroups; simdgroup g reads keys g, g + 32, ...; lane l reads D/32 elements."""
    N_q, N_kv, T_kv, D, size = 4, 2, 45, 64, 2
    case = CountCase("decode", "float16", D, 1, T_kv, N_q, N_kv)
    counts = vector(case.attention(), CHECKED)[1]
    groups = N_q
    assert counts.threadgroups == groups
    assert counts.bytes_read["q"] == groups * 32 * D * size  # every simdgroup reads the whole query
    assert counts.bytes_read["k"] == N_q * T_kv * D * size  # every query head reads its keys once
    assert counts.bytes_read["v"] == N_q * T_kv * D * size
    assert counts.bytes_written["out"] == N_q * D * size
    # Two exponentials a key in every lane, and one to merge the simdgroups.
    assert counts.exp == groups * (2 * T_kv * 32 + 1024)
    # One barrier for the maxima, two for each of the D/32 elements a thread merges.
    assert counts.barriers == groups * (1 + 2 * D // 32)
    assert counts.threadgroup_bytes == 32 * 32 * 4 + 32 * 4 + 32 * 4
    assert counts.mma == 0
    # The transposition buffer is written and read once an element, the maxima and sums as well.
    assert counts.threadgroup_bytes_written == groups * 4 * (1024 * (D // 32) + 2 * 32)
    assert counts.threadgroup_bytes_read == groups * 4 * (1024 * (D // 32) + 2 * 1024)


def test_flash_attention_by_hand() -> None:
    """Blocks of 16 queries and 16 keys, two simdgroups of 8 queries each; nothing is skipped."""
    T_q, T_kv, D, heads = 29, 45, 32, 2
    counts = flash.flash(flash.SOURCE, flash.inputs(T_q, T_kv, D, heads), CHECKED)[1]
    query_blocks, key_blocks = 2, 3
    groups = query_blocks * heads
    assert counts.threadgroups == groups
    assert counts.bytes_read["q"] == heads * T_q * D * 4
    assert counts.bytes_read["k"] == groups * T_kv * D * 4  # every block of queries reads all keys
    assert counts.bytes_read["v"] == groups * T_kv * D * 4
    assert counts.bytes_written["out"] == heads * T_q * D * 4
    # Per simdgroup and key block: S has 2 tiles of D/8 products, O has D/8 tiles of 2.
    assert counts.mma == groups * 2 * key_blocks * (2 * (D // 8) + (D // 8) * 2)
    assert counts.barriers == groups * key_blocks * 4
    assert counts.threadgroup_bytes == 16 * (D + 4) * 4
    # One exponential a lane to rescale, and one for each pair of a query and a key it sees. A row past the end of the
    # queries computes, too, and sees every key.
    rows = [min(T_kv, i + T_kv - T_q + 1) for i in range(query_blocks * 16)]
    assert counts.exp == heads * (query_blocks * key_blocks * 64 + sum(rows))


@pytest.mark.parametrize("order", ["forward", "reverse", "random"])
def test_counts_repeat_to_the_byte(order: str) -> None:
    first = steel(SMALL.attention(), CHECKED)[1]
    assert steel(SMALL.attention(), Options(checked=True, order=order, seed=9))[1] == first
    assert first.bytes_read["k"] > 0


def test_counts_without_hooks_leave_out_bytes_only() -> None:
    checked, fast = steel(SMALL.attention(), CHECKED)[1], steel(SMALL.attention())[1]
    assert (fast.mma, fast.exp, fast.barriers) == (checked.mma, checked.exp, checked.barriers)
    assert not fast.bytes_read


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("N_q", "N_kv", "T_q", "T_kv"), [(2, 2, 33, 70), (4, 2, 64, 64), (4, 1, 1, 80)])
def test_unfused_attention_is_attention(causal: bool, N_q: int, N_kv: int, T_q: int, T_kv: int) -> None:
    call = CountCase("forward", "float32", 64, T_q, T_kv, N_q, N_kv, causal).attention()
    expected = attention(call.q, call.k, call.v, scale=call.scale, causal=causal).out
    np.testing.assert_allclose(unfused(call)[0], expected, atol=5e-6)


def test_rows_have_the_fields_of_the_bench_command() -> None:
    case = CountCase("forward", "float16", 64, 64, 64, 2, 1, causal=True)
    rows = count_rows([case], ["mlx", "unfused", "mlx_tx"])
    by_implementation = {r["implementation"]: r for r in rows}
    mlx, separate = by_implementation["mlx"], by_implementation["unfused"]
    assert list(mlx) == [
        "kernel",
        "implementation",
        "dtype",
        "D",
        "T_q",
        "T_kv",
        "N_q",
        "N_kv",
        "causal",
        "device_bytes_read",
        "device_bytes_written",
        "mma",
        "exp",
        "barriers",
        "threadgroup_bytes",
    ]
    assert mlx["device_bytes_written"] == 2 * 64 * 64 * 2
    # Unfused, the scaled queries, the scores twice (masking) and the weights are stored besides the output.
    assert separate["device_bytes_written"] == (2 + 2) * 64 * 64 * 2 + 3 * 2 * 64 * 64 * 2
    # A row of 64 columns has one simdgroup, four columns a lane: half of them lie past the end and are computed too.
    assert separate["exp"] == 2 * 64 * 32 * 4


def test_cases_without_a_kernel_have_no_row() -> None:
    assert count_rows([CountCase("forward", D=40), CountCase("dq")], ["mlx"]) == []
    assert count_rows([CountCase("decode", T_q=9)], ["mlx"]) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"kernel": "sideways"}, "kernel must be one of"),
        ({"dtype": "float64"}, "dtype must be"),
        ({"N_kv": 3}, "multiple"),
    ],
)
def test_wrong_cases_are_named(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        CountCase(**arguments)  # type: ignore[arg-type]


def test_unknown_implementations_are_named() -> None:
    with pytest.raises(ValueError, match=r"implementations must be among mlx_tx, mlx, unfused; got 'torch'"):
        count_rows([], ["torch"])


def test_counts_add_up() -> None:
    a = Counts(mma=1, threadgroup_bytes=5, bytes_read={"x": 2})
    b = Counts(mma=2, threadgroup_bytes=3, bytes_read={"x": 1, "y": 4})
    both = a + b
    assert (both.mma, both.threadgroup_bytes, both.bytes_read) == (3, 5, {"x": 3, "y": 4})
    assert row(SMALL, "mlx", both)["device_bytes_read"] == 7
