"""Faults planted in kernels, each of which the checked build must name. What is only a wrong number (a dropped tail, a
stale tile) shows in the comparison with float64, and is called wrong-result here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pytest

from mlx_tx_conformance.emulator import KernelError, Options
from mlx_tx_conformance.emulator.mlx_attention import Attention, steel, vector
from mlx_tx_conformance.emulator.mlx_headers import KERNELS
from mlx_tx_conformance.emulator.mlx_library import LibraryKernel, Output, headers_root, launch, scalar
from tests.conformance.emulator import flash
from tests.conformance.emulator.flash import BARRIER, replace_nth
from tests.conformance.emulator.run_kernel import launch as run

CHECKED = Options(checked=True)


@dataclass(frozen=True)
class Planted:
    """A change to the flash kernel, the kind it must be named by, and the buffer where there is one."""

    old: str
    new: str
    kind: str
    nth: int = 1
    buffer: str = ""
    heads: int = 2


LOAD_K = "kb * BK + r < T_kv ? K[(kb * BK + r) * D + c] : T(0)"
FLASH_FAULTS = {
    "barrier before the K tile removed": Planted(BARRIER, "", "race", 1, "tile"),
    "barrier after the K tile removed": Planted(BARRIER, "", "race", 2, "tile"),
    "barrier before the V tile removed": Planted(BARRIER, "", "race", 3, "tile"),
    "barrier after the V tile removed": Planted(BARRIER, "", "race", 4, "tile"),
    "simdgroup barrier for a threadgroup barrier": Planted(
        BARRIER, "simdgroup_barrier(mem_flags::mem_threadgroup);", "race", 2, "tile"
    ),
    "barrier that orders nothing": Planted(BARRIER, "threadgroup_barrier(mem_flags::mem_none);", "race", 4, "tile"),
    "barrier for the wrong memory": Planted(BARRIER, "threadgroup_barrier(mem_flags::mem_device);", "race", 3, "tile"),
    "no guard at the tail of K": Planted(LOAD_K, "K[(kb * BK + r) * D + c]", "out-of-bounds", 1, "k"),
    "guard of K one too far": Planted(LOAD_K, LOAD_K.replace("<", "<="), "out-of-bounds", 1, "k"),
    "guard by the wrong length": Planted("row < T_q ? float", "row < T_kv ? float", "out-of-bounds", 1, "q"),
    "no guard at the tail of the output": Planted("if (row < T_q)\n", "", "out-of-bounds", 1, "out", 1),
    "rows of the next head overwritten": Planted("if (row < T_q)\n", "", "race", 1, "out"),
    "tile too small": Planted("tile[BK * LD]", "tile[BK * LD - 8]", "out-of-bounds", 1, "tile"),
    "negative index": Planted("Q[row * D", "Q[(row - 40) * D", "out-of-bounds", 1, "q"),
    "barrier in a divergent branch": Planted(BARRIER, f"if (row < T_q) {BARRIER}", "divergence", 1),
    "return before barriers": Planted("float largest", "if (row >= T_q) return;\n    float largest", "divergence"),
    "different numbers of barriers": Planted("kb < blocks; kb++", "kb < blocks - simdgroup; kb++", "divergence"),
    "shuffle in a divergent branch": Planted(
        "more += simd_shuffle_xor(more, ushort(1));",
        "if (fm < 3) more += simd_shuffle_xor(more, ushort(1));",
        "divergence",
    ),
    "too much threadgroup memory": Planted(
        "threadgroup T tile[BK * LD];",
        "threadgroup T tile[BK * LD]; threadgroup float big[8000]; big[thread_index_in_threadgroup] = 0;",
        "threadgroup-memory",
        1,
        "big",
    ),
    "padding read that nobody wrote": Planted(
        "largest = -1e30f", "largest = -1e30f + tile[D]", "uninitialised", 1, "tile"
    ),
    "tile partly filled": Planted("i < BK * D; i += 64", "i < BK * D - 1; i += 64", "uninitialised", 1, "tile"),
    "lane map with rows and columns swapped": Planted(
        "const int row = block * BQ + simdgroup * 8 + fm;", "const int row = block * BQ + simdgroup * 8 + fn;", "race"
    ),
    "lane map of another layout": Planted("(lane / 4 & 2) * 2 + lane % 2 * 2", "lane % 4 * 2", "race", 1, "out"),
    "tail of the keys dropped": Planted("(T_kv + BK - 1) / BK", "T_kv / BK", "wrong-result"),
    "stale tile": Planted("? V[", "? K[", "wrong-result"),
    "stale tile after the first block": Planted(
        "for (int i = tid; i < BK * D; i += 64)",
        "if (kb == 0) for (int i = tid; i < BK * D; i += 64)",
        "wrong-result",
        2,
    ),
    "mask aligned to the other corner": Planted("row + T_kv - T_q", "row", "wrong-result"),
    "old sum not rescaled": Planted("sum * shrink", "sum", "wrong-result"),
    "matrix never filled": Planted("Of[d] = make_filled_simdgroup_matrix<float, 8>(0.0f);", "", "wrong-result"),
}


def verdict(source: str, arrays: dict[str, np.ndarray]) -> tuple[str, str]:
    """The kind a run of the flash kernel is named by, and the buffer."""
    try:
        out, _ = flash.flash(source, arrays, CHECKED)
    except KernelError as error:
        return error.kind, error.buffer
    wrong = not np.allclose(out, flash.expected(arrays), atol=1e-5)
    return ("wrong-result" if wrong else "passed"), ""


def test_without_a_fault_the_kernel_passes() -> None:
    assert verdict(flash.SOURCE, flash.inputs()) == ("passed", "")


@pytest.mark.parametrize("name", FLASH_FAULTS)
def test_fault_in_the_flash_kernel(name: str) -> None:
    planted = FLASH_FAULTS[name]
    kind, buffer = verdict(
        replace_nth(flash.SOURCE, planted.old, planted.new, planted.nth), flash.inputs(heads=planted.heads)
    )
    assert kind == planted.kind
    if planted.buffer:
        assert buffer == planted.buffer


def test_sixteen_bit_index_overflows() -> None:
    source = flash.SOURCE.replace("K[(kb * BK + r) * D + c]", "K[short((kb * BK + r) * D + c)]")
    assert verdict(source, flash.inputs(T_q=3, T_kv=1040, heads=1)) == ("out-of-bounds", "k")


# ------------------------------------------------------------------------------------------------ small kernels

PROLOGUE = """uint i = thread_position_in_grid.x, t = thread_index_in_threadgroup, g = threadgroup_position_in_grid.x;
"""
SMALL_FAULTS = {
    "two threads write one element": ("race", "out[i / 2] = i;"),
    "two threadgroups write one element": ("race", "if (t == 0) out[0] = g;"),
    "read of what another threadgroup wrote": ("race", "out[i] = i; if (g == 1) out[i] = out[t];"),
    "write of what another threadgroup read": ("race", "out[i] += out[(i + 32) % 64];"),
    "device memory exchanged behind a threadgroup barrier": (
        "race",
        "out[i] = i; threadgroup_barrier(mem_flags::mem_threadgroup); out[i] = out[g * 32 + (t + 1) % 32];",
    ),
    "counter without atomics": ("race", "out[0] += 1;"),
    "exchange in a simdgroup without a barrier": (
        "race",
        "threadgroup int x[32]; x[t] = i; out[i] = x[31 - t];",
    ),
    "index past the end": ("out-of-bounds", "out[i + 1] = i;"),
    "index before the start": ("out-of-bounds", "out[int(i) - 1] = i;"),
    "index of another order of magnitude": ("out-of-bounds", "out[i * 1000000] = i;"),
    "input read past its end": ("out-of-bounds", "out[i] = small[i % 5];"),
    "matrix operation with lanes missing": (
        "divergence",
        "if (t > 28) return; simdgroup_float8x8 a(1.0f); simdgroup_multiply(a, a, a); out[i] = a.thread_elements()[0];",
    ),
    "endless loop": ("deadlock", "while (small[0] == 0) { } out[i] = 1;"),
    "integer division by zero": ("crash", "out[i] = int(i) / (int(i) - int(i) + small[0]);"),
    "write to an input": ("compile", "small[i] = 1;"),
    "recursion without end": ("out-of-bounds", "out[i] = deeper(i);"),
}
RECURSION = "int deeper(int n) { volatile int pad[64]; pad[n & 63] = n; return deeper(n + 1) + pad[n & 63]; }\n"


@pytest.mark.parametrize("name", SMALL_FAULTS)
def test_fault_in_a_small_kernel(name: str) -> None:
    kind, body = SMALL_FAULTS[name]
    init = None if name == "read of what another threadgroup wrote" else 0
    with pytest.raises(KernelError) as caught:
        run(
            PROLOGUE + body,
            {"small": np.zeros(4, np.int32)},
            {"out": ((64,), "int32")},
            64,
            32,
            RECURSION,
            replace(CHECKED, time_limit=0.5) if kind == "deadlock" else CHECKED,
            init_value=init,
        )
    assert caught.value.kind == kind


def test_output_read_before_it_is_written() -> None:
    with pytest.raises(KernelError) as caught:
        run("out[thread_position_in_grid.x] += 1;", {}, {"out": ((32,), "float32")}, options=CHECKED)
    assert (caught.value.kind, caught.value.buffer, caught.value.line) == ("uninitialised", "out", 1)


def test_plain_and_atomic_access_mixed_are_a_race() -> None:
    body = """
    atomic_fetch_add_explicit(&out[0], 1, memory_order_relaxed);
    if (thread_position_in_grid.x == 5) ((device int*)out)[0] = 7;
    """
    with pytest.raises(KernelError) as caught:
        run(body, {}, {"out": ((1,), "int32")}, options=CHECKED, init_value=0, atomic=True)
    assert caught.value.kind == "race"


@pytest.mark.parametrize("threads", [1025, 2048])
def test_too_many_threads(threads: int) -> None:
    with pytest.raises(KernelError) as caught:
        run("out[thread_position_in_grid.x] = 0;", {}, {"out": ((threads,), "float32")}, threads)
    assert caught.value.kind == "threads"


def test_an_error_says_where() -> None:
    source = replace_nth(flash.SOURCE, LOAD_K, "K[(kb * BK + r) * D + c]")
    with pytest.raises(KernelError) as caught:
        flash.flash(source, flash.inputs(T_q=29, T_kv=45, D=32, heads=1), CHECKED)
    error = caught.value
    line = 1 + source[: source.index("K[(kb * BK + r) * D + c]")].count("\n")
    # Key 45 is read first by the thread that loads row 13 of the third tile, column 0.
    assert (error.kernel, error.file, error.line) == ("flash", "flash.metal", line)
    assert (error.buffer, error.offset) == ("k", 45 * 32 * 4)
    assert (error.thread, error.threadgroup) == (13 * 32 % 64, (0, 0, 0))
    assert f"out-of-bounds: read of 4 bytes at offset {45 * 128}" in str(error)
    assert f"flash.metal:{line}" in str(error)


# ------------------------------------------------------------------------------------------------ MLX's kernels, broken

SDPA, STEEL, SOFTMAX = "sdpa_vector.h", "steel/attn/kernels/steel_attention.h", "softmax.h"


def attention_call() -> Attention:
    rng = np.random.default_rng(4)
    q, k, v = (rng.standard_normal((1, 1, t, 64)).astype(np.float32) for t in (37, 45, 45))
    return Attention(q, k, v, 0.125)


def few_queries() -> Attention:
    call = attention_call()
    return Attention(call.q[:, :, :1].copy(), call.k, call.v, 0.125)


def softmax(text: str) -> None:
    x = np.random.default_rng(6).standard_normal((1, 70)).astype(np.float32)
    kernel = LibraryKernel(SOFTMAX, "softmax_single_row", ("float",), text=text)
    buffers = {0: ("in", x), 1: Output("out", x.shape, "float32"), 2: ("axis_size", scalar(70, "int32"))}
    launch(kernel, buffers, (1, 1, 1), (64, 1, 1), CHECKED)


RUNS: dict[str, Callable[[str], object]] = {
    SDPA: lambda text: vector(few_queries(), CHECKED, text=text),
    STEEL: lambda text: steel(attention_call(), CHECKED, text=text),
    SOFTMAX: softmax,
}
MLX_FAULTS = [
    (SDPA, BARRIER, "", 1, "race"),
    (SDPA, BARRIER, "", 2, "race"),
    (SDPA, BARRIER, "", 3, "race"),
    (SDPA, "i < N; i += BN", "i <= N; i += BN", 1, "out-of-bounds"),
    (SDPA, "threadgroup U max_scores[BN];", "threadgroup U max_scores[BN - 1];", 1, "out-of-bounds"),
    (
        SDPA,
        "if (simd_lid == 0) {\n    max_scores",
        "if (simd_lid == 0 && simd_gid != 3) {\n    max_scores",
        1,
        "uninitialised",
    ),
    (STEEL, BARRIER, "", 2, "race"),
    (STEEL, BARRIER, "", 3, "race"),
    (STEEL, BARRIER, "", 6, "race"),
    (STEEL, BARRIER, "", 7, "race"),
    (STEEL, "loader_k.load_safe(short2(BD, params->kL_rem))", "loader_k.load_unsafe()", 1, "out-of-bounds"),
    (STEEL, "params->qL_rem - (tm + sm))", "params->qL_rem + 1 - (tm + sm))", 1, "out-of-bounds"),
    (SOFTMAX, BARRIER, "", 2, "race"),
    (SOFTMAX, BARRIER, "", 5, "race"),
    (
        SOFTMAX,
        "if (simd_group_id == 0) {\n    local_max",
        "if (simd_group_id == 7) {\n    local_max",
        1,
        "uninitialised",
    ),
    (SOFTMAX, "(lid * N_READS + i) < axis_size", "(lid * N_READS + i) <= axis_size + 2", 2, "out-of-bounds"),
]


@pytest.mark.parametrize(("header", "old", "new", "nth", "kind"), MLX_FAULTS)
def test_fault_in_a_kernel_of_mlx(header: str, old: str, new: str, nth: int, kind: str) -> None:
    text = (headers_root() / KERNELS / header).read_text(encoding="utf-8")
    RUNS[header](text)  # as it is: no alarm
    with pytest.raises(KernelError) as caught:
        RUNS[header](replace_nth(text, old, new, nth))
    assert caught.value.kind == kind
    assert caught.value.file in ("", header.rpartition("/")[2])
