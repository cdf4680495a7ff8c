"""What a check is called, which arguments it takes, and which cases it belongs to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from .kinds import Kind


@dataclass(frozen=True)
class Argument:
    """An argument of a check."""

    name: str
    kind: Kind
    help: str
    required: bool = False


@dataclass(frozen=True)
class CheckSignature:
    """A check: its arguments by name, and which form of case it belongs to.

    ``variable``: besides its arguments it takes one variable of the case with a list of values. ``needs``: the key
    that a case with this check must have. ``ops``: the ops whose calls it can judge (empty: any). ``names``: what
    its expressions may use besides the names of the case.
    """

    name: str
    help: str
    arguments: Mapping[str, Argument]
    variable: bool = False
    needs: str = ""
    ops: tuple[str, ...] = ()
    names: tuple[str, ...] = ()


def check(name: str, help: str, *arguments: Argument, **rest: Any) -> CheckSignature:
    """A signature from its arguments in order."""
    return CheckSignature(name, help, MappingProxyType({a.name: a for a in arguments}), **rest)
