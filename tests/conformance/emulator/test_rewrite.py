"""The mechanical changes from Metal to C++: what becomes what, and that lines stay where they are."""

from __future__ import annotations

import pytest

from mlx_tx_conformance.emulator.rewrite import function_constants, strip_comments, to_cpp


@pytest.mark.parametrize(
    ("metal", "cpp"),
    [
        ("threadgroup float x[32];", 'auto& x = ::emu::threadgroup_variable<float [32]>(__COUNTER__, "x");'),
        ("threadgroup int n;", 'auto& n = ::emu::threadgroup_variable<int>(__COUNTER__, "n");'),
        (
            "threadgroup vec<T, 4> t[8][D];",
            'auto& t = ::emu::threadgroup_variable<vec<T, 4> [8][D]>(__COUNTER__, "t");',
        ),
        ("1.0", "1.0f"),
        ("x = 1e-6;", "x = 1e-6f;"),
        ("x = .5;", "x = .5f;"),
        ("x = 2.f + 3.0F;", "x = 2.f + 3.0f;"),
        ("x = 1.5h;", "x = half(1.5f);"),
        ("x = 1.5bf;", "x = bfloat(1.5f);"),
        ("x = 2h;", "x = half(2.0f);"),
        ("v.xy", "v.template swizzle<0, 1>()"),
        ("v.wzyx.xy", "v.template swizzle<3, 2, 1, 0>().template swizzle<0, 1>()"),
        ("v.rgb", "v.template swizzle<0, 1, 2>()"),
        ("constant bool causal [[function_constant(3)]];", "bool causal;"),
    ],
)
def test_what_becomes_what(metal: str, cpp: str) -> None:
    assert to_cpp(metal) == cpp


@pytest.mark.parametrize(
    "unchanged",
    [
        "threadgroup float* p = tile;",
        "void f(threadgroup float* x, const threadgroup int& n);",
        "threadgroup_barrier(mem_flags::mem_threadgroup);",
        "x = 0x1E5;",
        "x = 17u + 3ul;",
        "v.x = v.y;",
        "s.xy();",
        "a1e5 = b.e2;",
        "x = a.max;",
    ],
)
def test_what_stays(unchanged: str) -> None:
    assert to_cpp(unchanged) == unchanged


def test_several_variables_in_one_declaration() -> None:
    cpp = to_cpp("threadgroup float a[4], b, c[2][3];")
    assert cpp.count("threadgroup_variable<float") == 3
    assert '<float [2][3]>(__COUNTER__, "c")' in cpp


def test_lines_stay_where_they_are() -> None:
    source = """/* a
    comment */ int a; // one
threadgroup float x[
    32
];
float b = 1.0;
"""
    lines = to_cpp(source).split("\n")
    assert len(lines) == len(source.split("\n"))
    assert lines[1].strip() == "int a;"
    assert lines[5] == "float b = 1.0f;"


def test_comments_inside_strings_stay() -> None:
    assert strip_comments('x = "a // b"; // c') == 'x = "a // b";     '


def test_function_constants_are_found_with_index_and_type() -> None:
    source = "constant bool causal [[function_constant(3)]];\n// constant int no [[function_constant(4)]];\n"
    assert function_constants(source) == {"causal": (3, "bool")}


def test_member_specialisations_become_overloads() -> None:
    assert to_cpp("struct S {\n  template <>\n  float f(float x);\n};") == "struct S {\n  \n  float f(float x);\n};"
    assert to_cpp("template <>\nstruct S<int> {};") == "template <>\nstruct S<int> {};"
