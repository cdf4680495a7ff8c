"""Rules on words: what MSL leaves out of C++, seen without parsing."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType

from .findings import Finding
from .structure import Structure
from .tokens import Token, matching

_COMPUTE_IN_FLOAT = "compute in float and convert once with static_cast<T>(...)"

# word: (rule, what to write instead)
_WORDS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "double": ("double", _COMPUTE_IN_FLOAT),
        "new": ("heap", "declare a fixed-size array"),
        "delete": ("heap", "declare a fixed-size array"),
        "malloc": ("heap", "declare a fixed-size array"),
        "free": ("heap", "declare a fixed-size array"),
        "try": ("exceptions", "write an error code to an output"),
        "throw": ("exceptions", "write an error code to an output"),
        "catch": ("exceptions", "write an error code to an output"),
        "virtual": ("virtual", "pass the operation as a template parameter"),
        "override": ("virtual", "pass the operation as a template parameter"),
        "goto": ("goto", "use a loop or a flag"),
        "thread_local": ("thread-local", "a plain local variable is per thread"),
        "dynamic_cast": ("rtti", "dispatch on a template parameter"),
        "typeid": ("rtti", "use metal::is_same_v"),
        "std": ("std", "use metal::"),
        "asm": ("assembly", "use MSL's functions"),
        "__asm": ("assembly", "use MSL's functions"),
        "__asm__": ("assembly", "use MSL's functions"),
        "concept": ("cxx-feature", "use metal::enable_if_t"),
        "requires": ("cxx-feature", "use metal::enable_if_t"),
        "consteval": ("cxx-feature", "use constexpr"),
        "constinit": ("cxx-feature", "use constexpr"),
        "co_await": ("cxx-feature", "write a loop"),
        "co_yield": ("cxx-feature", "write a loop"),
        "co_return": ("cxx-feature", "write a loop"),
        "char8_t": ("cxx-feature", "use uint8_t"),
        "nullptr_t": ("cxx-feature", "use a flag"),
    }
)
_SYSTEM_HEADERS = re.compile(r"metal_\w+")
_MATRIX_NAMES = re.compile(r"simdgroup_(?:matrix|multiply\w*|load|store|float8x8)|make_filled_simdgroup_matrix")
_FLOAT_LITERAL = re.compile(r"(?:\d[\d']*\.[\d']*|\.\d[\d']*)(?:[eE][+-]?\d+)?[lL]?|\d[\d']*[eE][+-]?\d+[lL]?")

Report = Callable[..., Finding]


def words(tokens: Sequence[Token], report: Report) -> Iterator[Finding]:
    """Forbidden words, types, literals and small constructs, macros included."""
    for i, token in enumerate(tokens):
        before = tokens[i - 1].text if i else ""
        after = tokens[i + 1].text if i + 1 < len(tokens) else ""
        if token.directive in ("include", "pragma", "error", "warning"):
            continue
        if token.kind == "number":
            yield from _literal(token, before, after, report)
        elif token.text in _WORDS and before not in (".", "->"):
            rule, hint = _WORDS[token.text]
            if not (token.text == "std" and after != "::") and not (token.text == "delete" and before == "="):
                yield report(rule, token, f"`{token.text}`", hint)
        elif token.text == "long" and after in ("long", "double"):
            yield report("wide-type", token, f"`long {after}`", "long is 64 bits in MSL; float is the widest float")
        elif token.text == "auto" and _binds_names(tokens, i):
            yield report("structured-binding", token, "a structured binding", "name the parts one by one")
        elif token.text == "[" and _is_lambda(tokens, i):
            yield report("lambda", token, "a lambda", "write a function, or a macro where it must see locals")
        elif token.text == "..." and before == "(" and after != ")":
            yield report("cxx-feature", token, "a fold expression", "recurse over the template arguments or unroll")
        elif token.text == "noexcept" and after == "(":
            yield report("cxx-feature", token, "the noexcept operator", "leave it out")
        elif token.text == "." and before in ("{", ",") and _is_designator(tokens, i):
            yield report("cxx-feature", token, "a designated initialiser", "list the values in order")


def _literal(token: Token, before: str, after: str, report: Report) -> Iterator[Finding]:
    if _FLOAT_LITERAL.fullmatch(token.text):
        # `float x = 0.0;` converts before anything is computed, and MLX writes it so.
        if before == "=" and after in (";", ",") and token.text[-1] not in "lL":
            return
        yield report("unsuffixed-literal", token, f"`{token.text}` has no suffix", f"write {token.text.rstrip('lL')}f")
    elif re.search(r"[lL]{2}", token.text) and not token.text.lower().startswith("0x"):
        yield report("wide-type", token, f"`{token.text}` is a long long", "write L: long is 64 bits in MSL")


def _binds_names(tokens: Sequence[Token], i: int) -> bool:
    i += 1
    while i < len(tokens) and tokens[i].text in ("&", "&&"):
        i += 1
    return i < len(tokens) and tokens[i].text == "["


def _is_lambda(tokens: Sequence[Token], i: int) -> bool:
    """A ``[`` that neither indexes, nor declares an array, nor begins an attribute."""
    before = tokens[i - 1] if i else None
    if before is not None and (before.text in (")", "]", "[", "auto", "&", "&&", ">") or before.kind == "string"):
        return before.text in ("&", "&&") and tokens[i - 2].text != "auto"
    if before is not None and before.kind == "name" and before.text != "return":
        return False
    close = matching(tokens, i)
    after = tokens[close + 1].text if close + 1 < len(tokens) else ""
    return tokens[i + 1].text != "[" and after in ("(", "{", "<")


def _is_designator(tokens: Sequence[Token], i: int) -> bool:
    return i + 2 < len(tokens) and tokens[i + 1].kind == "name" and tokens[i + 2].text in ("=", "{")


def characters(text: str, clean: str, report: Report, *, comments_too: bool) -> Iterator[Finding]:
    """Characters outside ASCII; in comments as well when the text goes to Apple's compiler through MLX."""
    for number, line in enumerate((text if comments_too else clean).splitlines(), start=1):
        odd = sorted({c for c in line if ord(c) > 127})
        if odd:
            shown = ", ".join(f"U+{ord(c):04X}" for c in odd)
            yield report("non-ascii", number, f"{shown} outside ASCII", "write it in ASCII")


def includes(tokens: Sequence[Token], text: str, report: Report, *, run_time: bool) -> Iterator[Finding]:
    """Includes that do not exist when MLX compiles the kernel (``run_time``), and matrix headers left out."""
    lines = text.splitlines()
    named = set()
    for token in tokens:
        if token.directive != "include" or token.text != "include":
            continue
        target = re.search(r'include\s*([<"])([^">]*)[">]', lines[token.line - 1])
        if target is None:
            continue
        named.add(target.group(2))
        if run_time and (target.group(1) == '"' or not _SYSTEM_HEADERS.fullmatch(target.group(2))):
            yield report("include", token, f"includes {target.group(2)}", "paste what is needed into the header")
    if run_time and "metal_simdgroup_matrix" not in named:
        first = next((t for t in tokens if _MATRIX_NAMES.fullmatch(t.text)), None)
        if first is not None:
            hint = "put #include <metal_simdgroup> and #include <metal_simdgroup_matrix> in the kernel's header"
            yield report("missing-include", first, f"`{first.text}` without <metal_simdgroup_matrix>", hint)


def inheritance(structure: Structure, report: Report) -> Iterator[Finding]:
    """Derived classes. An empty struct over a constant (``struct is_x : bool_constant<...> {}``) is a trait."""
    for record in structure.records:
        texts = [t.text for t in record.head]
        if ":" in texts and "enum" not in texts:
            trait = record.body[0] == record.body[1] and any(
                t in ("bool_constant", "integral_constant", "true_type", "false_type") for t in texts
            )
            if not trait:
                yield report("inheritance", record.line, f"`{record.name}` is derived", "hold the other as a member")
