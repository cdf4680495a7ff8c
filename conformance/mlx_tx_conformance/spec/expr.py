"""The expression language of the spec: small, whitelisted, parsed by hand and never given to ``eval``.

``"j <= i + T_kv - T_q"`` is arithmetic (``+ - * / // % **``), comparisons (chained as in Python), ``and``, ``or``,
``not``, and calls of ``abs min max ceil floor log2 sqrt``, over names from an environment and the constants ``true``,
``false``, ``inf`` and ``nan``. Names may stand for numbers or for NumPy arrays: then everything, ``and``, ``or`` and
``not`` included, is element-wise with broadcasting. Results are those of Python's own arithmetic, with three
differences: logic gives booleans; integers stay within 2^53 and the length and depth of an expression are bounded, so
that no expression can run away; and what has no finite answer (x / 0, 2.0 ** 9999, inf - inf) is an error.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

from .arithmetic import FUNCTIONS, OPERATORS, OperationError, as_operand, both, either, negate, truth, truth_not
from .errors import suggestion

MAX_LENGTH = 1_000
MAX_DEPTH = 24
CONSTANTS: Mapping[str, Any] = {"true": True, "false": False, "inf": float("inf"), "nan": float("nan")}

Environment = Mapping[str, Any]
_Run = Callable[[Environment], Any]


class ExpressionError(ValueError):
    """An expression that cannot be read or evaluated; ``column`` counts from 1 within the expression."""

    def __init__(self, text: str, column: int, problem: str) -> None:
        self.text, self.column, self.problem = text, column, problem
        shown = text if len(text) <= 80 else text[:77] + "..."
        super().__init__(f"in the expression {shown!r}, column {column}: {problem}")

    def __reduce__(self) -> tuple[type[ExpressionError], tuple[str, int, str]]:
        return type(self), (self.text, self.column, self.problem)


@dataclass(frozen=True)
class Expression:
    """A parsed expression. ``names`` are the names it uses, with the column of their first use."""

    text: str
    names: Mapping[str, int]
    run: _Run

    def __call__(self, environment: Environment) -> Any:
        for name, column in self.names.items():
            if name not in environment:
                raise ExpressionError(self.text, column, f"unknown name {name!r}{_nearest(name, environment)}")
        return self.run(environment)


def evaluate(text: str, environment: Environment) -> Any:
    """The value of an expression: a Python number or boolean, or an array where a name stands for an array."""
    return parse(text)(environment)


@lru_cache(maxsize=8192)
def parse(text: str) -> Expression:
    """Read an expression. Raises :class:`ExpressionError` with the column and what was expected."""
    if len(text) > MAX_LENGTH:
        raise ExpressionError(text, MAX_LENGTH, f"longer than {MAX_LENGTH} characters")
    return _Parser(text).read()


def _nearest(name: str, environment: Environment) -> str:
    if name.lower() in ("none", "null"):
        return "; write null (without quotes) for an option that is not given"
    return suggestion(name, [*environment, *CONSTANTS, *FUNCTIONS])


class _Token(NamedTuple):
    kind: str  # "number", "name", "operator" or "end"
    text: str
    column: int


_TOKEN = re.compile(
    r"\s*(?:(?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)|(?P<name>[A-Za-z_]\w*)"
    r"|(?P<operator>\*\*|//|<=|>=|==|!=|[-+*/%()<>,]))",
    re.ASCII,
)
_MEANT = {"&": "and", "|": "or", "!": "not", "=": "==", "^": "**"}
_LEVELS: tuple[tuple[str, ...], ...] = (("+", "-"), ("*", "/", "//", "%"))
_COMPARISONS = ("<", "<=", ">", ">=", "==", "!=")
_WORDS = ("and", "or", "not")


def _tokens(text: str) -> list[_Token]:
    tokens, position = [], 0
    end = len(text.rstrip())
    while position < end:
        match = _TOKEN.match(text, position)
        if match is None:
            column = position + len(text[position:]) - len(text[position:].lstrip()) + 1
            found = text[column - 1]
            hint = f"; write {_MEANT[found]!r}" if found in _MEANT else ""
            raise ExpressionError(text, column, f"unexpected {found!r}{hint}")
        kind = str(match.lastgroup)
        if kind == "number" and text[match.end() : match.end() + 1].isidentifier():
            raise ExpressionError(text, match.end() + 1, f"unexpected {text[match.end()]!r} after a number")
        tokens.append(_Token(kind, match.group(kind), match.start(kind) + 1))
        position = match.end()
    return [*tokens, _Token("end", "", end + 1)]


class _Parser:
    """Recursive descent, one method for each level of binding; each gives a function of the environment."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = _tokens(text)
        self.position = 0
        self.depth = 0
        self.names: dict[str, int] = {}

    def read(self) -> Expression:
        if self.next.kind == "end":
            raise ExpressionError(self.text, 1, "empty")
        run = self.disjunction()
        if self.next.kind != "end":
            raise self.unexpected("an operator or the end")
        return Expression(self.text, self.names, run)

    @property
    def next(self) -> _Token:
        return self.tokens[self.position]

    def take(self, *texts: str) -> _Token | None:
        token = self.next
        if token.kind in ("operator", "name") and token.text in texts:
            self.position += 1
            return token
        return None

    def unexpected(self, wanted: str) -> ExpressionError:
        found = "the end" if self.next.kind == "end" else repr(self.next.text)
        return ExpressionError(self.text, self.next.column, f"{wanted} expected; found {found}")

    def disjunction(self) -> _Run:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise ExpressionError(self.text, self.next.column, f"nested deeper than {MAX_DEPTH}")
        first, rest = self.conjunction(), []
        while token := self.take("or"):
            rest.append((token, self.conjunction()))
        self.depth -= 1
        return _logic(self.text, first, rest, True) if rest else first

    def conjunction(self) -> _Run:
        first, rest = self.negation(), []
        while token := self.take("and"):
            rest.append((token, self.negation()))
        return _logic(self.text, first, rest, False) if rest else first

    def negation(self) -> _Run:
        denials = 0
        while self.take("not"):
            denials += 1
        run = self.comparison()
        if not denials:
            return run
        return (lambda names: truth_not(run(names))) if denials % 2 else (lambda names: truth(run(names)))

    def comparison(self) -> _Run:
        first = self.sum()
        rest: list[tuple[_Token, _Run]] = []
        while token := self.take(*_COMPARISONS):
            rest.append((token, self.sum()))
        return _chain(self.text, first, rest) if rest else first

    def sum(self, level: int = 0) -> _Run:
        if level == len(_LEVELS):
            return self.sign()
        first = self.sum(level + 1)
        rest: list[tuple[_Token, _Run]] = []
        while token := self.take(*_LEVELS[level]):
            rest.append((token, self.sum(level + 1)))
        return _fold(self.text, first, rest) if rest else first

    def sign(self) -> _Run:
        signs = 0
        while token := self.take("-", "+"):
            signs += token.text == "-"
        run = self.power()
        return (lambda names: negate(run(names))) if signs % 2 else run

    def power(self) -> _Run:
        base = self.atom()
        token = self.take("**")
        if token is None:
            return base
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise ExpressionError(self.text, token.column, f"nested deeper than {MAX_DEPTH}")
        exponent = self.sign()  # binds to the right, and takes a sign: 2 ** -1
        self.depth -= 1
        return _fold(self.text, base, [(token, exponent)])

    def atom(self) -> _Run:
        token = self.next
        if self.take("("):
            run = self.disjunction()
            if not self.take(")"):
                raise self.unexpected("')'")
            return run
        if token.kind == "number":
            self.position += 1
            return self.number(token)
        if token.kind == "name" and token.text not in _WORDS:
            self.position += 1
            return self.call(token) if self.take("(") else self.name(token)
        raise self.unexpected("a number, a name or '('")

    def number(self, token: _Token) -> _Run:
        value: Any = int(token.text) if token.text.isdigit() else float(token.text)
        try:
            value = as_operand(value)
        except OperationError as fault:
            raise ExpressionError(self.text, token.column, str(fault)) from None
        if value == float("inf"):
            raise ExpressionError(self.text, token.column, "too large for a number")
        return lambda _: value

    def name(self, token: _Token) -> _Run:
        name = token.text
        if name in CONSTANTS:
            constant = CONSTANTS[name]
            return lambda _: constant
        self.names.setdefault(name, token.column)
        text, column = self.text, token.column

        def run(names: Environment) -> Any:
            try:
                return as_operand(names[name])
            except OperationError as fault:
                raise ExpressionError(text, column, f"{name}: {fault}") from None

        return run

    def call(self, token: _Token) -> _Run:
        known = FUNCTIONS.get(token.text)
        if known is None:
            raise ExpressionError(
                self.text, token.column, f"no function {token.text!r}{suggestion(token.text, FUNCTIONS)}"
            )
        arguments = [self.disjunction()]
        while self.take(","):
            arguments.append(self.disjunction())
        if not self.take(")"):
            raise self.unexpected("',' or ')'")
        function, least, most = known
        if not least <= len(arguments) <= most:
            wanted = f"{least} argument{'s' * (least > 1)}" if least == most else f"{least} to {most} arguments"
            raise ExpressionError(self.text, token.column, f"{token.text} takes {wanted}; got {len(arguments)}")
        text = self.text

        def run(names: Environment) -> Any:
            values = [argument(names) for argument in arguments]
            try:
                return function(*values)
            except OperationError as fault:
                raise ExpressionError(text, token.column, f"{token.text}: {fault}") from None

        return run


def _fold(text: str, first: _Run, rest: list[tuple[_Token, _Run]]) -> _Run:
    """``a - b + c``, from the left. A loop, so that a long sum is no deep nest of calls."""

    def run(names: Environment) -> Any:
        value = first(names)
        for token, term in rest:
            other = term(names)
            try:
                value = OPERATORS[token.text](value, other)
            except OperationError as fault:
                raise ExpressionError(text, token.column, f"{token.text}: {fault}") from None
        return value

    return run


def _logic(text: str, first: _Run, rest: list[tuple[_Token, _Run]], settles: bool) -> _Run:
    """``or`` (settled by True) or ``and`` (settled by False); what follows is not asked once a scalar settles it."""
    join = either if settles else both

    def run(names: Environment) -> Any:
        value = truth(first(names))
        for token, term in rest:
            if value is settles:
                break
            other = truth(term(names))
            try:
                value = join(value, other)
            except OperationError as fault:
                raise ExpressionError(text, token.column, f"{token.text}: {fault}") from None
        return value

    return run


def _chain(text: str, first: _Run, rest: list[tuple[_Token, _Run]]) -> _Run:
    """``a < b <= c``: every link must hold; each term is evaluated once."""

    def run(names: Environment) -> Any:
        left: Any = first(names)
        holds: Any = True
        for token, term in rest:
            right = term(names)
            try:
                holds = both(holds, OPERATORS[token.text](left, right))
            except OperationError as fault:
                raise ExpressionError(text, token.column, f"{token.text}: {fault}") from None
            if holds is False:
                return False
            left = right
        return holds

    return run
