"""Rules that need clang's tree: pointers without an address space, and casts that change it."""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .structure import ADDRESS_SPACES
from .tokens import Token, matching, skip_angles, tokenize

_SPACES = {0: "thread", 1: "device", 2: "constant", 3: "threadgroup"}
_QUALIFIERS = ADDRESS_SPACES | {"const", "volatile"}
_HINT = "name the address space: device, constant, threadgroup or thread"


@dataclass(frozen=True)
class Place:
    """A finding in clang's terms: file, line, rule, message, hint."""

    file: str
    line: int
    rule: str
    message: str
    hint: str


@dataclass(frozen=True)
class _Text:
    tokens: Sequence[Token]
    starts: Sequence[int]

    def between(self, start: int, end: int) -> Sequence[Token]:
        """The tokens of an extent, and the qualifiers before it: `thread` is nothing to clang, so none of it."""
        first = bisect.bisect_left(self.starts, start)
        while first and self.tokens[first - 1].text in _QUALIFIERS:
            first -= 1
        return self.tokens[first : bisect.bisect_left(self.starts, end)]


def check_pointers(tree: Any, texts: Mapping[str, str]) -> Iterator[Place]:
    """Walks the parts of the tree that come from ``texts`` (translated source by file name)."""
    read = {}
    for name, text in texts.items():
        tokens = tokenize(text)
        read[name] = _Text(tokens, [t.start for t in tokens])
    for top in tree.cursor.get_children():
        file = top.location.file
        if file is not None and file.name in read:
            yield from _walk(top, file.name, read[file.name])


def _walk(cursor: Any, file: str, text: _Text) -> Iterator[Place]:
    kind = cursor.kind.name
    if kind in ("VAR_DECL", "PARM_DECL", "FIELD_DECL"):
        yield from _declaration(cursor, file, text)
    elif kind in ("CSTYLE_CAST_EXPR", "CXX_REINTERPRET_CAST_EXPR", "CXX_STATIC_CAST_EXPR"):
        yield from _cast(cursor, file, text)
    for child in cursor.get_children():
        yield from _walk(child, file, text)


def _pointee(written: Any) -> Any | None:
    if written.kind.name in ("POINTER", "LVALUEREFERENCE", "RVALUEREFERENCE"):
        return written.get_pointee()
    return None


def _declaration(cursor: Any, file: str, text: _Text) -> Iterator[Place]:
    pointee = _pointee(cursor.type)
    if pointee is None or pointee.kind.name in ("FUNCTIONPROTO", "FUNCTIONNOPROTO"):
        return
    words = [t.text for t in text.between(cursor.extent.start.offset, cursor.extent.end.offset)]
    if "=" in words:
        words = words[: words.index("=")]
    if not words or not {"*", "&", "&&"} & set(words):
        return
    if not ADDRESS_SPACES & set(words):
        message = f"`{cursor.spelling or 'parameter'}` is a pointer or reference without an address space"
        yield Place(file, cursor.location.line, "unqualified-pointer", message, _HINT)


def _cast(cursor: Any, file: str, text: _Text) -> Iterator[Place]:
    target = _pointee(cursor.type)
    words = text.between(cursor.extent.start.offset, cursor.extent.end.offset)
    written = _written_type(words)
    if {"*", "&"} & {t.text for t in written} and not ADDRESS_SPACES & {t.text for t in written}:
        message = "a cast to a pointer or reference without an address space"
        yield Place(file, cursor.location.line, "unqualified-pointer", message, _HINT)
        return
    children = list(cursor.get_children())
    source = _pointee(_undecayed(children[-1])) if children else None
    if target is None or source is None:
        return
    spaces = (source.get_canonical().get_address_space(), target.get_canonical().get_address_space())
    if spaces[0] != spaces[1]:
        message = f"a cast from {_SPACES.get(spaces[0], '?')} to {_SPACES.get(spaces[1], '?')} memory"
        yield Place(file, cursor.location.line, "address-space-cast", message, "a pointer keeps its address space")


def _undecayed(expression: Any) -> Any:
    """The type of the expression under implicit conversions, which clang shows as unexposed nodes."""
    return expression.type.get_canonical()


def _written_type(words: Sequence[Token]) -> Sequence[Token]:
    """The type as the cast spells it."""
    if not words:
        return ()
    if words[0].text == "(":
        return words[1 : matching(words, 0)]
    if len(words) > 1 and words[1].text == "<":
        return words[2 : skip_angles(words, 1) - 1]
    return ()
