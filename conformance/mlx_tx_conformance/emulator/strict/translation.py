"""Rewrites MSL into what plain clang parses, line by line: no line is added or removed.

Four things are no C++ for clang: variables in threadgroup memory, constructors of vectors from components, function
constants without a value, and MSL's literals (unsuffixed ones are float, ``h`` is half, ``bf`` is bfloat).
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Sequence
from itertools import count

from .declarations import threadgroup_variables
from .structure import Structure
from .tokens import Token, blank_comments, matching, skip_angles

_VECTOR = re.compile(r"(?:float|half|bfloat|bool|char|uchar|short|ushort|int|uint|long|ulong)[234]")
_FLOAT = re.compile(r"((?:\d[\d']*\.[\d']*|\.\d[\d']*)(?:[eE][+-]?\d+)?|\d[\d']*[eE][+-]?\d+)[fF]?")
_NARROW = re.compile(r"((?:\d[\d']*\.?[\d']*|\.\d+)(?:[eE][+-]?\d+)?)(bf|h|H)")

Edit = tuple[int, int, str]


def translate(text: str, structure: Structure, tokens: Sequence[Token]) -> str:
    """``text`` for clang, with the declarations of ``msl/metal_declarations.h`` before it."""
    edits = [
        *_threadgroup_edits(structure),
        *_vector_edits(tokens),
        *_literal_edits(tokens),
        *_function_constant_edits(structure),
        *_threadgroup_slot_edits(tokens),
        *_array_parameter_edits(structure),
        *_instantiation_edits(tokens),
    ]
    parts, at = [], 0
    clean = blank_comments(text)
    for start, end, new in sorted(edits):
        if start < at:
            continue  # within a declaration that was rewritten whole
        parts += [clean[at:start], new]
        at = end
    return "".join([*parts, clean[at:]])


def _threadgroup_edits(structure: Structure) -> Iterator[Edit]:
    """Threadgroup variables become references, each followed by a mark that reports its bytes."""
    tokens = structure.tokens
    numbers = count()
    for variable in threadgroup_variables(tokens):
        first, last = tokens[variable.start], tokens[variable.end - 1]
        kind = f"threadgroup {variable.kind}"
        declared = []
        for name, size in zip(variable.names, variable.dimensions, strict=True):
            declared.append(f"{kind} (&{name}){size} = *({kind} (*){size})0;")
            if structure.scopes[variable.start] == "function":
                mark = f"::strict_check::threadgroup_bytes<sizeof({name}), {first.line}, {next(numbers)}>();"
                declared.append(mark)
        lines = "\n" * (last.line - first.line)
        yield first.start, last.end, f"{lines}{' '.join(declared)}"


def _vector_edits(tokens: Sequence[Token]) -> Iterator[Edit]:
    """``float4(a, b, c, d)`` becomes ``::strict_check::make_vector<float4>(a, b, c, d)``."""
    aliases = _vector_aliases(tokens)
    for i, token in enumerate(tokens):
        if token.directive in ("include", "pragma") or token.kind != "name":
            continue
        end = _vector_type_end(tokens, i, aliases)
        if end is None or end >= len(tokens) or tokens[end].text != "(":
            continue
        first = i - 2 if i >= 2 and tokens[i - 1].text == "::" else i
        before = tokens[first - 1] if first else None
        if before is not None and (before.text in (".", "->", "operator") or before.text in aliases):
            continue
        yield tokens[first].start, tokens[first].start, "::strict_check::make_vector<"
        yield tokens[end - 1].end, tokens[end - 1].end, ">"


def _vector_type_end(tokens: Sequence[Token], i: int, aliases: frozenset[str]) -> int | None:
    """The index after the vector type that begins at ``i``, or None."""
    if _VECTOR.fullmatch(tokens[i].text) or tokens[i].text in aliases:
        return i + 1
    if tokens[i].text == "vec" and i + 1 < len(tokens) and tokens[i + 1].text == "<":
        end = skip_angles(tokens, i + 1)
        return end if end > i + 1 else None
    return None


def _vector_aliases(tokens: Sequence[Token]) -> frozenset[str]:
    """Names given to vector types: ``using V = vec<T, 4>;`` and ``typedef vec<T, 4> V;``."""
    found = set()
    for i, token in enumerate(tokens):
        if token.text not in ("using", "typedef") or token.directive:
            continue
        at = i + 3 if token.text == "using" and i + 2 < len(tokens) and tokens[i + 2].text == "=" else i + 1
        while at < len(tokens) and tokens[at].text in ("typename", "metal", "::"):
            at += 1
        end = _vector_type_end(tokens, at, frozenset()) if at < len(tokens) else None
        if end is None or end >= len(tokens):
            continue
        if token.text == "using" and tokens[end].text == ";":
            found.add(tokens[i + 1].text)
        elif token.text == "typedef" and tokens[end].kind == "name":
            found.add(tokens[end].text)
    return frozenset(found)


def _literal_edits(tokens: Sequence[Token]) -> Iterator[Edit]:
    """Literals get their MSL type; float ones are moved by at most one bit, so that none fits a bfloat exactly.

    clang says nothing about a constant that converts without loss, but MSL refuses ``bfloat x = 0.5f`` too.
    """
    for token in tokens:
        if token.kind != "number" or token.directive in ("include", "pragma"):
            continue
        if plain := _FLOAT.fullmatch(token.text):
            yield token.start, token.end, _inexact(plain.group(1))
        elif narrow := _NARROW.fullmatch(token.text):
            kind = "bfloat" if narrow.group(2) == "bf" else "half"
            yield token.start, token.end, f"{kind}({_inexact(narrow.group(1))})"


def _inexact(digits: str) -> str:
    """The literal nearest to ``digits`` whose last float32 bit is set: no bfloat has that bit."""
    try:
        (bits,) = struct.unpack("<I", struct.pack("<f", float(digits.replace("'", ""))))
    except OverflowError:
        return "3.4028235e38f"
    return f"{struct.unpack('<f', struct.pack('<I', bits | 1))[0]:.9e}f"


def _threadgroup_slot_edits(tokens: Sequence[Token]) -> Iterator[Edit]:
    """``[[threadgroup(0)]]`` goes: the word means an address space to clang, in an attribute too."""
    for i in range(2, len(tokens)):
        if tokens[i].text == "threadgroup" and tokens[i - 1].text == tokens[i - 2].text == "[":
            close = matching(tokens, i - 2)
            yield tokens[i - 2].start, tokens[close].end, ""


def _instantiation_edits(tokens: Sequence[Token]) -> Iterator[Edit]:
    """Attributes of an explicit instantiation (``template [[host_name("f")]] [[kernel]] ...``) go."""
    for i, token in enumerate(tokens):
        at = i + 1
        while token.text == "template" and at < len(tokens) and tokens[at].text == "[":
            close = matching(tokens, at)
            yield tokens[at].start, tokens[close].end, ""
            at = close + 1


def _array_parameter_edits(structure: Structure) -> Iterator[Edit]:
    """``constant int shape[3]`` as a parameter is a pointer, which clang refuses to see through an address space."""
    for function in structure.functions:
        for parameter in function.parameters:
            bracket = next((i for i, t in enumerate(parameter) if t.text == "["), None)
            if not bracket or not {t.text for t in parameter} & {"device", "constant", "threadgroup"}:
                continue
            close = matching(parameter, bracket)
            if parameter[bracket + 1].text != "[" and parameter[bracket - 1].kind == "name":
                yield parameter[bracket - 1].start, parameter[bracket - 1].start, "*"
                yield parameter[bracket].start, parameter[close].end, ""


def _function_constant_edits(structure: Structure) -> Iterator[Edit]:
    """A function constant has no value until the pipeline is made: an extern declaration to clang."""
    start = 0
    for i, token in enumerate(structure.tokens):
        if structure.scopes[i] != "namespace":
            continue
        if token.text in (";", "{", "}"):
            statement = structure.tokens[start:i]
            if token.text == ";" and any(t.text == "function_constant" for t in statement):
                yield statement[0].start, statement[0].start, "extern "
            start = i + 1
