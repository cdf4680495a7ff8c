"""What looks like a violation and is none."""

from __future__ import annotations

import pytest

from mlx_tx_conformance.emulator.strict import check_kernel

from .kernels import add, helper

ACCEPTED = {
    "subscript-of-subscript": add("int index[2] = {0, 1}; float x = sums[index[0]];"),
    "words-in-comments": add("// double new goto std::vector virtual lambda [] () {}"),
    "words-in-longer-names": add("float doubled = 2.0f; float renewed = doubled;"),
    "float-literal-as-a-size": add(
        "constexpr int n = int(16.0f * 0.5f); float x[n]; x[0] = 0.0f; static_assert(n == 8);"
    ),
    "integer-to-bfloat": add("T x = 0; x = 1;"),
    "half-suffix": add("half x = 1.0h;"),
    "bfloat-suffix": add("bfloat x = 1.0bf;"),
    "unsuffixed-initialiser": add("float x = 0.0;"),
    "hexadecimal-with-e": add("uint x = 0x1e5u;"),
    "threadgroup-pointer": add("threadgroup float* p = reinterpret_cast<threadgroup float*>(tile); p[0] = 1.0f;"),
    "threadgroup-vector-store": add("*((threadgroup vec<T, 4>*)(tile)) = vec<T, 4>(T(0));"),
    "late-threadgroup-array": add("if (D > 4) { threadgroup float late[4]; late[0] = 0.0f; }"),
    "vector-from-parts": add("float4 v = float4(float2(1.0f, 2.0f), 3.0f, 4.0f); float x = dot(v, v);"),
    "vector-alias": add("using V = vec<T, 4>; V v = V(T(0), T(1), T(2), T(3));"),
    "vector-braces": add("ulong3 at{1, 2, 3};"),
    "comparison-not-template": add("bool x = block < 3 && lane > 2;"),
    "static-constant": helper("struct Tile { static constant constexpr const int rows = 8; };"),
    "program-constant": helper("constant float table[2] = {1.0f, 2.0f};"),
    "static-member-function": helper("struct Op { static METAL_FUNC float apply(float x) { return x; } };"),
    "thread-member-function": helper(
        "struct Pair { float a; Pair(float x) thread : a(x) {} float get() const thread { return a; } };"
    ),
    "overload-is-no-recursion": helper(
        "inline float twice(float x, float y) { return x + y; }\ninline float twice(float x) { return twice(x, x); }"
    ),
    "template-recursion": helper(
        "template <int N> inline int depth(int x) { if constexpr (N > 0) { return depth<N - 1>(x); } return x; }"
    ),
    "trait": helper("template <typename T> struct is_wide : bool_constant<sizeof(T) == 4> {};"),
    "array-parameter": helper("inline int first(constant const int sizes[2]) { return sizes[0]; }"),
    "own-function": helper("inline float erf(float x) { return x; }"),
    "macro-in-a-struct": helper(
        "#define MEMBERS(kind) kind a, b;\nstruct Pair { MEMBERS(float) float get() const thread { return a; } };"
    ),
    "macro-function": helper("#define ADD(a, b) ((a) + (b))\ninline int f(int a) { return ADD(a, 1); }"),
    "one-type-maximum": add("float x = max(float(lane), 0.0f); int y = min(int(lane), 4);"),
    "bfloat-maximum": add("T x = max(T(0), T(1)); T y = metal::exp(x);"),
    "bfloat-to-float": add("float x = tile[0]; x += tile[1];"),
    "guarded-store": add("if (lane < 4) { sums[lane] = 1.0f; }"),
    "return-after-the-last-barrier": add("if (block > 3) return;"),
    "uniform-branch": add("if (block < 4) { threadgroup_barrier(mem_flags::mem_threadgroup); }"),
    "vote-makes-uniform": add("if (simd_any(lane > 3)) { float x = simd_max(scale); }"),
    "loop-over-simdgroups": add(
        "for (int i = simdgroup_index_in_threadgroup; i < 8; i += 4) { float x = simd_sum(float(i)); }"
    ),
    "atomics": add("threadgroup atomic<int> n[1]; atomic_fetch_add_explicit(&n[0], 1, memory_order_relaxed);"),
    "struct-copied-from-threadgroup": add("threadgroup Bounds shared[2]; Bounds own = shared[0];"),
    "struct-copied-to-threadgroup": add("threadgroup Bounds shared; shared = bounds; shared.rows = 1;"),
    "struct-copied-between-casts": add("*((threadgroup Bounds*)tile) = *((const threadgroup Bounds*)(sums));"),
    "bit-casts": add("uint x = as_type<uint>(scale); uint2 y = as_type<uint2>(uint64_t(x));"),
    "unroll": add("#pragma unroll\nfor (short i = 0; i < 4; i++) { sums[i] = 0.0f; }"),
    "unroll-by-macro": add("MLX_MTL_PRAGMA_UNROLL\nfor (short i = 0; i < 4; i++) { sums[i] = 0.0f; }"),
    "limits": add("float x = Limits<float>::finite_min; T y = metal::numeric_limits<T>::infinity();"),
    "static-assert": add('static_assert(D % 8 == 0, "whole fragments");'),
    "elements-as-vector": add(
        "simdgroup_float8x8 m; float x = reinterpret_cast<thread vec<float, 2>&>(m.thread_elements()).x;"
    ),
}


@pytest.mark.parametrize("name", ACCEPTED)
def test_nothing_is_found(name):
    found = check_kernel(ACCEPTED[name])
    assert found == [], [f.pretty() for f in found]
