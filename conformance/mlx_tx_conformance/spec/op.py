"""What an op is: its arrays, options and outputs, and what of them the spec must exercise; and the dims."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from .features import Feature
from .kinds import Kind

# Every dim, in the order in which they are reported, with its default: a number or another dim's expression.
DIMS: Mapping[str, str] = MappingProxyType(
    {
        "B": "1",
        "N_q": "2",
        "N_kv": "N_q",
        "T_q": "8",
        "T_kv": "T_q",
        "D": "32",
        "D_v": "D",
        "d_model": "N_q * D",
        "d_ff": "2 * d_model",
        "vocab": "16",
        "experts": "4",
    }
)
DIM_HELP: Mapping[str, str] = MappingProxyType(
    {
        "B": "Batch size.",
        "N_q": "Query heads.",
        "N_kv": "Key/value heads.",
        "T_q": "Length of the queries.",
        "T_kv": "Length of the keys and values.",
        "D": "Head size of queries and keys.",
        "D_v": "Head size of values.",
        "d_model": "Model size.",
        "d_ff": "Width of the MLP between its layers.",
        "vocab": "Rows of a table: tokens, learned positions, or buckets of a relative bias.",
        "experts": "Experts of a mixture.",
        "T": "T_q and T_kv together.",
    }
)


@dataclass(frozen=True)
class Array:
    """An array argument. ``shape`` is given in dims; where ``broadcasts``, any axis may also be 1."""

    name: str
    shape: tuple[str, ...]
    help: str
    required: bool = False
    broadcasts: bool = False


@dataclass(frozen=True)
class Option:
    """An argument that is no array. ``default`` is an expression over the dims, for options that are always given."""

    name: str
    kind: Kind
    help: str
    default: str | None = None


@dataclass(frozen=True)
class Op:
    """An operation that a target may offer.

    ``weighted``: besides its arrays a call holds every parameter of the model of its ``config``, by name.
    ``stateful``: its ``steps`` are operations on a state.
    """

    name: str
    help: str
    arrays: Mapping[str, Array]
    options: Mapping[str, Option]
    outputs: tuple[str, ...]
    default_outputs: tuple[str, ...]
    laid_out: tuple[str, ...]
    features: tuple[Feature, ...]
    scope: str = "attention"
    needs: tuple[str, ...] = field(default=())
    weighted: bool = False
    stateful: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """What may stand under ``call``: options, and arrays by the name of an intermediate value."""
        return (*self.options, *(name for name in self.arrays if name not in self.options))


def named(*items: Any) -> Mapping[str, Any]:
    """Items by their names."""
    return MappingProxyType({item.name: item for item in items})
