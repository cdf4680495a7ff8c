"""Mechanical changes that turn Metal source into C++: each keeps every line where it is.

What the headers in ``include/`` cannot do by themselves: `threadgroup` variables of a kernel body, literals without
suffix (float in MSL, double in C++), literals with MSL's own suffixes, swizzles, function constants, and member
specialisations.
"""

from __future__ import annotations

import re

_COMMENT_OR_STRING = re.compile(r"/\*.*?\*/|//[^\n]*|\"(?:[^\"\\\n]|\\.)*\"", re.S)
_DECLARATOR = r"\w+(?:\s*\[[^\]]*\])*"
_THREADGROUP_VARIABLE = re.compile(
    r"(?<![\w,(<*])(\s*)\bthreadgroup\s+((?:const\s+)?[\w:]+(?:\s*<[^;{}()]*?>)?)\s+"
    rf"((?:{_DECLARATOR}\s*,\s*)*{_DECLARATOR})\s*;"
)
_THREADGROUP_SLOT = re.compile(r"\[\[\s*threadgroup\s*\(\s*\d+\s*\)\s*\]\]")
_FLOAT_LITERAL = re.compile(r"(?<![\w.])((?:\d+\.\d*|\.\d+)(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+)(bf|[fFhH])?(?![\w.])")
_INT_HALF_LITERAL = re.compile(r"(?<![\w.])(\d+)(bf|h)(?!\w)")
_SWIZZLE = re.compile(r"\.\s*(?:([xyzw]{2,4})|([rgba]{3,4}))\b(?!\s*\()")
# Indented, so inside a class, where GCC before 14 has no specialisations: an overload without template serves as well.
_MEMBER_SPECIALISATION = re.compile(r"^([ \t]+)template[ \t]*<[ \t]*>(?![\s\\]*(?:struct|class)\b)", re.M)
_FUNCTION_CONSTANT = re.compile(r"\bconstant\s+(\w+)\s+(\w+)\s*\[\[\s*function_constant\(\s*(\d+)\s*\)\s*\]\]\s*;")


def strip_comments(source: str) -> str:
    """Comments become spaces; line breaks and strings stay."""

    def blank(match: re.Match[str]) -> str:
        text = match.group()
        return text if text.startswith('"') else re.sub(r"[^\n]", " ", text)

    return _COMMENT_OR_STRING.sub(blank, source)


def _threadgroup_variables(match: re.Match[str]) -> str:
    indent, element, declarators = match.groups()
    lines = []
    for declarator in re.split(r",(?![^\[]*\])", declarators):
        name, dimensions = re.fullmatch(r"(\w+)\s*(.*)", declarator.strip(), re.S).groups()  # type: ignore[union-attr]
        kind = f"{element} {dimensions}".strip()
        lines.append(f'auto& {name} = ::emu::threadgroup_variable<{kind}>(__COUNTER__, "{name}");')
    breaks = "\n" * (match.group().count("\n") - indent.count("\n") - "".join(lines).count("\n"))
    return indent + " ".join(lines) + breaks


def _float_literal(match: re.Match[str]) -> str:
    digits, suffix = match.group(1), (match.group(2) or "").lower()
    if suffix == "h":
        return f"half({digits}f)"
    return f"bfloat({digits}f)" if suffix == "bf" else f"{digits}f"


def _int_half_literal(match: re.Match[str]) -> str:
    return f"{'half' if match.group(2) == 'h' else 'bfloat'}({match.group(1)}.0f)"


def _swizzle(match: re.Match[str]) -> str:
    letters, names = (match.group(1), "xyzw") if match.group(1) else (match.group(2), "rgba")
    return f".template swizzle<{', '.join(str(names.index(letter)) for letter in letters)}>()"


def function_constants(source: str) -> dict[str, tuple[int, str]]:
    """Function constants declared in the source: name to (index, type)."""
    return {name: (int(index), kind) for kind, name, index in _FUNCTION_CONSTANT.findall(strip_comments(source))}


def to_cpp(source: str) -> str:
    """The source as C++ for the emulator's headers, line for line."""
    text = strip_comments(source)
    text = _THREADGROUP_SLOT.sub("", text)
    text = _FUNCTION_CONSTANT.sub(r"\1 \2;", text)  # a plain global, set by name before the launch
    text = _THREADGROUP_VARIABLE.sub(_threadgroup_variables, text)
    text = _MEMBER_SPECIALISATION.sub(r"\1", text)
    text = _FLOAT_LITERAL.sub(_float_literal, text)
    text = _INT_HALF_LITERAL.sub(_int_half_literal, text)
    return _SWIZZLE.sub(_swizzle, text)
