"""What kernels compute: half and bfloat, vectors, mathematics, atomics, against NumPy."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from mlx_tx_conformance.emulator import KernelError, Options
from tests.conformance.emulator.run_kernel import launch, value

SIXTEEN = {"float16": np.float16, "bfloat16": ml_dtypes.bfloat16}
METAL = {"float16": "half", "bfloat16": "bfloat"}
EVERY = np.arange(1 << 16, dtype=np.uint16)


def same_bits_or_both_nan(a: np.ndarray, b: np.ndarray) -> None:
    nan = np.isnan(b.astype(np.float64))
    np.testing.assert_array_equal(np.isnan(a.astype(np.float64)), nan)
    kind = np.uint16 if a.dtype.itemsize == 2 else np.uint32
    np.testing.assert_array_equal(a.view(kind)[~nan], b.view(kind)[~nan])


def interesting_floats() -> np.ndarray:
    """Every 16-bit value's neighbourhood in float: the value, the midpoint to the next, and one ulp to both sides."""
    bases = [EVERY.view(np.float16).astype(np.float32), (EVERY.astype(np.uint32) << 16).view(np.float32)]
    bits = np.concatenate([base.view(np.uint32) for base in bases])
    offsets = np.array([0, 1, 0xFFFFFFFF, 0x1000, 0x0FFF, 0x1001, 0x8000, 0x7FFF, 0x8001], np.uint32)
    return (bits[:, None] + offsets).reshape(-1).view(np.float32)


@pytest.mark.parametrize("dtype", SIXTEEN)
def test_widening_is_exact_for_every_bit_pattern(dtype: str) -> None:
    x = EVERY.view(SIXTEEN[dtype])
    body = "out[thread_position_in_grid.x] = float(x[thread_position_in_grid.x]);"
    out = launch(body, {"x": x}, {"out": (x.shape, "float32")}, x.size, 1024)[0][0]
    with np.errstate(invalid="ignore"):
        same_bits_or_both_nan(out, x.astype(np.float32))


@pytest.mark.parametrize("dtype", SIXTEEN)
def test_rounding_is_to_nearest_even(dtype: str) -> None:
    x = interesting_floats()
    body = f"out[thread_position_in_grid.x] = {METAL[dtype]}(x[thread_position_in_grid.x]);"
    out = launch(body, {"x": x}, {"out": (x.shape, dtype)}, x.size, 1024)[0][0]
    with np.errstate(over="ignore", invalid="ignore"):
        same_bits_or_both_nan(out, x.astype(SIXTEEN[dtype]))


@pytest.mark.parametrize("dtype", SIXTEEN)
@pytest.mark.parametrize("operator", ["+", "-", "*", "/"])
def test_arithmetic_rounds_once(dtype: str, operator: str) -> None:
    rng = np.random.default_rng(0)
    a, b = (rng.integers(0, 1 << 16, 1 << 15).astype(np.uint16).view(SIXTEEN[dtype]) for _ in range(2))
    body = f"uint i = thread_position_in_grid.x; out[i] = a[i] {operator} b[i];"
    out = launch(body, {"a": a, "b": b}, {"out": (a.shape, dtype)}, a.size, 1024)[0][0]
    with np.errstate(all="ignore"):
        wide = {"+": np.add, "-": np.subtract, "*": np.multiply, "/": np.divide}[operator](
            a.astype(np.float64), b.astype(np.float64)
        )
        # float64 -> 16 bits in one rounding, by way of a float rounded to odd
        narrow = wide.astype(np.float32)
        inexact = (narrow.astype(np.float64) != wide) & np.isfinite(wide) & np.isfinite(narrow)
        bits = narrow.view(np.uint32)
        away = np.abs(narrow.astype(np.float64)) > np.abs(wide)
        odd = np.where(inexact & away, bits - 1, bits) | inexact
        same_bits_or_both_nan(out, odd.view(np.float32).astype(SIXTEEN[dtype]))


EXPRESSIONS: dict[str, float] = {
    "half(2049)": 2048.0,
    "bfloat(257)": 256.0,
    "bfloat(33685505)": 33816576.0,  # a float on the way, rounded to nearest, would end at 33554432
    "half(0.5) + 1": 1.5,
    "half(60000.0) + half(10000.0)": np.inf,
    "half(60000.0) + 10000.0": 70000.0,
    "float(bfloat(1.0) / 3)": 0.333984375,
    "float(half(1.0) / 3)": 0.333251953125,
    "1.0 / 3.0 == 1.0f / 3.0f ? 1.0 : 0.0": 1.0,
    "float(numeric_limits<half>::max())": 65504.0,
    "float(Limits<bfloat16_t>::finite_min)": -3.3895313892515355e38,
    "as_type<float>(0x3F800000u)": 1.0,
    "select(1.0, 2.0, true)": 2.0,
    "clamp(5, 0, 3)": 3.0,
    "max(-1, 2) + min(3.0, 4.0)": 5.0,
    "fmax(NAN, 2.0)": 2.0,
    "fma(2.0, 3.0, 4.0)": 10.0,
    "fast::exp2(-INFINITY)": 0.0,
    "precise::sqrt(2.25)": 1.5,
    "popcount(0xF0F0u) + clz(1u) + ctz(8u)": 42.0,
    "mulhi(0x80000000u, 6u)": 3.0,
    "abs(-3) + fabs(-2.5)": 5.5,
    "rint(2.5) + round(2.5)": 5.0,
    "float4(1.0, 2.0, 3.0, 4.0).wzyx.x": 4.0,
    "dot(float4(1.0, 2.0, 3.0, 4.0), float4(2.0))": 20.0,
    "float3(float2(1.0, 2.0), 3.0).z": 3.0,
    "float(half4(1.0, 2.0, 3.0, 4.0).xyz.z)": 3.0,
    "any(float2(1.0, 5.0) > float2(2.0)) && !all(float2(1.0, 5.0) > float2(2.0)) ? 1.0 : 0.0": 1.0,
    "float(sizeof(float3)) + float(sizeof(packed_float3))": 28.0,
    "float(int3(7, 8, 9).yx.x / 3)": 2.0,
    "float((uint2(5, 6) & 4u).y << 1)": 8.0,
    "isnan(half(NAN)) && isinf(bfloat(INFINITY)) && !isfinite(NAN) ? 1.0 : 0.0": 1.0,
    "float(ceildiv(7, 2))": 4.0,
    "pow(2.0, 10.0) + exp10(2.0)": 1124.0,
}


@pytest.fixture(scope="module")
def computed() -> dict[str, float]:
    """All expressions in one kernel: one build."""
    body = "\n".join(f"out[{n}] = {expression};" for n, expression in enumerate(EXPRESSIONS))
    out = launch(body, {}, {"out": ((len(EXPRESSIONS),), "float32")}, 1)[0][0]
    return dict(zip(EXPRESSIONS, out.tolist(), strict=True))


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_expressions(computed: dict[str, float], expression: str) -> None:
    assert computed[expression] == pytest.approx(EXPRESSIONS[expression], rel=3e-7)


def test_swizzles_can_be_assigned() -> None:
    body = "float4 v = float4(1.0, 2.0, 3.0, 4.0); v.zx = v.wy; v.y += 1.0; out[i] = v[i % 4];"
    assert value(body)[:4].tolist() == [2.0, 3.0, 4.0, 4.0]


@pytest.mark.parametrize(
    "wrong",
    [
        "bfloat b = 0.5f * 1.0f; out[i] = b;",
        "out[i] = half(1.0) + bfloat(1.0);",
        "out[i] = max(1, 2.0f);",
        "out[i] = simd_sum(true);",
        "x[0] = 1.0; out[i] = 0;",
        "simdgroup_matrix<float, 16, 16> m; out[i] = 0;",
    ],
)
def test_what_metal_refuses_does_not_compile(wrong: str) -> None:
    with pytest.raises(KernelError, match=r"probe\.metal:2|static assertion") as caught:
        value(wrong, x=np.zeros(9, np.float32))
    assert caught.value.kind == "compile"
    assert caught.value.line == 2 or "static assertion" in str(caught.value)


def test_attributes_of_every_thread() -> None:
    body = """
    uint3 p = thread_position_in_grid;
    uint i = (p.z * threads_per_grid.y + p.y) * threads_per_grid.x + p.x;
    device int* o = out + i * 12;
    o[0] = thread_position_in_threadgroup.x; o[1] = thread_position_in_threadgroup.y;
    o[2] = threadgroup_position_in_grid.x; o[3] = threadgroup_position_in_grid.y; o[4] = threadgroup_position_in_grid.z;
    o[5] = thread_index_in_threadgroup; o[6] = simdgroup_index_in_threadgroup; o[7] = thread_index_in_simdgroup;
    o[8] = threads_per_threadgroup.x; o[9] = threadgroups_per_grid.x; o[10] = simdgroups_per_threadgroup;
    o[11] = threads_per_simdgroup;
    """
    grid, group = (10, 6, 2), (8, 5, 1)
    out = launch(body, {}, {"out": ((2, 6, 10, 12), "int32")}, grid, group)[0][0]
    for z in range(2):
        for y in range(6):
            for x in range(10):
                width, height = min(8, 10 - x // 8 * 8), min(5, 6 - y // 5 * 5)  # the edge groups are smaller
                index = (y % 5) * width + x % 8
                simdgroups = -(-width * height // 32)
                expected = [x % 8, y % 5, x // 8, y // 5, z, index, index // 32, index % 32, width, 2, simdgroups, 32]
                assert out[z, y, x].tolist() == expected


@pytest.mark.parametrize("options", [Options(), Options(checked=True), Options(checked=True, order="random", seed=4)])
def test_atomics_are_no_races_and_lose_nothing(options: Options) -> None:
    body = """
    uint i = thread_position_in_grid.x;
    atomic_fetch_add_explicit(&total[0], int(i), memory_order_relaxed);
    atomic_fetch_max_explicit(&total[1], int(i), memory_order_relaxed);
    atomic_fetch_or_explicit(&total[2], 1 << (i % 20), memory_order_relaxed);
    int seen = atomic_load_explicit(&total[3], memory_order_relaxed);
    constexpr memory_order relaxed = memory_order_relaxed;
    while (!atomic_compare_exchange_weak_explicit(&total[3], &seen, seen + 2, relaxed, relaxed)) {}
    """
    out = launch(body, {}, {"total": ((4,), "int32")}, 256, 64, options=options, init_value=0, atomic=True)[0][0]
    assert out.tolist() == [255 * 128, 255, (1 << 20) - 1, 512]


def test_denormals_can_be_flushed() -> None:
    x = np.array([1e-39, 1e-38, 2.0], np.float32)
    body = "uint i = thread_position_in_grid.x; out[i] = x[i] * 0.5;"
    kept, flushed = (
        launch(body, {"x": x}, {"out": ((3,), "float32")}, 3, options=Options(flush_denormals=flush))[0][0]
        for flush in (False, True)
    )
    assert (kept > 0).all()
    assert flushed.tolist() == [0.0, 0.0, 1.0]


def test_contraction_can_be_allowed() -> None:
    # 1 + 2^-12 squared is 1 + 2^-11 + 2^-24: the last bit is lost unless the multiplication is fused.
    x = np.full(8, 1 + 2.0**-12, np.float32)
    body = "uint i = thread_position_in_grid.x; out[i] = x[i] * x[i] - x_minus[i];"
    minus = np.full(8, 1 + 2.0**-11, np.float32)
    apart, fused = (
        launch(body, {"x": x, "x_minus": minus}, {"out": ((8,), "float32")}, 8, options=Options(fma=fma))[0][0][0]
        for fma in (False, True)
    )
    assert (apart, fused) == (0.0, 2.0**-24)
