"""The forms of a window that a function's annotation says it takes: an integer, a pair, or (without a word) both."""

from __future__ import annotations

import inspect
import sys
import types
import typing
from collections.abc import Callable, Sequence
from typing import Any

INT, PAIR = "an integer", "a pair (left, right)"
BOTH = frozenset({INT, PAIR})


def forms_taken(function: Callable[..., Any], parameter: inspect.Parameter | None) -> frozenset[str]:
    """The forms that a parameter ``window`` is annotated with; both where it is not, or where nobody can tell."""
    if parameter is None or parameter.annotation is parameter.empty:
        return BOTH
    note = parameter.annotation
    if isinstance(note, str):
        # This annotation alone: the others may name what is there for a type checker only.
        module = sys.modules.get(getattr(function, "__module__", None) or "")
        names = getattr(inspect.unwrap(function), "__globals__", None) or vars(module or typing)
        try:
            note = eval(note, dict(names))
        except Exception:  # an annotation may be any code, of names that are not there at run time
            return BOTH
    found: set[str] = set()
    for part in _members(note):
        if part is int:
            found.add(INT)
        elif isinstance(part, type) and issubclass(part, Sequence) and not issubclass(part, str):
            found.add(PAIR)
        elif part is not type(None):
            return BOTH
    return frozenset(found) or BOTH


def form_of(window: Any) -> str | None:
    """The form of a value, or ``None`` for what is neither (a function has to refuse it by itself)."""
    if isinstance(window, int) and not isinstance(window, bool):
        return INT
    return PAIR if isinstance(window, list | tuple) and len(window) == 2 else None


def is_sound_pair(window: Any) -> bool:
    """Whether a window is a pair that every implementation of pairs takes."""
    sides = window if form_of(window) == PAIR else (-1,)
    return all(side is None or (isinstance(side, int) and not isinstance(side, bool) and side >= 0) for side in sides)


def _members(note: Any) -> list[Any]:
    """The types of a union, each without its parameters."""
    if typing.get_origin(note) in (typing.Union, types.UnionType):
        return [member for part in typing.get_args(note) for member in _members(part)]
    if typing.get_origin(note) is typing.Annotated:
        return _members(typing.get_args(note)[0])
    return [typing.get_origin(note) or note]
