"""The C++ text of a kernel: its rewritten source with line numbers of its own, and the entry function that calls it."""

from __future__ import annotations

import re
from collections.abc import Sequence

from .build import ENTRY
from .errors import KernelError
from .rewrite import strip_comments, to_cpp
from .signature import Parameter

_FIXED = {
    "threads_per_simdgroup": "emu::LANES",
    "thread_execution_width": "emu::LANES",
    "grid_size": "a.threads_per_grid",
    "grid_origin": "emu::Uint3{0, 0, 0}",
}


def _argument(parameter: Parameter) -> str:
    if parameter.binding == "attribute":
        value = _FIXED.get(parameter.what, f"a.{parameter.what}")
        return f"emu::attribute<{parameter.type}>({value})"
    kind = "PointerArgument" if parameter.binding == "pointer" else "ReferenceArgument"
    return f"emu::{kind}{{buffers[{parameter.slot}]}}"


def entry_function(call: str, parameters: Sequence[Parameter]) -> str:
    """The one function of fixed name and type through which the runtime starts a thread of the kernel."""
    arguments = ", ".join(_argument(parameter) for parameter in parameters)
    return (
        f'\n#line 1 "entry"\nextern "C" __attribute__((visibility("default"))) void {ENTRY}'
        f"(void* const* buffers, const emu::Attributes& a) {{ {call}({arguments}); }}\n"
    )


def numbered(file: str, text: str) -> str:
    """The text as C++, its lines counted from 1 in ``file``."""
    return f'#line 1 "{file}"\n{to_cpp(text)}\n'


def _split(text: str) -> list[str]:
    """Splits at commas outside brackets."""
    parts, depth, start = [], 0, 0
    for i, character in enumerate(text):
        depth += character in "([<{"
        depth -= character in ")]>}"
        if character == "," and depth == 0:
            parts.append(text[start:i])
            start = i + 1
    return [*parts, text[start:]]


def parse_parameters(source: str, function: str) -> tuple[Parameter, ...]:
    """The parameters of a kernel function in Metal source, with MSL's rule for buffers that name no index.

    Raises KernelError (compile) if there is no such function.
    """
    text = strip_comments(source)
    found = re.search(rf"\b{re.escape(function)}\s*\(", text)
    if not found:
        raise KernelError("compile", f"no kernel function {function} in the source", kernel=function)
    depth, end = 1, found.end()
    while depth:
        depth += {"(": 1, ")": -1}.get(text[end], 0)
        end += 1
    parameters: list[Parameter] = []
    slot = 0
    for part in _split(text[found.end() : end - 1]):
        attribute = re.search(r"\[\[\s*(\w+)\s*\]\]", part)
        buffer = re.search(r"buffer\(\s*(\d+)\s*\)", part)
        declaration = part.split("[[")[0]
        if "*" in declaration or "&" in declaration:
            slot = int(buffer.group(1)) if buffer else slot
            parameters.append(Parameter("reference" if "&" in declaration else "pointer", slot))
            slot += 1
        elif attribute:
            parameters.append(Parameter("attribute", what=attribute.group(1), type=declaration.split()[0]))
        else:
            raise KernelError(
                "compile", f"parameter {part.strip()!r} has neither buffer nor attribute", kernel=function
            )
    return tuple(parameters)
