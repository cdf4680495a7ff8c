"""MLX's own attention kernels on the emulated device: others wrote them, so they test the device.

Every case must agree with float64, and be the same bit for bit whatever the order of threads, and in the checked build.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import ml_dtypes
import numpy as np
import pytest

from mlx_tx_conformance.emulator import KernelError, Options
from mlx_tx_conformance.emulator.mlx_attention import Attention, steel, vector, vector_two_pass
from mlx_tx_conformance.oracle.attention import attention

DTYPES = {"float32": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16}
ROUNDING = {"float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}
ORDERS = (
    Options(order="reverse"),
    Options(order="random", seed=1),
    Options(checked=True, order="random", seed=2),
)
FEATURES = ("plain", "causal", "bool-mask", "float-mask", "sinks")
CASES = [
    *product(FEATURES, DTYPES, (64,)),
    *product(FEATURES, ("float16",), (128,)),
]


def run_vector(call: Attention, options: Options) -> np.ndarray:
    return vector(call, options)[0]


def run_two_pass(call: Attention, options: Options) -> np.ndarray:
    return vector_two_pass(call, options)[0]


def run_steel(call: Attention, options: Options) -> np.ndarray:
    return steel(call, options)[0][0]


def make_call(feature: str, dtype: str, D: int, T_q: int, T_kv: int, N_q: int, N_kv: int, B: int = 1) -> Attention:
    rng = np.random.default_rng(abs(hash((FEATURES.index(feature), D, T_q, T_kv))) % 2**32)

    def normal(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape).astype(np.float32).astype(DTYPES[dtype])

    q, k, v = normal(B, N_q, T_q, D), normal(B, N_kv, T_kv, D), normal(B, N_kv, T_kv, D)
    mask = sinks = None
    if feature == "bool-mask":
        mask = rng.random((1, N_q, T_q, T_kv)) < 0.7
        mask[..., 0] = True
    if feature == "float-mask":
        mask = normal(1, 1, T_q, T_kv)
    if feature == "sinks":
        sinks = normal(N_q)
    return Attention(q, k, v, D**-0.5 * 1.1, feature == "causal", mask, sinks)


def check(run: Callable[[Attention, Options], np.ndarray], call: Attention, dtype: str, roundings: int) -> None:
    stages = attention(call.q, call.k, call.v, scale=call.scale, mask=call.mask, causal=call.causal, sinks=call.sinks)
    out = run(call, Options())
    # Each rounding of a value no larger than the largest |v| to the dtype, and float32 arithmetic besides.
    largest = np.abs(call.v.astype(np.float64)).max()
    bound = roundings * ROUNDING[dtype] * largest + 4e-6 * largest
    np.testing.assert_array_less(np.abs(out.astype(np.float64) - stages.out), bound)
    for options in ORDERS:
        assert run(call, options).tobytes() == out.tobytes(), options


@pytest.mark.parametrize(("feature", "dtype", "D"), CASES)
def test_one_pass_vector_kernel(feature: str, dtype: str, D: int) -> None:
    check(run_vector, make_call(feature, dtype, D, T_q=3, T_kv=45, N_q=4, N_kv=2), dtype, roundings=1)


@pytest.mark.parametrize(("feature", "dtype", "D"), CASES)
def test_two_pass_vector_kernel(feature: str, dtype: str, D: int) -> None:
    # The partial results of the first pass are stored in the dtype too, unnormalised: one live key a block here.
    check(run_two_pass, make_call(feature, dtype, D, T_q=2, T_kv=150, N_q=4, N_kv=2), dtype, roundings=3)


@pytest.mark.parametrize(("feature", "dtype", "D"), CASES)
def test_steel_kernel(feature: str, dtype: str, D: int) -> None:
    check(run_steel, make_call(feature, dtype, D, T_q=37, T_kv=45, N_q=2, N_kv=1), dtype, roundings=1)


@pytest.mark.parametrize(("T_q", "T_kv"), [(32, 64), (1, 1), (33, 31), (64, 33)])
def test_steel_kernel_at_the_edges_of_its_blocks(T_q: int, T_kv: int) -> None:
    check(run_steel, make_call("plain", "float32", 64, T_q, T_kv, N_q=1, N_kv=1, B=2), "float32", roundings=1)


def test_steel_kernel_saves_the_log_sum_exp() -> None:
    call = make_call("causal", "float32", 128, 37, 45, N_q=2, N_kv=1)
    stages = attention(call.q, call.k, call.v, scale=call.scale, causal=True)
    out, lse = steel(call, Options(checked=True), save_lse=True)[0]
    np.testing.assert_allclose(out, stages.out, atol=4e-6)
    np.testing.assert_allclose(lse, stages.lse, atol=4e-6)


def test_steel_kernel_with_the_head_split_over_two_simdgroups() -> None:
    call = make_call("causal", "float32", 128, 37, 45, N_q=2, N_kv=1)
    expected = attention(call.q, call.k, call.v, scale=call.scale, causal=True).out
    np.testing.assert_allclose(steel(call, Options(checked=True), wn=2)[0][0], expected, atol=4e-6)


def test_two_simdgroups_that_both_write_the_log_sum_exp_are_a_race() -> None:
    # With the head split, both halves hold the same sums and both store them: harmless there, and seen here.
    call = make_call("causal", "float32", 128, 37, 45, N_q=2, N_kv=1)
    with pytest.raises(KernelError, match="written by thread 0") as caught:
        steel(call, Options(checked=True), wn=2, save_lse=True)
    assert (caught.value.kind, caught.value.buffer, caught.value.file) == ("race", "lse", "steel_attention.h")


@pytest.mark.parametrize("options", [Options(flush_denormals=True), Options(fma=True), Options(fma=True, checked=True)])
def test_permitted_arithmetic_stays_within_the_same_bound(options: Options) -> None:
    call = make_call("causal", "float32", 64, 37, 45, N_q=2, N_kv=1)
    expected = attention(call.q, call.k, call.v, scale=call.scale, causal=True).out
    np.testing.assert_allclose(run_steel(call, options), expected, atol=4e-6)
