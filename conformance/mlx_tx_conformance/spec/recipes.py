"""The closed registry of recipes: how an input array that is not written out comes about."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from . import kinds
from .kinds import Kind

# A recipe has exactly one of these ...
RECIPES: Mapping[str, tuple[Kind, str]] = MappingProxyType(
    {
        "where": (kinds.EXPRESSION, "True where the expression over b, h, i, j and the dims holds."),
        "formula": (kinds.EXPRESSION, "The value of the expression over b, h, i, j and the dims."),
        "normal": (kinds.NUMBER, "Normal numbers of this standard deviation."),
        "uniform": (kinds.PAIR, "Uniform numbers between two."),
        "constant": (kinds.NUMBER, "One number everywhere."),
        "values": (kinds.VALUES, "Written out."),
        "lengths": (kinds.VALUES, "Segments of these lengths, one after another."),
    }
)
# ... and any of these.
MODIFIERS: Mapping[str, tuple[Kind, str]] = MappingProxyType(
    {
        "shape": (kinds.INTEGERS, "The shape, where it is not the full one."),
        "additive": (kinds.NUMBER, "With where: this number (often -inf) where it does not hold."),
        "visible": (kinds.NUMBER, "With where and additive: the number where it holds; 0 where absent."),
        "dtype": (
            kinds.choice("float32", "float16", "bfloat16", "bool", "int8", "int32", "uint8"),
            "Another dtype than the case's.",
        ),
    }
)
# Names that an expression over the elements of an array may use, besides the dims and the numeric options.
INDICES = ("b", "h", "i", "j")
