"""Runs libclang on a translated source and puts its complaints into the check's rules."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import as_file, files
from typing import Any

MISSING = "the strict check needs libclang: pip install libclang (only its word rules ran)"
_FLAGS = (
    *("-x", "c++", "-std=c++17", "-nostdinc", "-nostdinc++", "--target=x86_64-linux-gnu", "-fsyntax-only"),
    *("-ferror-limit=0", "-ftemplate-backtrace-limit=0", "-Wno-everything", "-Wdeprecated-declarations"),
    *("-Wdouble-promotion", "-Wimplicit-float-conversion", "-Wvla", "-fno-lax-vector-conversions"),
)
_BYTES = re.compile(r"'threadgroup_bytes<(\d+)\w*, (\d+), (\d+)>' is deprecated")
_SPACES = {1: "device", 2: "constant", 3: "threadgroup"}
_CONVERTS = r"(?:cannot initialize|assigning to|cannot convert|is not allowed|conversion)"
_ANY_SPACE = r"\b(?:device|constant|threadgroup)\b"

# Order matters: the first that fits names the rule.
_RULES: Sequence[tuple[str, str]] = (
    ("half-bfloat", r"'(?:\w+' \(aka ')?(?:_Float16|half)'.*'(?:\w+' \(aka ')?(?:__bf16|bfloat)'"),
    ("half-bfloat", r"'(?:\w+' \(aka ')?(?:__bf16|bfloat)'.*'(?:\w+' \(aka ')?(?:_Float16|half)'"),
    ("half-bfloat", r"half and bfloat do not mix"),
    ("address-space-cast", rf"reinterpret_cast from .*{_ANY_SPACE}"),
    ("const-write", r"read-only|const-qualified|drops 'const'|to a constant|casts away qualifiers|is const"),
    ("ambiguous-call", r"is ambiguous|deduced conflicting types|call to deleted function"),
    ("address-space", r"address space|incompatible operand types|distinct pointer types"),
    ("address-space", rf"{_CONVERTS}.*{_ANY_SPACE}.*[*&]"),
    ("address-space", rf"{_CONVERTS}.*[*&]'.*{_ANY_SPACE}"),
    ("vector-conversion", r"vector|between vector|ext_vector"),
    ("variable-length-array", r"variable.length array|variably modified"),
    ("no-matching-call", r"no matching|too (?:few|many) (?:template )?arguments|requires (?:at least )?\w+ argument"),
    ("undeclared", r"undeclared|unknown type name|no member named|no template named|no type named|expected a type"),
)


class LibclangMissingError(Exception):
    """libclang cannot be loaded; the message says how to install it."""


@dataclass(frozen=True)
class Complaint:
    """What clang said about a place: file as clang names it, line in that file, rule, message."""

    file: str
    line: int
    rule: str
    message: str


@dataclass(frozen=True)
class ThreadgroupVariable:
    """A variable in threadgroup memory: file as clang names it, line in the source, and its number in the file."""

    file: str
    line: int
    number: int


@dataclass(frozen=True)
class Parsed:
    """A parsed source: complaints, the bytes of each threadgroup variable, and the tree."""

    complaints: tuple[Complaint, ...]
    threadgroup_bytes: Mapping[ThreadgroupVariable, int]
    tree: Any


@lru_cache(maxsize=1)
def _library() -> tuple[Any, Any]:
    """clang's Python module and an index; raises LibclangMissingError."""
    try:
        from clang import cindex

        return cindex, cindex.Index.create()
    except Exception as error:
        raise LibclangMissingError(MISSING) from error


def available() -> bool:
    """Whether libclang can be loaded."""
    try:
        _library()
    except LibclangMissingError:
        return False
    return True


def parse(text: str, *, files_in_memory: Mapping[str, str] | None = None, include_dirs: Sequence[str] = ()) -> Parsed:
    """Parses translated ``text``; ``files_in_memory`` replace files of the same path on disk.

    Raises LibclangMissingError when there is no libclang.
    """
    _, index = _library()
    with as_file(files(__package__).joinpath("msl")) as declarations:
        flags = [*_FLAGS, f"-I{declarations}", *(f"-I{folder}" for folder in include_dirs)]
        unsaved = [("kernel.metal.cpp", text), *(files_in_memory or {}).items()]
        tree = index.parse("kernel.metal.cpp", args=flags, unsaved_files=unsaved)
        complaints: list[Complaint] = []
        sizes: dict[ThreadgroupVariable, int] = {}
        for diagnostic in tree.diagnostics:
            place = diagnostic.location
            file = place.file.name if place.file else ""
            size = _BYTES.search(diagnostic.spelling)
            if size:
                # Told once where the template is read and again where it is instantiated, if no size depends on it.
                sizes[ThreadgroupVariable(file, int(size.group(2)), int(size.group(3)))] = int(size.group(1))
            elif complaint := _complaint(diagnostic, *_outside(str(declarations), diagnostic)):
                complaints.append(complaint)
    return Parsed(tuple(complaints), sizes, tree)


def _outside(declarations: str, diagnostic: Any) -> tuple[str, int]:
    """Where a diagnostic belongs: an assertion in the declarations to the first line that led there."""
    places = [diagnostic.location, *(note.location for note in diagnostic.children)]
    named = [(place.file.name, place.line) for place in places if place.file]
    return next((place for place in named if not place[0].startswith(declarations)), named[0] if named else ("", 0))


def _complaint(diagnostic: Any, file: str, line: int) -> Complaint | None:
    said = plain(diagnostic.spelling)
    if diagnostic.severity < 3:
        rule = _warning_rule(diagnostic.option, diagnostic.spelling)
        return Complaint(file, line, rule, said) if rule else None
    if re.match(
        r"(static_cast|functional-style cast|C-style cast) from .*half.* to .*bfloat|.*bfloat.* to .*half", said
    ):
        return None
    notes = [plain(note.spelling) for note in diagnostic.children]
    if _copies_across_spaces(said, notes):
        return None
    rule = _error_rule(said, notes)
    candidate = next((n for n in notes if ("candidate" in n and "not viable" in n) or "ignored" in n), "")
    return Complaint(file, line, rule, f"{said} ({candidate})" if candidate else said)


def _warning_rule(option: str, said: str) -> str | None:
    """Which warnings are findings: those that stand for an error of Apple's compiler."""
    if option.startswith("-Wvla"):
        return "variable-length-array"
    if "to 'double'" in said or "to 'long double'" in said:
        return "double-arithmetic"
    if re.search(r"precision: .*__bf16.* to .*_Float16|precision: .*_Float16.* to .*__bf16", said):
        return "half-bfloat"
    narrowed = re.search(r"loses floating-point precision: '.*' to '(.*)'", said)
    if narrowed and "__bf16" in narrowed.group(1):
        return "bfloat-narrowing"
    return None


def _copies_across_spaces(said: str, notes: Sequence[str]) -> bool:
    """A struct copied from one address space to another: MSL does it, clang's implicit copies see one space only."""
    candidates = [note for note in notes if "candidate" in note]
    return (
        bool(re.search(r"no (?:matching constructor|viable overloaded '=')", said))
        and all("implicit" in note for note in candidates)
        and any("address space" in note for note in candidates)
    )


def _error_rule(said: str, notes: Sequence[str]) -> str:
    if re.search(r"no matching|no viable", said) and any(
        re.search(rf"address space|qualifier|(?:match|deduced type).*{_ANY_SPACE}", note) for note in notes
    ):
        return "address-space"
    if "no matching" in said and any("deduced conflicting types" in note for note in notes):
        return "ambiguous-call"
    return next((rule for rule, pattern in _RULES if re.search(pattern, said)), "type-error")


def plain(message: str) -> str:
    """A message of clang with MSL's words for types and address spaces."""
    for number, name in _SPACES.items():
        message = message.replace(f"__attribute__((address_space({number})))", name)
    message = message.replace("__bf16", "bfloat").replace("_Float16", "half")
    message = re.sub(r"'(\w+)' \(aka '\1'\)", r"'\1'", message)
    return message.replace("const constant", "constant").replace("constant const", "constant")


def is_declared(name: str) -> bool:
    """Whether an included file is one that the declarations stand in for (MLX's preamble, Metal's headers)."""
    return files(__package__).joinpath("msl", *name.split("/")).is_file()
