"""Rules on what ``mx.fast.metal_kernel`` makes of a source: it finds names by substring, comments included."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from ..signature import ATTRIBUTES, METAL_NAMES
from .findings import Finding
from .kernel import SHAPE_SUFFIXES, Instance, KernelInput, KernelOutput, KernelSource, Variant, signature
from .names import load_names
from .tokens import Token

Report = Callable[..., Finding]
MAX_SLOTS = 31
MAX_THREADS = 1024
SAFE_THREADS = 256
_RESERVED = frozenset(
    {
        *("kernel", "buffer", "sampler", "access", "texture", "vertex", "fragment", "metal", "array", "tensor", "vec"),
        *("device", "constant", "threadgroup", "thread", "template", "typename", "int", "float", "half", "bfloat"),
        *("bool", "short", "long", "char", "uint", "ushort", "ulong", "uchar"),
    }
)


def signature_rules(kernel: KernelSource, tokens: list[Token], report: Report) -> Iterator[Finding]:
    """All rules on the kernel's description; ``tokens`` are those of its source."""
    words = {t.text for t in tokens if t.kind == "name"}
    yield from _names(kernel, report)
    yield from _attributes(kernel, words, report)
    yield from _shapes(kernel, words, report)
    yield from _instances(kernel, report)


def _arguments(kernel: KernelSource) -> tuple[KernelInput | KernelOutput, ...]:
    return (*kernel.inputs, *kernel.outputs)


def _names(kernel: KernelSource, report: Report) -> Iterator[Finding]:
    if not re.fullmatch(r"\w+", kernel.name):
        yield report("kernel-name", 0, f"kernel name {kernel.name!r} is no identifier", "letters, digits, underscores")
    seen: set[str] = set()
    for item in _arguments(kernel):
        if not re.fullmatch(r"[A-Za-z_]\w*", item.name):
            yield report("kernel-name", 0, f"argument name {item.name!r} is no identifier")
        if item.name in seen:
            yield report("kernel-name", 0, f"argument name `{item.name}` is used twice")
        if item.name in _RESERVED or item.name in load_names().preamble or item.name in ATTRIBUTES:
            yield report("name-clash", 0, f"argument `{item.name}` is a word of MSL or MLX", "rename it")
        seen.add(item.name)


def _attributes(kernel: KernelSource, words: set[str], report: Report) -> Iterator[Finding]:
    found = [name for name in ATTRIBUTES if name in kernel.source]
    if not any(name in words for name in found):
        hint = "use one, thread_position_in_grid for example"
        yield report("no-attribute", 0, "the source uses no kernel attribute", hint)
    for name in found:
        if name not in words:
            line = _line_of(kernel.source, name)
            hint = "MLX looks for attribute names in the text of the source; reword"
            yield report("accidental-attribute", line, f"`{name}` is only part of a comment or another name", hint)
    for name in sorted(words & set(ATTRIBUTES) - load_names().used):
        yield report("name-never", _line_of(kernel.source, name), f"no kernel MLX ships uses `{name}`")


def _shapes(kernel: KernelSource, words: set[str], report: Report) -> Iterator[Finding]:
    for item in kernel.inputs:
        for suffix in SHAPE_SUFFIXES:
            name = item.name + suffix
            if name not in kernel.source:
                continue
            line = _line_of(kernel.source, name)
            if item.ndim == 0 and name in words:
                yield report("undeclared", line, f"`{name}` does not exist: `{item.name}` is a scalar")
            elif item.ndim and name not in words:
                message = f"`{name}` is only part of a comment or another name, and takes a buffer slot"
                yield report("accidental-shape", line, message, f"rename `{item.name}`, or reword")


def _instances(kernel: KernelSource, report: Report) -> Iterator[Finding]:
    for instance in kernel.instances:
        for name, value in instance.template.items():
            problem = _template_problem(value)
            if problem:
                message = f"template argument {name}={value!r} {problem}"
                yield report("template-value", 0, message, "pass it in a buffer", instance=instance.label)
        for item in _arguments(kernel):
            dtype = instance.template.get(item.dtype, item.dtype)
            if dtype not in METAL_NAMES:
                message = f"`{item.name}` has dtype {dtype!r}, which MSL has not"
                yield report("template-value", 0, message, instance=instance.label)
        slots = _slots(kernel, instance)
        if slots > MAX_SLOTS:
            yield report("buffer-slots", 0, f"{slots} buffer slots; Metal has {MAX_SLOTS}", "pack scalars in one array")
        yield from _threads(instance.threadgroup, instance.label, report)


def _slots(kernel: KernelSource, instance: Instance) -> int:
    """Buffer slots taken; 0 when the dtypes are unknown, which is a finding of its own."""
    try:
        return len(signature(kernel, instance, Variant({i.name: i.spaces[0] for i in kernel.inputs})).buffers)
    except (KeyError, ValueError):
        return 0


def _template_problem(value: object) -> str:
    if isinstance(value, bool):
        return ""
    if isinstance(value, int):
        return "is negative, and its minus sign would stand in the kernel's name" if value < 0 else ""
    if not isinstance(value, str):
        return "is no dtype, bool or int"
    return "" if value in METAL_NAMES else "names no dtype that MSL has"


def _threads(threadgroup: tuple[int, int, int] | None, label: str, report: Report) -> Iterator[Finding]:
    if threadgroup is None:
        return
    threads = threadgroup[0] * threadgroup[1] * threadgroup[2]
    if threads > MAX_THREADS:
        yield report("threadgroup-size", 0, f"{threads} threads a threadgroup; at most {MAX_THREADS}", instance=label)
    elif threads > SAFE_THREADS:
        message = f"{threads} threads a threadgroup: register use may lower a device's cap below that"
        hint = f"at most {SAFE_THREADS} threads fit whatever the kernel's registers"
        yield report("threadgroup-size", 0, message, hint, severity="warning", instance=label)


def _line_of(source: str, name: str) -> int:
    return source.count("\n", 0, source.index(name)) + 1
