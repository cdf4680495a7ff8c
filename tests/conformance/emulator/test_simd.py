"""Operations across the lanes of a simdgroup: reductions, prefixes, shuffles, votes, quads, matrices."""

from __future__ import annotations

import numpy as np
import pytest

from mlx_tx_conformance.emulator import Options
from tests.conformance.emulator.run_kernel import launch, value

LANES = np.arange(32)
X = np.random.default_rng(1).integers(-50, 50, 32).astype(np.float32)
N = np.random.default_rng(2).integers(1, 1 << 20, 32).astype(np.int32)


def quads(a: np.ndarray) -> np.ndarray:
    return a.reshape(8, 4)


EXPECTED = {
    "simd_sum(x[i])": np.full(32, X.sum()),
    "simd_max(x[i])": np.full(32, X.max()),
    "simd_min(x[i])": np.full(32, X.min()),
    "simd_product(lane < 3 ? x[i] : 1.0f)": np.full(32, X[:3].prod()),
    "simd_prefix_inclusive_sum(x[i])": X.cumsum(),
    "simd_prefix_exclusive_sum(x[i])": X.cumsum() - X,
    "simd_shuffle(x[i], ushort(31 - lane))": X[::-1],
    "simd_shuffle_xor(x[i], ushort(5))": X[LANES ^ 5],
    "simd_shuffle_down(x[i], ushort(3))": np.concatenate([X[3:], X[29:]]),
    "simd_shuffle_up(x[i], ushort(3))": np.concatenate([X[:3], X[:29]]),
    "simd_shuffle_rotate_down(x[i], ushort(3))": np.roll(X, -3),
    "simd_shuffle_rotate_up(x[i], ushort(3))": np.roll(X, 3),
    "simd_shuffle_and_fill_up(x[i], 7.0f, ushort(2))": np.concatenate([[7.0, 7.0], X[:30]]),
    "simd_shuffle_and_fill_down(x[i], 7.0f, ushort(2))": np.concatenate([X[2:], [7.0, 7.0]]),
    "simd_broadcast(x[i], ushort(9))": np.full(32, X[9]),
    "simd_broadcast_first(x[i])": np.full(32, X[0]),
    "simd_all(lane < 32) && !simd_all(lane < 31) ? 1.0 : 0.0": np.ones(32),
    "simd_any(lane == 31) && !simd_any(lane == 32) ? 1.0 : 0.0": np.ones(32),
    "simd_is_first() ? 1.0 : 0.0": (LANES == 0).astype(float),
    "float(uint(uint64_t(simd_ballot(lane % 4 == 1))) >> 8)": np.full(32, float(0x222222)),
    "quad_sum(x[i])": quads(X).sum(1).repeat(4),
    "quad_max(x[i])": quads(X).max(1).repeat(4),
    "quad_shuffle_xor(x[i], ushort(1))": X[LANES ^ 1],
    "quad_shuffle_up(x[i], ushort(1))": quads(X)[:, [0, 0, 1, 2]].reshape(-1),
    "quad_shuffle_down(x[i], ushort(1))": quads(X)[:, [1, 2, 3, 3]].reshape(-1),
    "quad_broadcast(x[i], ushort(2))": quads(X)[:, 2].repeat(4),
    "simd_sum(float2(x[i], 1.0)).y": np.full(32, 32.0),
}
EXPECTED_INT = {
    "simd_and(n[i])": np.full(32, np.bitwise_and.reduce(N)),
    "simd_or(n[i])": np.full(32, np.bitwise_or.reduce(N)),
    "simd_xor(n[i])": np.full(32, np.bitwise_xor.reduce(N)),
    "simd_sum(n[i])": np.full(32, N.sum()),
    "int(simd_shuffle_down(long(n[i]) << 12, ushort(1)) >> 12)": np.concatenate([N[1:], N[31:]]),
}


def compute_all(expressions: dict[str, np.ndarray], dtype: str, **inputs: np.ndarray) -> dict[str, np.ndarray]:
    """All expressions in one kernel: one build."""
    prologue = "uint i = thread_index_in_threadgroup, lane = i;\n"
    body = prologue + "\n".join(f"out[{n} * 32 + i] = {expression};" for n, expression in enumerate(expressions))
    out = launch(body, inputs, {"out": ((len(expressions), 32), dtype)})[0][0]
    return dict(zip(expressions, out, strict=True))


@pytest.fixture(scope="module")
def floating() -> dict[str, np.ndarray]:
    return compute_all(EXPECTED, "float32", x=X)


@pytest.fixture(scope="module")
def integer() -> dict[str, np.ndarray]:
    return compute_all(EXPECTED_INT, "int32", n=N)


@pytest.mark.parametrize("expression", EXPECTED)
def test_floating(floating: dict[str, np.ndarray], expression: str) -> None:
    np.testing.assert_array_equal(floating[expression], EXPECTED[expression])


@pytest.mark.parametrize("expression", EXPECTED_INT)
def test_integer(integer: dict[str, np.ndarray], expression: str) -> None:
    np.testing.assert_array_equal(integer[expression], EXPECTED_INT[expression])


def test_lanes_that_ended_take_no_part() -> None:
    body = "if (lane >= 20) { out[i] = -1; return; } out[i] = simd_sum(x[i]) + (simd_all(true) ? 1000 : 0);"
    out = value(body, x=X)
    assert out[:20].tolist() == [X[:20].sum() + 1000] * 20
    assert out[20:].tolist() == [-1.0] * 12


def test_a_lane_that_takes_no_part_is_read_as_poison() -> None:
    out = value("if (lane >= 20) { out[i] = 0; return; } out[i] = simd_shuffle(x[i], ushort(25));", x=X)
    assert np.isnan(out[:20]).all()


@pytest.mark.parametrize("order", ["forward", "reverse", "random"])
def test_reductions_add_in_one_order(order: str) -> None:
    x = np.random.default_rng(5).standard_normal(32).astype(np.float32)
    tree = x.copy()
    for width in (16, 8, 4, 2, 1):
        tree = tree[:width] + tree[width : 2 * width]
    body = "out[thread_position_in_grid.x] = simd_sum(x[thread_position_in_grid.x]);"
    out = launch(body, {"x": x}, {"out": ((32,), "float32")}, options=Options(order=order, seed=7))[0][0]
    assert (out == tree[0]).all()


def test_matrix_elements_lie_where_mlx_expects_them() -> None:
    x = np.arange(64, dtype=np.float32)
    body = """
    simdgroup_float8x8 m;
    simdgroup_load(m, x, 8);
    uint l = thread_index_in_simdgroup;
    out[l * 2] = m.thread_elements()[0];
    out[l * 2 + 1] = m.thread_elements()[1];
    """
    out = launch(body, {"x": x}, {"out": ((32, 2), "float32")})[0][0]
    for lane in range(32):
        quad = lane // 4
        row, column = (quad & 4) + lane // 2 % 4, (quad & 2) * 2 + lane % 2 * 2
        assert out[lane].tolist() == [row * 8 + column, row * 8 + column + 1]


@pytest.mark.parametrize("kind", ["float", "half", "bfloat"])
def test_matrix_product_with_transposed_load_and_store(kind: str) -> None:
    rng = np.random.default_rng(3)
    a, b, c = (rng.integers(-4, 5, (8, 8)).astype(np.float32) for _ in range(3))  # exact in every type
    body = f"""
    uint l = thread_index_in_simdgroup;
    threadgroup {kind} tile[3 * 64];
    for (uint i = l; i < 64; i += 32) {{
      tile[i] = {kind}(a[i]); tile[64 + i] = {kind}(b[i]); tile[128 + i] = {kind}(c[i]);
    }}
    simdgroup_barrier(mem_flags::mem_threadgroup);
    simdgroup_matrix<{kind}, 8, 8> A, B, C;
    simdgroup_load(A, tile, 8);
    simdgroup_load(B, tile + 64, 8, ulong2(0, 0), true);
    simdgroup_load(C, tile + 128, 8);
    simdgroup_multiply_accumulate(C, A, B, C);
    simdgroup_barrier(mem_flags::mem_threadgroup);
    simdgroup_store(C, tile, 8, ulong2(0, 0), true);
    simdgroup_barrier(mem_flags::mem_threadgroup);
    for (uint i = l; i < 64; i += 32) out[i] = float(tile[i]);
    """
    inputs = {"a": a, "b": b, "c": c}
    out = launch(body, inputs, {"out": ((8, 8), "float32")}, options=Options(checked=True))[0][0]
    np.testing.assert_array_equal(out, (a @ b.T + c).T)


def test_filled_and_diagonal_matrices() -> None:
    body = """
    simdgroup_float8x8 d(3.0f);
    simdgroup_float8x8 f = make_filled_simdgroup_matrix<float, 8>(2.0f);
    simdgroup_float8x8 p;
    simdgroup_multiply(p, d, f);
    simdgroup_store(p, out, 8);
    """
    out = launch(body, {"x": X}, {"out": ((8, 8), "float32")}, header="#include <metal_simdgroup_matrix>\n")[0][0]
    assert (out == 6.0).all()
