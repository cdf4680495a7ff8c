"""Where things stand in a source: functions, records, and the scope of every token."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from .tokens import CLOSERS, OPENERS, Token, matching, skip_angles, split_commas

ADDRESS_SPACES = frozenset({"device", "constant", "threadgroup", "thread"})
_RECORDS = frozenset({"struct", "class", "union", "enum"})
_AFTER_PARAMETERS = frozenset({"const", "noexcept", *ADDRESS_SPACES})


@dataclass(frozen=True)
class Function:
    """A function with a body: indices into the token list of its head and its body (braces excluded)."""

    name: str
    line: int
    head: tuple[Token, ...]
    parameters: tuple[tuple[Token, ...], ...]
    qualifiers: tuple[str, ...]
    body: tuple[int, int]
    record: str = ""

    @property
    def is_kernel(self) -> bool:
        """True for an entry point (``[[kernel]]`` or ``kernel``)."""
        return any(t.text == "kernel" for t in self.head)

    @property
    def is_static(self) -> bool:
        """True for a static member function, which has no ``this``."""
        return any(t.text == "static" for t in self.head)


@dataclass(frozen=True)
class Record:
    """A struct, class, union or enum: its head (``struct Name : Base``) and its body."""

    name: str
    line: int
    head: tuple[Token, ...]
    body: tuple[int, int]


@dataclass
class Structure:
    """The functions and records of a source, and the kind of scope each token stands in.

    ``scopes[i]`` is ``namespace``, ``record`` or ``function`` for token ``i`` of ``tokens`` (directives left out).
    """

    tokens: list[Token]
    functions: list[Function] = field(default_factory=list)
    records: list[Record] = field(default_factory=list)
    scopes: list[str] = field(default_factory=list)
    unbalanced: Token | None = None

    def function_at(self, index: int) -> Function | None:
        """The innermost function whose body holds token ``index``."""
        holding = [f for f in self.functions if f.body[0] <= index < f.body[1]]
        return max(holding, key=lambda f: f.body[0]) if holding else None


def analyse(tokens: Sequence[Token], body_of: str = "") -> Structure:
    """Reads the structure of ``tokens``; with ``body_of`` they are the body of a kernel of that name."""
    code = [t for t in tokens if not t.directive]
    found = Structure(code, unbalanced=_first_unbalanced(code))
    found.scopes = ["function" if body_of else "namespace"] * len(code)
    if found.unbalanced is not None:
        return found
    if body_of:
        kernel = Token("name", "kernel", 1, 0)
        found.functions.append(Function(body_of, 1, (kernel,), (), (), (0, len(code))))
    _scan(found, 0, len(code), "function" if body_of else "namespace", "")
    return found


def _scan(found: Structure, start: int, end: int, scope: str, record: str) -> None:
    """Walks one scope; ``start`` moves to the beginning of each statement."""
    tokens = found.tokens
    i = start
    while i < end:
        text = tokens[i].text
        found.scopes[i] = scope
        if text == ";" or (text == ":" and tokens[i - 1].text in ("public", "private", "protected")):
            start = i + 1
        elif text in ("(", "["):
            close = matching(tokens, i)
            found.scopes[i : close + 1] = [scope] * (close + 1 - i)
            i = close
        elif text == "{":
            close = matching(tokens, i)
            _open(found, start, i, close, scope, record)
            found.scopes[close] = scope
            i = close
            start = close + 1
        i += 1


def _open(found: Structure, start: int, brace: int, close: int, scope: str, record: str) -> None:
    """Decides what the brace at ``brace`` opens, from the statement head before it."""
    tokens = found.tokens
    head = tokens[start:brace]
    first = skip_template(head)
    inside = (brace + 1, close)
    opener = head[first].text if first < len(head) else ""
    if opener in _RECORDS:
        name = _record_name(head[first:])
        found.records.append(Record(name, tokens[brace].line, tuple(head), inside))
        _scan(found, *inside, "record", name)
    elif scope == "function" or is_initialiser(head) or not head:
        _scan(found, *inside, scope, record)
    elif opener in ("namespace", "extern"):
        _scan(found, *inside, "namespace", "")
    else:
        function = _function(head, inside, record)
        if function is None:
            _scan(found, *inside, scope, record)
        else:
            found.functions.append(function)
            _scan(found, *inside, "function", record)


def _function(head: Sequence[Token], body: tuple[int, int], record: str) -> Function | None:
    """The function that ``head`` declares, or None when it has no parameter list."""
    i, name = skip_template(head), ""
    while i < len(head):
        text = head[i].text
        if text == "operator":
            i += 1
            while i < len(head) and (head[i].text != "(" or head[i - 1].text == "operator"):
                i += 1
            return _with_parameters("operator", head, i, body, record)
        if text == "[":
            i = matching(head, i) + 1
        elif text == "<":
            i = max(skip_angles(head, i), i + 1)
        elif text == "(" and name in ("if", "for", "while", "switch"):
            return None
        elif text == "(" and name not in ("", "alignas", "decltype", "__attribute__"):
            close = matching(head, i)
            # NAME(...) in capitals with more of a head behind it is a macro.
            if not name.isupper() or close + 1 == len(head) or head[close + 1].text in _AFTER_PARAMETERS:
                return _with_parameters(name, head, i, body, record)
            i = close + 1
        elif text == "(":
            i = matching(head, i) + 1
        else:
            name = text if head[i].kind == "name" else ""
            i += 1
    return None


def _with_parameters(
    name: str, head: Sequence[Token], paren: int, body: tuple[int, int], record: str
) -> Function | None:
    if paren >= len(head):
        return None
    close = matching(head, paren)
    qualifiers = []
    for token in head[close + 1 :]:
        if token.text not in _AFTER_PARAMETERS:
            break
        qualifiers.append(token.text)
    parameters = tuple(tuple(p) for p in split_commas(head[paren + 1 : close]))
    return Function(name, head[max(paren - 1, 0)].line, tuple(head), parameters, tuple(qualifiers), body, record)


def skip_template(head: Sequence[Token]) -> int:
    i = 0
    while i + 1 < len(head) and head[i].text == "template" and head[i + 1].text == "<":
        i = max(skip_angles(head, i + 1), i + 2)
    return i


def is_initialiser(head: Sequence[Token]) -> bool:
    """Whether a brace after ``head`` begins a value: an ``=`` outside brackets that is no operator's name."""
    i = skip_template(head)
    while i < len(head):
        if head[i].text in OPENERS:
            i = matching(head, i)
        elif head[i].text == "<":
            i = max(skip_angles(head, i) - 1, i)
        elif head[i].text == "=" and head[i - 1].text != "operator":
            return True
        i += 1
    return False


def _record_name(head: Sequence[Token]) -> str:
    i = 1
    while i < len(head):
        if head[i].text == "alignas":
            i = matching(head, i + 1) + 1
        elif head[i].text == "[":
            i = matching(head, i) + 1
        elif head[i].kind == "name" and head[i].text not in ("class", "struct"):
            return head[i].text
        else:
            break
    return ""


def _first_unbalanced(tokens: Sequence[Token]) -> Token | None:
    stack: list[Token] = []
    for token in tokens:
        if token.text in OPENERS:
            stack.append(token)
        elif token.text in CLOSERS and (not stack or stack.pop().text != CLOSERS[token.text]):
            return token
    return stack[0] if stack else None
