"""The closed list of checks: a name in the spec, a function here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from ..outcome import Outcome
from .context import Context

Check = Callable[..., Outcome]

_CHECKS: dict[str, Check] = {}
CHECKS: Mapping[str, Check] = MappingProxyType(_CHECKS)


def check(function: Check) -> Check:
    """Register a check under its function's name. Its keyword arguments are the check's arguments in the spec."""
    name = function.__name__.rstrip("_")
    if name in _CHECKS:
        raise ValueError(f"two checks are named {name!r}")
    _CHECKS[name] = function
    return function


def run_check(name: str, context: Context, arguments: Mapping[str, object]) -> Outcome:
    """Run the check ``name`` on the context's case."""
    return _CHECKS[name](context, **arguments)
