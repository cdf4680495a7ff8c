"""The keys of ``vary`` and ``pairwise``: what each of their values changes in a case, and how an id calls it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from .errors import suggestion
from .merge import Body, merge, set_path
from .ops import DIMS, Op

_PLAIN = re.compile(r"[^\s,\[\]]{1,80}")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]{0,39}")
# Keys whose values say by themselves what they are: their labels stand bare in an id.
_BARE = frozenset({"dtype", "design", "layout"})
_KEYS = ("dtype", "design", "layout", "seed", "path")
# Where a dotted path may begin.
_ROOTS = ("shapes", "call", "inputs", "layout", "let", "over", "check", "expect")


class VaryFault(ValueError):
    """A key or value of ``vary`` that cannot be used; the hint is for the end of the message."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message + hint)
        self.message, self.hint = message, hint


@dataclass(frozen=True)
class Choice:
    """One value of a factor: its label in ids, the value as it stands in ``params``, and what it changes."""

    label: str
    value: Any
    bare: bool
    apply: Callable[[Body], Body]


@dataclass(frozen=True)
class Factor:
    """A key of ``vary`` or ``pairwise`` with its values."""

    key: str
    choices: tuple[Choice, ...]


def factor(key: str, values: list[Any], op: Op) -> Factor:
    """What a key and its values mean for a case of ``op``. Raises :class:`VaryFault`."""
    choices = tuple(_choice(key, value, op) for value in values)
    labels = [choice.label for choice in choices]
    twice = next((label for label in labels if labels.count(label) > 1), None)
    if twice is not None:
        raise VaryFault(f"two values of {key!r} are called {twice!r} in ids; give them a name")
    return Factor(key, choices)


def is_known(key: str, op: Op) -> bool:
    """Whether a key means something by itself; any other needs values with a name."""
    return (
        key in _KEYS or key == "T" or key in DIMS or key in op.names or (key.partition(".")[0] in _ROOTS and "." in key)
    )


def unknown_key(key: str, op: Op) -> tuple[str, str]:
    """The complaint about a key that means nothing, and the hint that goes with it."""
    if "." in key:
        return f"a dotted key begins with one of {', '.join(_ROOTS)}; got {key!r}", ""
    near = suggestion(key, (*_KEYS, *DIMS, "T", *op.names))
    return f"unknown key {key!r}", f"{near} (a key of your own needs values with a name)"


def _choice(key: str, value: Any, op: Op) -> Choice:
    name = None
    if isinstance(value, Mapping) and "name" in value:
        name = _variant_name(value["name"])
        if value.keys() != {"name", "value"}:
            layer = {k: v for k, v in value.items() if k != "name"}
            return Choice(name, name, True, lambda body: merge(body, layer))
        value = value["value"]
    if not is_known(key, op):
        raise VaryFault(*unknown_key(key, op))
    text = name or label(value)
    if key in _BARE:
        return Choice(text, name or value, True, _applied(key, value, op))
    return Choice(f"{key.rsplit('.', 1)[-1]}={text}", name or value, False, _applied(key, value, op))


def _variant_name(name: Any) -> str:
    text = str(name)
    if isinstance(name, bool) or not isinstance(name, str | int) or not _NAME.fullmatch(text):
        raise VaryFault(f"a variant's name is a short word without blanks; got {name!r}")
    return text


def _applied(key: str, value: Any, op: Op) -> Callable[[Body], Body]:
    if "." in key:
        path = tuple(key.split("."))
        return lambda body: set_path(body, path, value)
    layer = _layer(key, value, op)
    return lambda body: merge(body, layer)


def _layer(key: str, value: Any, op: Op) -> Mapping[str, Any]:
    if key in ("dtype", "seed", "path", "layout"):
        return {key: value}
    if key == "design":
        return {"inputs": {"design": value}}
    if key == "T":
        return {"shapes": {"T_q": value, "T_kv": value}}
    if key in DIMS:
        return {"shapes": {key: value}}
    if key in op.options and key in op.arrays:
        # An array when written as one; either way it takes the place of the other.
        if isinstance(value, list | Mapping):
            return {"inputs": {key: value}, "call": {key: None}}
        return {"call": {key: value}, "inputs": {key: None}}
    return {"call": {key: value}} if key in op.options else {"inputs": {key: value}}


def label(value: Any) -> str:
    """How an id writes a value. Raises :class:`VaryFault` for one that needs a name."""
    text = _text(value, 0)
    if not _PLAIN.fullmatch(text):
        raise VaryFault(f"the value {value!r} cannot stand in an id; write {{name: ..., value: ...}}")
    return text


def _text(value: Any, depth: int) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return "".join(value.split())
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, list) and depth < 2 and value and not any(isinstance(v, list | Mapping) for v in value):
        return ":".join(_text(v, depth + 1) for v in value)
    if isinstance(value, Mapping) and depth < 2 and len(value) == 1:
        ((key, inner),) = value.items()
        if isinstance(inner, Mapping):
            return f"{key}({';'.join(f'{k}={_text(v, 2)}' for k, v in inner.items())})"
        return f"{key}({_text(inner, depth + 1)})"
    raise VaryFault("a value that is a mapping or a nested list needs a name: {name: ..., value: ...}")
