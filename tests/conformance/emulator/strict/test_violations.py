"""Every rule refuses what it is for: one fault planted in a kernel that is otherwise accepted."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mlx_tx_conformance.emulator.strict import RULES, Instance, KernelInput, check_kernel

from .kernels import COMPLETE, GOOD, INPUTS, add, helper, plant

_MANY = tuple(KernelInput(f"x{i}", "float32", 1) for i in range(30))

# rule: faults by name, each with the line of the finding (0: the finding has none)
VIOLATIONS = {
    # words
    "double": [("variable", add("double x = 1.0f;"), 15), ("cast", plant("float(source", "double(source"), 11)],
    "wide-type": [
        ("long-long", add("long long x = 1;"), 15),
        ("long-double", add("long double x = 1;"), 15),
        ("literal", add("long x = 1ll;"), 15),
    ],
    "unsuffixed-literal": [
        ("in-arithmetic", plant("* scale;", "* scale * 0.5;"), 22),
        ("exponent", plant("* scale;", "* scale + 1e-6;"), 22),
        ("in-a-macro", helper("#define HALF_OF(x) ((x) * 0.5)"), 24),
    ],
    "heap": [
        ("new", add("thread float* x = new float[4];"), 15),
        ("delete", add("delete &weight_unknown;"), 15),
    ],
    "exceptions": [("try", add("try { } catch (...) { }"), 15), ("throw", add("throw 1;"), 15)],
    "virtual": [("function", helper("struct A { virtual void f() thread {} };"), 24)],
    "goto": [("goto", add("goto end; end: ;"), 15)],
    "static-local": [("counter", add("static int calls = 0;"), 15)],
    "global-variable": [
        ("constexpr", helper("constexpr int WIDTH = 4;"), 24),
        ("table", helper("static const float table[2] = {1.0f, 2.0f};"), 24),
    ],
    "lambda": [
        ("capturing", add("auto twice = [&](float x) { return 2.0f * x; };"), 15),
        ("as-argument", plant("row_maximum(first)", "row_maximum([](float x) { return x; }(first))"), 23),
    ],
    "recursion": [
        ("direct", helper("inline int down(int n) { return n ? down(n - 1) : 0; }"), 24),
        (
            "mutual",
            helper("int b(int n);\ninline int a(int n) { return b(n); }\ninline int b(int n) { return a(n); }"),
            25,
        ),
    ],
    "std": [("exp2", plant("fast::exp2", "std::exp2"), 24)],
    "structured-binding": [("auto", add("auto [x, y] = bounds;"), 15)],
    "inheritance": [("derived", helper("struct Wide : Bounds { int depth; };"), 24)],
    "thread-local": [("local", add("thread_local int x = 0;"), 15)],
    "rtti": [
        ("typeid", add("auto x = typeid(lane);"), 15),
        ("dynamic-cast", add("auto x = dynamic_cast<thread Bounds*>(&bounds);"), 15),
    ],
    "cxx-feature": [
        ("fold", helper("template <typename... A> inline float sum_of(A... a) { return (... + a); }"), 24),
        ("concept", helper("template <typename T> concept Number = true;"), 24),
        ("designated", plant("Bounds bounds;", "Bounds bounds = {.rows = 1, .columns = 2};"), 6),
        ("noexcept", helper("constexpr constant bool quiet = noexcept(1);"), 24),
    ],
    "assembly": [("asm", add('asm("nop");'), 15)],
    "variable-length-array": [("thread", add("float x[lane + 1];"), 15)],
    "non-ascii": [
        ("in-a-comment", add("// \N{MULTIPLICATION SIGN}"), 15),
        ("in-code", add('auto x = "\N{MIDDLE DOT}";'), 15),
    ],
    "include": [
        ("mlx", helper('#include "mlx/backend/metal/kernels/atomic.h"'), 24),
        ("std", helper("#include <cmath>"), 24),
    ],
    "missing-include": [("matrix", plant("#include <metal_simdgroup_matrix>\n", "\n"), 15)],
    "unbalanced": [("brace", plant("float total = simd_sum(weight);", "} float total = simd_sum(weight);"), 28)],
    # address spaces
    "address-space": [
        ("device-pointer-to-small-input", add("const device T* rows = q;"), 15),
        ("threadgroup-pointer-to-device", add("threadgroup T* x = out;"), 15),
        ("device-helper-on-any-input", plant("at(T source", "at(const device T* source"), 11),
        ("thread-pointer-to-threadgroup", add("thread T* x = tile;"), 15),
        (
            "matrix-from-thread-array",
            plant("simdgroup_load(left, &tile[d * 8]", "T own[64]; simdgroup_load(left, own"),
            18,
        ),
        ("constant-scalar-as-device", add("const device float* x = &scale;"), 15),
        ("branches-of-two-spaces", add("auto x = CAUSAL ? &tile[0] : out;"), 15),
    ],
    "address-space-cast": [
        ("c-style", add("threadgroup float* x = (threadgroup float*)out;"), 15),
        ("reinterpreted", add("threadgroup float* x = reinterpret_cast<threadgroup float*>(out);"), 15),
        ("to-thread", add("thread float* x = (thread float*)sums;"), 15),
    ],
    "unqualified-pointer": [
        ("local", add("float w = 0.0f; float* x = &w;"), 15),
        ("parameter", plant("thread const Bounds& bounds", "const Bounds& bounds"), 10),
        ("auto-reference", add("auto& x = sums[0];"), 15),
        ("member", helper("struct View { float* start; };"), 24),
        ("cast", add("float w = 0.0f; auto x = (int*)&w;"), 15),
    ],
    "member-address-space": [
        ("method", helper("struct Pair { float a; float get() { return a; } };"), 24),
        ("const-method", helper("struct Pair { float a; float get() const { return a; } };"), 24),
        ("constructor", helper("struct Pair { float a; Pair(float x) : a(x) {} };"), 24),
    ],
    "threadgroup-scope": [
        (
            "helper",
            plant("  for (int i = thread_index;", "  threadgroup float own[4];\n  for (int i = thread_index;"),
            20,
        ),
        ("program", helper("threadgroup float shared[4];"), 24),
    ],
    "threadgroup-initialiser": [
        ("zero", plant("threadgroup float sums[8];", "threadgroup float sums[8] = {0};"), 3),
        ("value", plant("threadgroup float sums[8];", "threadgroup float sums[8]; threadgroup int n = 0;"), 3),
    ],
    "threadgroup-memory": [("40-kilobytes", plant("float sums[8]", "float sums[10000]"), 0)],
    "threadgroup-size": [
        ("2048-threads", replace(GOOD, instances=(Instance(GOOD.instances[0].template, (64, 32, 1)),)), 0),
    ],
    "const-write": [
        ("input", add("q[0] = T(0);"), 15),
        ("scalar", add("scale = 1.0f;"), 15),
        ("shape", add("q_shape[0] = 1;"), 15),
        ("const-local", add("lane = 1;"), 15),
        ("constant-pointer", helper("inline void set(constant float* x) { x[0] = 1.0f; }"), 24),
    ],
    "function-constant": [("declared", helper("constant bool flag [[function_constant(1)]];"), 24)],
    # types
    "double-arithmetic": [("builtin", helper("inline float f(float x) { return x * __builtin_huge_val(); }"), 24)],
    "bfloat-narrowing": [
        ("store", plant("row[lane] = static_cast<T>(total)", "row[lane] = total"), 30),
        ("initialiser", add("T x = 0.5f * scale;"), 15),
        ("exact-constant", add("T x = 0.5f;"), 15),
        ("zero", add("T x = 0.0f;"), 15),
        ("branch", add("T x = block > 3 ? T(1) : 0.5f;"), 15),
        ("infinity", add("T x = -INFINITY;"), 15),
        ("limit", add("T x = Limits<float>::finite_min;"), 15),
        ("compound", add("T x = T(0); x += scale;"), 15),
        ("in-a-helper", helper("inline bfloat narrow(float x) { return x; }"), 24),
    ],
    "half-bfloat": [
        ("sum", add("half x = half(1.0f); bfloat y = bfloat(1.0f); auto z = x + y;"), 15),
        ("half-to-bfloat", add("half x = half(1.0f); bfloat y = x;"), 15),
        ("bfloat-to-half", add("bfloat x = bfloat(1.0f); half y = x;"), 15),
        ("matrices", plant("<T, 8, 8> left, right", "<half, 8, 8> left; simdgroup_matrix<bfloat, 8, 8> right"), 20),
    ],
    "vector-conversion": [
        ("signed-and-unsigned", add("int4 x = uint4(1);"), 15),
        ("too-many-components", add("float2 x = float2(1.0f, 2.0f, 3.0f);"), 15),
        ("to-scalar", add("float x = float2(1.0f);"), 15),
        ("position-minus-int", add("auto x = threadgroup_position_in_grid - vec<int, 3>(1);"), 15),
    ],
    "ambiguous-call": [
        ("max-float-int", plant("max(x, simd_shuffle_xor(x, ushort(1)))", "max(x, 0)"), 15),
        ("min-int-uint", add("int x = min(block, 4u);"), 15),
        ("min-short-int", add("int x = min(lane, 4);"), 15),
        ("fma", add("float x = fma(scale, 2, 1.0f);"), 15),
        ("clamp", add("int x = clamp(block, 0u, 4);"), 15),
        ("select", add("float x = select(0, scale, true);"), 15),
    ],
    "no-matching-call": [
        ("shuffle-without-lane", plant("simd_shuffle_xor(x, ushort(8))", "simd_shuffle_xor(x)"), 16),
        ("barrier-without-flags", add("threadgroup_barrier();"), 15),
    ],
    "undeclared": [
        (
            "attribute-in-helper",
            plant("int thread_index)", "int unused, int thread_index = thread_index_in_simdgroup)"),
            19,
        ),
        ("variable", add("float x = missing;"), 15),
        ("shape-of-scalar", add("int x = scale_shape[0];"), 15),
    ],
    "type-error": [
        ("reduction-of-bool", add("bool x = simd_sum(CAUSAL);"), 15),
        ("as-type-of-other-size", add("ushort x = as_type<ushort>(scale);"), 15),
        ("half-atomic", add("threadgroup atomic<half> x;"), 15),
        ("missing-semicolon", add("float x = 1.0f"), 15),
    ],
    # names
    "name-never": [
        ("half4", add("half4 x;"), 15),
        ("simd-ballot", add("auto x = simd_ballot(true);"), 15),
        ("enum", helper("enum { A, B };"), 24),
        ("FLT_MAX", plant("fast::exp2(first - maximum)", "fast::exp2(first - FLT_MAX)"), 24),
        ("attribute", add("uint x = thread_execution_width;"), 15),
    ],
    "name-m5": [("tensor-ops", add("mpp::tensor_ops::matmul2d x;"), 15)],
    "name-bfloat-only": [("trunc", plant("fast::exp2(first - maximum)", "trunc(first - maximum)"), 24)],
    "name-unknown": [
        ("unqualified", plant("fast::exp2(first - maximum)", "smoothstep(0.0f, 1.0f, first)"), 24),
        ("metal", plant("fast::exp2(first - maximum)", "metal::erf(first)"), 24),
    ],
    "name-clash": [
        ("helper-called-max", helper("inline float dot(float a) { return a; }"), 24),
        ("preamble-redefined", helper("inline int ceildiv(int a, int b) { return a / b; }"), 24),
        ("local-grid-size", add("int grid_size = 1;"), 15),
        ("argument-kernel", replace(GOOD, inputs=(*INPUTS, KernelInput("kernel", "float32", 1))), 0),
        ("local-buffer", add("int buffer = 1;"), 15),
    ],
    # the generated signature
    "no-attribute": [("none", replace(GOOD, source="out[0] = T(q[0]);\n"), 0)],
    "accidental-attribute": [
        ("in-a-comment", add("// threads_per_grid is a multiple of 32"), 15),
        ("in-a-longer-name", add("int my_threads_per_grid = 1;"), 15),
    ],
    "accidental-shape": [
        ("in-a-longer-name", add("int unbias_shape = 1;"), 15),
        ("in-a-comment", add("// bias_strides are not needed"), 15),
    ],
    "buffer-slots": [("33", replace(GOOD, inputs=(*INPUTS, *_MANY)), 0)],
    "template-value": [
        ("negative", replace(GOOD, instances=(Instance({"T": "float32", "D": -8, "CAUSAL": True}),)), 0),
        ("float", replace(GOOD, instances=(Instance({"T": "float32", "D": 8.0, "CAUSAL": True}),)), 0),
        ("float64", replace(GOOD, instances=(Instance({"T": "float64", "D": 8, "CAUSAL": True}),)), 0),
    ],
    "kernel-name": [
        ("dash", replace(GOOD, name="row-sums"), 0),
        ("twice", replace(GOOD, inputs=(*INPUTS, KernelInput("q", "float32", 1))), 0),
    ],
    # control flow
    "divergent-barrier": [
        ("return-before-barrier", plant("fill(sums, 8, lane);", "if (lane > 8) return;"), 14),
        ("barrier-in-branch", add("if (lane < 16) { threadgroup_barrier(mem_flags::mem_threadgroup); }"), 15),
        ("reduction-in-branch", plant("weight = 0.0f;", "weight = simd_max(weight);"), 26),
        ("by-simdgroup", add("if (simdgroup_index_in_threadgroup == 0) threadgroup_barrier(mem_flags::mem_none);"), 15),
    ],
}
CASES = [
    pytest.param(rule, kernel, line, id=f"{rule}-{name}")
    for rule, faults in VIOLATIONS.items()
    for name, kernel, line in faults
]


def test_the_kernel_without_a_fault_is_accepted():
    assert check_kernel(COMPLETE) == []


@pytest.mark.parametrize(("rule", "kernel", "line"), CASES)
def test_fault_is_refused_by_its_rule(rule, kernel, line):
    found = check_kernel(kernel)
    named = [f for f in found if f.rule == rule]
    assert named, [f.pretty() for f in found]
    if line:
        assert line in {f.line for f in named}, [f.pretty() for f in named]


def test_every_rule_has_a_fault():
    assert set(VIOLATIONS) == set(RULES)
