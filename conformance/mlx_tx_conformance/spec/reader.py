"""A guarded YAML reader: plain values, the line of every node, and a precise complaint for everything else.

Of YAML it takes mappings with names as keys, lists and scalars. Anchors, aliases, tags and several documents in one
file are refused, as are files that are large, deep, binary or reached through a link. Scalars follow YAML 1.2, not
PyYAML's 1.1: ``1e-5`` is a number; ``no``, ``off``, ``12:30`` and ``2001-01-01`` are strings; ``010`` is ten.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import yaml

from .errors import Finding, SpecError

MAX_BYTES = 1 << 20
MAX_DEPTH = 32
MAX_NODES = 100_000
_LONGEST_NUMBER = 40

Place = tuple[str | int, ...]

# libyaml where PyYAML was built with it; the pure Python parser gives the same events.
_Parser: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

_WORDS: Mapping[str, Any] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys((".inf", "+.inf", ".Inf", ".INF"), float("inf")),
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), float("-inf")),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), float("nan")),
}
_INTEGER = re.compile(r"[-+]?[0-9]+|0x[0-9a-fA-F]+|0o[0-7]+", re.ASCII)
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", re.ASCII)
# Everything but what YAML allows in a stream.
_UNPRINTABLE = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclass(frozen=True)
class Document:
    """What a file says: plain dicts, lists and scalars in ``value``, and the line of every node by its place."""

    file: str
    value: Any
    lines: Mapping[Place, int]

    def line(self, *place: str | int) -> int:
        """The line of the node at a place, or of the nearest node above it."""
        for length in range(len(place), -1, -1):
            if place[:length] in self.lines:
                return self.lines[place[:length]]
        return 1

    def finding(self, message: str, *place: str | int, rule: str = "form") -> Finding:
        """A finding at a place of this document."""
        return Finding(self.file, self.line(*place), message, rule)


def read(path: Path, name: str) -> Document:
    """Read a YAML file; ``name`` is what messages call it. Raises :class:`SpecError` with file and line."""
    return parse(read_text(path, name), name)


def read_text(path: Path, name: str) -> str:
    """The text of a regular UTF-8 file of at most :data:`MAX_BYTES`, not reached through a link."""

    def refuse(message: str, line: int = 1) -> NoReturn:
        raise SpecError(Finding(name, line, message, "file"))

    try:
        state = path.lstat()
        if stat.S_ISLNK(state.st_mode):
            refuse("is a symbolic link; the spec takes plain files only")
        if not stat.S_ISREG(state.st_mode):
            refuse("is no plain file")
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
        with os.fdopen(descriptor, "rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        refuse(f"cannot be read: {error.strerror or error}")
    if len(data) > MAX_BYTES:
        refuse(f"is larger than {MAX_BYTES:,} bytes ({max(state.st_size, len(data)):,})")
    if b"\0" in data:
        refuse("holds a zero byte: a binary file, or text that is not UTF-8", 1 + data[: data.index(0)].count(b"\n"))
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = 1 + data[: error.start].count(b"\n")
        refuse(f"is not UTF-8: byte 0x{data[error.start]:02x} at offset {error.start}", line)
    return text


def parse(text: str, name: str) -> Document:
    """Parse YAML text. Raises :class:`SpecError` with the line of what is refused."""
    bad = _UNPRINTABLE.search(text)
    if bad:
        line = 1 + text.count("\n", 0, bad.start())
        raise SpecError(Finding(name, line, f"holds the control character U+{ord(bad[0]):04X}", "file"))
    try:
        return _Builder(text, name).document()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else 1
        problem = " ".join(part for part in (error.context, error.problem) if part)
        raise SpecError(Finding(name, line, f"not valid YAML: {problem}", "yaml")) from None
    except yaml.YAMLError as error:
        raise SpecError(Finding(name, 1, f"not valid YAML: {str(error).splitlines()[0]}", "yaml")) from None


def scalar(text: str) -> Any:
    """The value of a plain (unquoted) scalar. Raises ValueError for a number that no float64 holds."""
    if text in _WORDS:
        return _WORDS[text]
    if text[0] not in "0123456789+-.":
        return text
    if _INTEGER.fullmatch(text) or _FLOAT.fullmatch(text):
        if len(text) > _LONGEST_NUMBER:
            raise ValueError(f"a number of {len(text)} characters is too long")
        if _INTEGER.fullmatch(text):
            base = 16 if text.startswith("0x") else 8 if text.startswith("0o") else 10
            return int(text, base)
        value = float(text)
        if value in (float("inf"), float("-inf")):
            raise ValueError(f"{text} is too large for a number")
        return value
    return text


class _Builder:
    """Events to values, counting nodes and depth as they come, so that nothing large is ever built."""

    def __init__(self, text: str, name: str) -> None:
        self.events = _Parser(text)
        self.name = name
        self.nodes = 0
        self.lines: dict[Place, int] = {}

    def document(self) -> Document:
        self.take()  # the start of the stream
        if self.events.check_event(yaml.StreamEndEvent):
            self.refuse("is empty", 1)
        self.take()  # the start of the document
        value = self.node((), self.take())
        self.take()  # the end of the document
        if not self.events.check_event(yaml.StreamEndEvent):
            self.refuse("holds a second document; one file is one clause", self.take().start_mark.line + 1)
        return Document(self.name, value, self.lines)

    def take(self) -> Any:
        return self.events.get_event()

    def refuse(self, message: str, line: int) -> NoReturn:
        raise SpecError(Finding(self.name, line, message, "yaml"))

    def node(self, place: Place, event: Any) -> Any:
        line = event.start_mark.line + 1
        self.nodes += 1
        if self.nodes > MAX_NODES:
            self.refuse(f"holds more than {MAX_NODES:,} values", line)
        if isinstance(event, yaml.AliasEvent):
            self.refuse(f"aliases are not allowed (*{event.anchor}); write the value out", line)
        if event.anchor is not None:
            self.refuse(f"anchors are not allowed (&{event.anchor})", line)
        if event.tag is not None:
            self.refuse(f"tags are not allowed ({event.tag})", line)
        if len(place) > MAX_DEPTH:
            self.refuse(f"nested deeper than {MAX_DEPTH} levels", line)
        self.lines[place] = line
        if isinstance(event, yaml.ScalarEvent):
            return self.scalar(event, line)
        if isinstance(event, yaml.SequenceStartEvent):
            return self.sequence(place)
        return self.mapping(place)

    def scalar(self, event: Any, line: int) -> Any:
        if event.style:  # quoted, or a block
            if _UNPRINTABLE.search(event.value):  # by an escape such as "\\0"
                self.refuse("a quoted text holds a control character", line)
            return event.value
        try:
            return scalar(event.value)
        except ValueError as error:
            self.refuse(str(error), line)

    def sequence(self, place: Place) -> list[Any]:
        values: list[Any] = []
        while not isinstance(event := self.take(), yaml.SequenceEndEvent):
            values.append(self.node((*place, len(values)), event))
        return values

    def mapping(self, place: Place) -> dict[str, Any]:
        values: dict[str, Any] = {}
        while not isinstance(event := self.take(), yaml.MappingEndEvent):
            line = event.start_mark.line + 1
            if not isinstance(event, yaml.ScalarEvent):
                self.refuse("a key must be a name", line)
            if event.anchor is not None or event.tag is not None:
                self.refuse("anchors and tags are not allowed", line)
            key = self.scalar(event, line)
            if not isinstance(key, str) or not key:
                self.refuse(f"a key must be a name; got {event.value or 'nothing'}", line)
            if key in values:
                self.refuse(f"{key!r} is given twice (first on line {self.lines[(*place, key)]})", line)
            values[key] = None
            child = self.take()
            values[key] = self.node((*place, key), child)
            self.lines[(*place, key)] = line  # where the key stands, also when its value begins further down
        return values
