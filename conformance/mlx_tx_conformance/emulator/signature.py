"""The kernel function that `mx.fast.metal_kernel` generates around a source, rule for rule.

A 0-d input is a `constant` reference, an input of fewer than 8 elements a `constant` pointer, a larger one a `device`
pointer; `<input>_shape`, `_strides`, `_ndim` and thread attributes become parameters only where the source names them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

SMALL = 8  # elements from which on an input lies in `device` memory

ATTRIBUTES = {
    "dispatch_quadgroups_per_threadgroup": "uint",
    "dispatch_simdgroups_per_threadgroup": "uint",
    "dispatch_threads_per_threadgroup": "uint3",
    "grid_origin": "uint3",
    "grid_size": "uint3",
    "quadgroup_index_in_threadgroup": "uint",
    "quadgroups_per_threadgroup": "uint",
    "simdgroup_index_in_threadgroup": "uint",
    "simdgroups_per_threadgroup": "uint",
    "thread_execution_width": "uint",
    "thread_index_in_quadgroup": "uint",
    "thread_index_in_simdgroup": "uint",
    "thread_index_in_threadgroup": "uint",
    "thread_position_in_grid": "uint3",
    "thread_position_in_threadgroup": "uint3",
    "threadgroup_position_in_grid": "uint3",
    "threadgroups_per_grid": "uint3",
    "threads_per_grid": "uint3",
    "threads_per_simdgroup": "uint",
    "threads_per_threadgroup": "uint3",
}

METAL_NAMES = {
    "float32": "float",
    "float16": "float16_t",
    "bfloat16": "bfloat16_t",
    "bool": "bool",
    "int8": "int8_t",
    "int16": "int16_t",
    "int32": "int32_t",
    "int64": "int64_t",
    "uint8": "uint8_t",
    "uint16": "uint16_t",
    "uint32": "uint32_t",
    "uint64": "uint64_t",
}

TemplateValue = str | bool | int  # a dtype by name, or a constant


@dataclass(frozen=True)
class Parameter:
    """One parameter of a kernel function. ``binding`` is pointer, reference or attribute; ``what`` the attribute's
    name; ``slot`` the buffer index."""

    binding: str
    slot: int = -1
    what: str = ""
    type: str = "uint"


@dataclass(frozen=True)
class Argument:
    """What the signature depends on in an input: its name, dtype and shape."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        size = 1
        for extent in self.shape:
            size *= extent
        return size


@dataclass(frozen=True)
class BufferUse:
    """What lies in a buffer slot: ``input``/``output`` data, or the ``shape``/``strides``/``ndim`` of an input."""

    role: str
    name: str


@dataclass(frozen=True)
class Signature:
    """A generated kernel function.

    ``text`` is everything before the body, ``call`` the expression that names the (instantiated) function.
    """

    function: str
    text: str
    call: str
    parameters: tuple[Parameter, ...]
    buffers: tuple[BufferUse, ...]


def template_text(value: TemplateValue) -> str:
    if isinstance(value, bool):
        return "1" if value else "0"
    return str(value) if isinstance(value, int) else METAL_NAMES[value]


def _template_line(template: Sequence[tuple[str, TemplateValue]]) -> str:
    kinds = {bool: "bool", int: "int", str: "typename"}
    return "template <" + ", ".join(f"{kinds[type(value)]} {name}" for name, value in template) + ">\n"


def _function_name(
    name: str, inputs: Sequence[Argument], output_dtypes: Sequence[str], template: Sequence[tuple[str, TemplateValue]]
) -> str:
    parts = [f"custom_kernel_{name}"]
    if template:
        parts.append("_" + "_".join(template_text(value) for _, value in template))
    for argument in inputs:
        mark = "s" if not argument.shape else "c" if argument.size < SMALL else ""
        parts.append(METAL_NAMES[argument.dtype] + mark)
    parts += [METAL_NAMES[dtype] for dtype in output_dtypes]
    return "_".join(parts)


def generate(
    name: str,
    source: str,
    inputs: Sequence[Argument],
    output_names: Sequence[str],
    output_dtypes: Sequence[str],
    template: Sequence[tuple[str, TemplateValue]] = (),
    atomic_outputs: bool = False,
) -> Signature:
    """The signature for these inputs and outputs, as MLX would write it."""
    lines: list[str] = []
    parameters: list[Parameter] = []
    buffers: list[BufferUse] = []

    def add(declaration: str, binding: str, role: str, of: str) -> None:
        slot = len(buffers)
        lines.append(f"  {declaration} [[buffer({slot})]]")
        parameters.append(Parameter(binding, slot))
        buffers.append(BufferUse(role, of))

    for argument in inputs:
        space = "constant" if argument.size < SMALL else "device"
        mark, binding = ("*", "pointer") if argument.shape else ("&", "reference")
        add(f"const {space} {METAL_NAMES[argument.dtype]}{mark} {argument.name}", binding, "input", argument.name)
        if not argument.shape:
            continue
        if f"{argument.name}_shape" in source:
            add(f"const constant int* {argument.name}_shape", "pointer", "shape", argument.name)
        if f"{argument.name}_strides" in source:
            add(f"const constant int64_t* {argument.name}_strides", "pointer", "strides", argument.name)
        if f"{argument.name}_ndim" in source:
            add(f"const constant int& {argument.name}_ndim", "reference", "ndim", argument.name)
    for output, dtype in zip(output_names, output_dtypes, strict=True):
        kind = METAL_NAMES[dtype]
        add(f"device {f'atomic<{kind}>' if atomic_outputs else kind}* {output}", "pointer", "output", output)
    for attribute, kind in ATTRIBUTES.items():
        if attribute in source:
            lines.append(f"  {kind} {attribute} [[{attribute}]]")
            parameters.append(Parameter("attribute", what=attribute, type=kind))

    function = _function_name(name, inputs, output_dtypes, template)
    head = _template_line(template) if template else ""
    arguments = f"<{', '.join(template_text(value) for _, value in template)}>" if template else ""
    text = f"{head}[[kernel]] void {function}(\n" + ",\n".join(lines) + ") {\n"
    return Signature(function, text, function + arguments, tuple(parameters), tuple(buffers))
