"""Checks of configuration fields: each message names the field's path, its value and what is allowed."""

from __future__ import annotations

import difflib
import math
import numbers
import operator
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, fields
from typing import Any, ClassVar, Self


class FieldError(ValueError):
    """A field of a configuration has a bad value. ``path`` is where it stands, as in ``attention.num_heads``."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"[config] {path} {problem}")
        self.path = path
        self.problem = problem

    def within(self, prefix: str) -> FieldError:
        """The same error, seen from the section that holds this one."""
        return type(self)(f"{prefix}{self.path}", self.problem)


class FieldTypeError(FieldError, TypeError):
    """A field of a configuration has a value of a wrong type."""


class Section:
    """What the dataclasses of a configuration share: conversion from and to plain dicts.

    ``_path`` stands before the names of the fields in messages; ``_sections`` tells which fields are sections.
    """

    __slots__ = ()
    _path: ClassVar[str] = ""
    _sections: ClassVar[Mapping[str, type[Section]]] = {}
    _lists: ClassVar[Mapping[str, type[Section]]] = {}

    def to_dict(self) -> dict[str, Any]:
        """Every field by name, in plain Python values: what JSON and YAML can hold."""
        return {item.name: _plain(getattr(self, item.name)) for item in fields(self)}  # type: ignore[arg-type]

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """The reverse of :meth:`to_dict`. ``None`` counts as absent; a name that is no field is refused."""
        known = {item.name: item for item in fields(cls)}  # type: ignore[arg-type]
        if not isinstance(values, Mapping):
            raise FieldTypeError(cls._path.rstrip(".") or "config", f"must be a mapping; got {values!r}")
        for name in values:
            if name not in known:
                raise FieldError(f"{cls._path}{name}", f"is no field; {_meant(str(name), known)}")
        given = {name: value for name, value in values.items() if value is not None}
        for name, item in known.items():
            if name not in given and item.default is MISSING and item.default_factory is MISSING:
                raise FieldError(f"{cls._path}{name}", "must be given")
        for name, value in given.items():
            if name in cls._sections:
                given[name] = _nested(cls._path, cls._sections[name], value)
            elif name in cls._lists:
                if not isinstance(value, list | tuple):
                    raise FieldTypeError(f"{cls._path}{name}", f"must be a list; got {value!r}")
                given[name] = tuple(
                    _nested(f"{cls._path}{name}[{n}].", cls._lists[name], entry) for n, entry in enumerate(value)
                )
        return cls(**given)

    def _set(self, name: str, value: Any) -> None:
        """Fills in a default that depends on other fields, while the dataclass is being made."""
        object.__setattr__(self, name, value)


LARGEST = 2**31 - 1  # an axis of an MLX array is an int32
TINY, HUGE = 2.0**-126, (2 - 2.0**-23) * 2.0**127  # the smallest and the largest normal number of float32


def whole(path: str, value: Any, minimum: int, maximum: int | None = None) -> int:
    """``value`` as an integer in ``minimum..maximum``; without a maximum, one that fits an int32."""
    allowed = f"must be an integer {f'>= {minimum}' if maximum is None else f'in {minimum}..{maximum}'}"
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise FieldTypeError(path, f"{allowed}; got {value!r}")
    result = operator.index(value)
    if result < minimum or (maximum is not None and result > maximum):
        raise FieldError(path, f"{allowed}; got {_shown(result)}")
    if result > LARGEST:
        raise FieldError(path, f"{allowed} and < 2**31; got {_shown(result)}")
    return result


def number(
    path: str,
    value: Any,
    *,
    above: float | None = None,
    minimum: float | None = None,
    maximum: float | None = None,
) -> float:
    """``value`` as a finite number, greater than ``above`` or at least ``minimum``, that float32 can hold."""
    bound = f" > {above:g}" if above is not None else f" >= {minimum:g}" if minimum is not None else ""
    bound += "" if maximum is None else f"{' and' if bound else ''} <= {maximum:g}"
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise FieldTypeError(path, f"must be a number{bound}; got {value!r}")
    try:
        result = float(value)
    except OverflowError:
        result = math.inf
    low = (above is not None and result <= above) or (minimum is not None and result < minimum)
    if not math.isfinite(result) or low or (maximum is not None and result > maximum):
        raise FieldError(path, f"must be a finite number{bound}; got {_shown(value)}")
    if abs(result) > HUGE or (above == 0 and result < TINY):
        raise FieldError(path, f"must be a finite number{bound} in the range of float32; got {value!r}")
    return result


def flag(path: str, value: Any) -> bool:
    """``value`` if it is a boolean."""
    if not isinstance(value, bool):
        raise FieldTypeError(path, f"must be True or False; got {value!r}")
    return value


def choice(path: str, value: Any, allowed: Iterable[str]) -> str:
    """``value`` if it is one of ``allowed``."""
    names = tuple(allowed)
    if not isinstance(value, str) or value not in names:
        hint = f"; {_meant(value, names)}" if isinstance(value, str) else ""
        raise FieldError(path, f"must be one of {', '.join(names)}; got {value!r}{hint}")
    return value


def instance(path: str, value: Any, kind: type) -> None:
    """Refuses what is no ``kind``."""
    if not isinstance(value, kind):
        raise FieldTypeError(path, f"must be a {kind.__name__}; got {value!r}")


def _shown(value: Any) -> str:
    """``value`` for a message; Python refuses to print integers of thousands of digits."""
    if isinstance(value, int) and value.bit_length() > 128:
        return f"an integer of {value.bit_length()} bits"
    return repr(value)


def _plain(value: Any) -> Any:
    if isinstance(value, Section):
        return value.to_dict()
    if isinstance(value, tuple):
        return [_plain(entry) for entry in value]
    return value


def _nested(prefix: str, kind: type[Section], value: Any) -> Section:
    if isinstance(value, kind):
        return value
    try:
        return kind.from_dict(value)
    except FieldError as error:
        raise error.within(prefix) from None


def _meant(name: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(name, list(known), n=1)
    return f"did you mean {close[0]}?" if close else f"known: {', '.join(known)}"
