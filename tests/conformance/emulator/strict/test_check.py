"""Which calls are checked, what they are told to take, and where findings are placed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mlx_tx_conformance.emulator.strict import (
    Instance,
    KernelInput,
    KernelOutput,
    KernelSource,
    check_kernel,
    check_words,
    inspect_kernel,
)
from mlx_tx_conformance.emulator.strict.kernel import variants

from .kernels import COMPLETE, GOOD, add, plant


def spaces(kernel):
    return [tuple(v.spaces.values()) for v in variants(kernel, thorough=True)]


def test_inputs_are_checked_large_small_and_each_alone_small():
    kernel = replace(GOOD, inputs=(KernelInput("a"), KernelInput("b"), KernelInput("scalar", ndim=0)))
    assert spaces(kernel) == [
        ("device", "device", "constant"),
        ("constant", "constant", "constant"),
        ("constant", "device", "constant"),
        ("device", "constant", "constant"),
    ]


def test_sizes_that_the_host_rules_out_are_not_checked():
    kernel = replace(GOOD, inputs=(KernelInput("a", min_size=8), KernelInput("b", max_size=7)))
    assert spaces(kernel) == [("device", "constant")]


def test_a_pointer_that_says_device_needs_an_input_that_is_never_small():
    source = "const device T* rows = q;\nout[thread_position_in_grid.x] = rows[0];\n"
    always = KernelSource("k", source, (KernelInput("q", min_size=8),), (KernelOutput("out"),), "", GOOD.instances)
    sometimes = replace(always, inputs=(KernelInput("q"),))
    assert check_kernel(always) == []
    assert [(f.rule, f.line) for f in check_kernel(sometimes)] == [("address-space", 1)]
    assert "under 8 elements" in check_kernel(sometimes)[0].instance


def test_two_inputs_of_one_space_are_told_from_two_of_different_spaces():
    # Both large or both small, the branches agree; one of each is an error that only a single small input shows.
    source = "auto chosen = thread_position_in_grid.x > 3 ? a : b;\nout[thread_position_in_grid.x] = chosen[0];\n"
    inputs = (KernelInput("a"), KernelInput("b"))
    kernel = KernelSource("k", source, inputs, (KernelOutput("out"),), "", GOOD.instances)
    found = check_kernel(kernel)
    assert [(f.rule, f.line) for f in found] == [("address-space", 1)]
    assert found[0].instance.endswith("`a` under 8 elements")


def test_threadgroup_bytes_of_every_instance():
    widths = {"float32": 4, "float16": 2, "bfloat16": 2}
    by_hand = {i.label: widths[i.template["T"]] * 8 * (i.template["D"] + 4) + 4 * 8 for i in COMPLETE.instances}
    assert inspect_kernel(COMPLETE).threadgroup_bytes == by_hand


@pytest.mark.parametrize(("count", "accepted"), [(8192 - 136, True), (8192 - 135, False)])
def test_threadgroup_memory_limit_is_32768_bytes(count, accepted):
    # The tile of the bfloat16 instance takes 2 x 8 x (64 + 4) = 1088 bytes, the sums 32: the rest is in floats.
    kernel = add(f"threadgroup float more[{count - 144}];", kernel=GOOD)
    assert (sum(inspect_kernel(kernel).threadgroup_bytes.values()) <= 32768) is accepted
    assert (check_kernel(kernel) == []) is accepted


@pytest.mark.parametrize(
    ("threads", "severities"), [(256, []), (257, ["warning"]), (1024, ["warning"]), (1025, ["error"])]
)
def test_threads_of_a_threadgroup(threads, severities):
    kernel = replace(GOOD, instances=(Instance(GOOD.instances[0].template, (threads, 1, 1)),))
    assert [f.severity for f in check_words(kernel) if f.rule == "threadgroup-size"] == severities


@pytest.mark.parametrize(("extra", "accepted"), [(26, True), (27, False)])
def test_thirty_one_buffer_slots(extra, accepted):
    # q, q_shape, bias, scale and out are five.
    more = tuple(KernelInput(f"x{i}", "float32", 1) for i in range(extra))
    assert (check_words(replace(GOOD, inputs=(*GOOD.inputs, *more))) == []) is accepted


def test_findings_stand_in_the_file_the_text_was_read_from():
    kernel = replace(add("double x = 1.0f;"), source_file=("sums.metal", 41), header_file=("common.metal", 1))
    assert {(f.where, f.line) for f in check_kernel(kernel)} == {("sums.metal", 55)}


def test_an_error_that_every_instance_has_is_said_once():
    found = check_kernel(add("float x = missing;", kernel=COMPLETE))
    assert len([f for f in found if f.rule == "undeclared"]) == 1


def test_a_fault_of_one_instance_is_found_and_names_it():
    found = check_kernel(plant("row[lane] = static_cast<T>(total)", "row[lane] = total", kernel=COMPLETE))
    assert {f.rule for f in found} == {"bfloat-narrowing"}
    assert found[0].instance.startswith("T=bfloat16 D=64")


def test_a_kernel_without_templates_is_checked():
    source = "out[thread_position_in_grid.x] = x[0] + 1;\n"
    kernel = KernelSource("k", source, (KernelInput("x", "int32", 1),), (KernelOutput("out", "int32"),))
    assert check_kernel(kernel) == []
    assert [f.rule for f in check_kernel(replace(kernel, source=source.replace("1;", "y;")))] == ["undeclared"]


def test_template_parameters_are_known_names():
    source = "out[thread_position_in_grid.x] = T(D);\n"
    kernel = KernelSource("k", source, (), (KernelOutput("out"),), "", GOOD.instances)
    assert check_kernel(kernel) == []
