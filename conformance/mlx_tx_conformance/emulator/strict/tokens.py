"""A lexer for MSL that keeps lines and offsets: enough to lint and to rewrite a source without parsing it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

_SPLICE_OR_COMMENT = re.compile(r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|//[^\n]*|/\*.*?\*/', re.S)
_TOKEN = re.compile(
    r"""
    (?P<string>"(?:\\.|[^"\\\n])*")
  | (?P<char>'(?:\\.|[^'\\\n])*')
  | (?P<number>\.?\d(?:[eEpP][+-]|[\w.'])*)
  | (?P<name>[A-Za-z_]\w*)
  | (?P<punct>::|->|\+\+|--|&&|\|\||<=|>=|==|!=|<<|\+=|-=|\*=|/=|%=|&=|\|=|\^=|\.\.\.|[^\s\w])
    """,
    re.X,
)
OPENERS = {"(": ")", "[": "]", "{": "}"}
CLOSERS = {close: open_ for open_, close in OPENERS.items()}


@dataclass(frozen=True, slots=True)
class Token:
    """A word of the source: ``kind`` is name, number, string, char or punct.

    ``directive`` is the preprocessor directive the token stands in (``define``, ``include``, ...), or empty.
    """

    kind: str
    text: str
    line: int
    start: int
    directive: str = ""

    @property
    def end(self) -> int:
        """The offset just after the token."""
        return self.start + len(self.text)


def blank_comments(text: str) -> str:
    """The same text with every character of a comment but newlines made a space: offsets and lines stay."""

    def blank(match: re.Match[str]) -> str:
        found = match.group(0)
        return re.sub(r"[^\n]", " ", found) if found.startswith("/") else found

    return _SPLICE_OR_COMMENT.sub(blank, text)


def tokenize(text: str) -> list[Token]:
    """All tokens outside comments, in order."""
    clean = blank_comments(text)
    tokens = []
    line, at = 1, 0
    for start, end, directive in _spans(clean):
        for match in _TOKEN.finditer(clean, start, end):
            line += clean.count("\n", at, match.start())
            at = match.start()
            word = match.group(0)
            if word.strip("\\"):
                tokens.append(Token(str(match.lastgroup), word, line, match.start(), directive))
    return tokens


def _spans(clean: str) -> Iterator[tuple[int, int, str]]:
    """Cuts the text into stretches of code and single (possibly continued) preprocessor directives."""
    at = 0
    for match in re.finditer(r"^[ \t]*#[ \t]*(\w*)(?:\\\n|[^\n])*", clean, re.M):
        yield at, match.start(), ""
        yield match.start(), match.end(), match.group(1) or "null"
        at = match.end()
    yield at, len(clean), ""


def matching(tokens: Sequence[Token], index: int) -> int:
    """The index of the token that closes the bracket at ``index``; the last index when it is never closed."""
    depth = 0
    for i in range(index, len(tokens)):
        if tokens[i].text in OPENERS:
            depth += 1
        elif tokens[i].text in CLOSERS:
            depth -= 1
            if depth <= 0:
                return i
    return len(tokens) - 1


def skip_angles(tokens: Sequence[Token], index: int) -> int:
    """The index after the template argument list that opens at ``index``, or ``index`` when it is none.

    A comparison is told from a list by what it may hold: ``;``, ``{`` and ``}`` never stand in a list.
    """
    depth, i = 0, index
    while i < len(tokens):
        text = tokens[i].text
        if text in OPENERS:
            if text == "{":
                return index
            i = matching(tokens, i)
        elif text == "<":
            depth += 1
        elif text == ">":
            depth -= 1
            if depth == 0:
                return i + 1
        elif text in (";", "}", "&&", "||", ")"):
            return index
        i += 1
    return index


def split_commas(tokens: Sequence[Token]) -> list[list[Token]]:
    """The tokens cut at commas that stand in no bracket and no template argument list."""
    parts: list[list[Token]] = [[]]
    i = 0
    while i < len(tokens):
        text = tokens[i].text
        end = i + 1
        if text in OPENERS:
            end = matching(tokens, i) + 1
        elif text == "<":
            end = max(skip_angles(tokens, i), i + 1)
        if text == "," and end == i + 1:
            parts.append([])
        else:
            parts[-1].extend(tokens[i:end])
        i = end
    return parts if parts != [[]] else []
