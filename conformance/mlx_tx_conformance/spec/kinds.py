"""The types of arguments: what a value may be, in words for messages, as a test, and as JSON Schema for editors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Kind:
    """A type of value. Where ``numeric``, a string stands for a number: an expression over the dims."""

    text: str
    accepts: Callable[[Any], bool]
    schema: Mapping[str, Any]
    numeric: bool = False
    words: tuple[str, ...] = ()


def is_integer(value: Any) -> bool:
    """An integer, which a boolean is not."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_number(value: Any) -> bool:
    """An integer or a float (nan and inf included), which a boolean is not."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_edge(value: Any) -> bool:
    return value is None or (is_integer(value) and value >= 0)


def _is_window(value: Any) -> bool:
    if is_integer(value):
        return value >= 1
    return isinstance(value, list) and len(value) == 2 and all(map(_is_edge, value))


def _each(test: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, list) and bool(value) and all(map(test, value))


def _is_word(value: Any) -> bool:
    return isinstance(value, str) and bool(value)


def choice(*words: str) -> Kind:
    """One of some words."""
    return Kind(f"one of {', '.join(words)}", lambda value: value in words, {"enum": list(words)}, words=words)


EXPRESSION_SCHEMA: Mapping[str, Any] = {"type": "string", "description": "An expression over the dims, as T_kv // 2."}
NUMBER_SCHEMA: Mapping[str, Any] = {"type": ["number", "string"]}
INTEGER_SCHEMA: Mapping[str, Any] = {"type": ["integer", "string"]}

BOOLEAN = Kind("true or false", lambda value: isinstance(value, bool | np.bool_), {"type": ["boolean", "string"]}, True)
INTEGER = Kind("an integer", is_integer, INTEGER_SCHEMA, True)
COUNT = Kind("an integer of at least 1", lambda value: is_integer(value) and value >= 1, INTEGER_SCHEMA, True)
NUMBER = Kind("a number", is_number, NUMBER_SCHEMA, True)
INTEGERS = Kind(
    "a list of integers", _each(is_integer), {"type": "array", "items": INTEGER_SCHEMA, "minItems": 1}, True
)
NUMBERS = Kind("a list of numbers", _each(is_number), {"type": "array", "items": NUMBER_SCHEMA, "minItems": 1}, True)
PAIR = Kind(
    "a pair of numbers",
    lambda value: _each(is_number)(value) and len(value) == 2,
    {"type": "array", "items": NUMBER_SCHEMA, "minItems": 2, "maxItems": 2},
    True,
)
WINDOW = Kind(
    "an integer of at least 1, or a pair [left, right] of which each is an integer of at least 0 or null",
    _is_window,
    {
        "anyOf": [
            INTEGER_SCHEMA,
            {"type": "array", "items": {"type": ["integer", "string", "null"]}, "minItems": 2, "maxItems": 2},
        ]
    },
    True,
)
VALUES = Kind(
    "a list of numbers (nested for more than one axis)",
    lambda value: isinstance(value, list),
    {"type": "array"},
    True,
)
TEXT = Kind("a text", _is_word, {"type": "string", "minLength": 1})
EXPRESSION = Kind("an expression", _is_word, EXPRESSION_SCHEMA)
EXPRESSION_OR_NUMBER = Kind(
    "an expression or a number", lambda value: _is_word(value) or is_number(value), {"type": ["string", "number"]}
)
TEXTS = Kind(
    "a text or a list of texts",
    lambda value: _is_word(value) or _each(_is_word)(value),
    {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}, "minItems": 1}]},
)
NAMES = Kind("a list of names", _each(_is_word), {"type": "array", "items": {"type": "string"}, "minItems": 1})
ARRAYS = Kind("a list of arrays of the op", _each(_is_word), NAMES.schema)
OUTPUTS = Kind("a list of outputs of the op", _each(_is_word), NAMES.schema)
REPLACEMENT = Kind(
    "value (other finite values), nan or inf",
    lambda value: value in ("value", "nan", "inf", "-inf") or is_number(value),
    {"anyOf": [{"enum": ["value", "nan", "inf", "-inf"]}, {"type": "number"}]},
)
CHANGES = Kind("changes to the case (call, inputs, layout)", lambda value: isinstance(value, dict), {"type": "object"})


_ROPE = {"base": NUMBER, "dims": COUNT, "traditional": BOOLEAN, "scale": NUMBER, "offset": INTEGER}

ROPE = Kind(
    f"true, or a mapping of {', '.join(_ROPE)}",
    lambda value: (
        isinstance(value, bool)
        or (isinstance(value, dict) and all(name in _ROPE and _ROPE[name].accepts(v) for name, v in value.items()))
    ),
    {
        "anyOf": [
            {"type": "boolean"},
            {
                "type": "object",
                "additionalProperties": False,
                "properties": {name: dict(kind.schema) for name, kind in _ROPE.items()},
            },
        ]
    },
    True,
)


def _fields(words: tuple[str, ...], what: str) -> Kind:
    """A mapping with keys among some words; what the values mean, the op says."""
    return Kind(
        what,
        lambda value: isinstance(value, dict) and all(name in words for name in value),
        {"type": "object", "additionalProperties": False, "properties": {name: {} for name in words}},
        words=words,
    )


SCALING = _fields(
    (
        "kind",
        "factor",
        "original_max_positions",
        "low_freq_factor",
        "high_freq_factor",
        "beta_fast",
        "beta_slow",
        "attention_factor",
        "mscale",
        "mscale_all_dim",
        "truncate",
        "short_factor",
        "long_factor",
    ),
    "a mapping with kind and the numbers of that recipe",
)
CONFIG = Kind("a mapping", lambda value: isinstance(value, dict), {"type": "object"})
WEIGHTS = _fields(("zero", "scale", "set"), "a mapping of zero, scale and set")
CACHE = _fields(
    ("kind", "max_size", "keep", "left_padding", "bits", "group_size"), "a mapping with kind and what that cache takes"
)
LISTING = Kind("a list", lambda value: isinstance(value, list), {"type": "array"})
