"""The operations on a cache: what ``steps`` may list for an op that has a state, or ask for at random."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

from . import kinds
from .errors import suggestion
from .kinds import Kind

OPERATIONS: Mapping[str, tuple[Kind, str]] = MappingProxyType(
    {
        "update": (kinds.COUNT, "This many tokens more."),
        "trim": (kinds.COUNT, "The last tokens are taken back."),
        "rewind": (kinds.INTEGER, "Everything after the first tokens is taken back."),
        "restore": (kinds.choice("state", "file"), "Saved, and restored as another cache."),
        "reorder": (kinds.INTEGERS, "These rows of the batch go on, in this order."),
        "regroup": (kinds.BOOLEAN, "The rows are taken apart, and put together again as a batch."),
    }
)
RANDOM: Mapping[str, tuple[Kind, str]] = MappingProxyType(
    {
        "sequences": (kinds.COUNT, "How many sequences."),
        "n": (kinds.COUNT, "Operations in each, at most."),
        "seed": (kinds.INTEGER, "Another seed."),
        "weights": (kinds.CONFIG, "How often each operation is taken, by name."),
    }
)
NEEDED = ("sequences", "n", "weights")


def faults(steps: Any) -> Iterator[tuple[str, str]]:
    """Every complaint about ``steps``, with the hint that goes with it."""
    if isinstance(steps, Mapping):
        yield from _random(steps)
        return
    if not isinstance(steps, list) or not steps:
        yield f"steps must be a list of operations, or random: {{...}}; got {steps!r:.60}", ""
        return
    for step in steps:
        yield from _operation(step)


def _random(steps: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    given = steps.get("random")
    if len(steps) != 1 or not isinstance(given, Mapping):
        yield f"steps must be a list of operations, or random: {{...}}; got {steps!r:.60}", ""
        return
    for key, value in given.items():
        if key not in RANDOM:
            yield f"unknown key {key!r} of random", suggestion(key, RANDOM)
        elif not RANDOM[key][0].accepts(value):
            yield f"random.{key} must be {RANDOM[key][0].text}; got {value!r:.60}", ""
    for name in NEEDED:
        if name not in given:
            yield f"random needs {name!r}", ""
    weights = given.get("weights")
    for name, weight in weights.items() if isinstance(weights, Mapping) else ():
        if name not in OPERATIONS:
            yield f"unknown operation {name!r}", suggestion(name, OPERATIONS)
        elif not kinds.is_number(weight) or weight < 0:
            yield f"the weight of {name} must be a number of at least 0; got {weight!r:.60}", ""


def _operation(step: Any) -> Iterator[tuple[str, str]]:
    if not isinstance(step, Mapping) or len(step) != 1:
        yield f"an operation is one name with its argument, as {{update: 3}}; got {step!r:.60}", ""
        return
    ((name, argument),) = step.items()
    if name not in OPERATIONS:
        yield f"unknown operation {name!r}", suggestion(name, OPERATIONS)
    elif not OPERATIONS[name][0].accepts(argument):
        yield f"{name} must be {OPERATIONS[name][0].text}; got {argument!r:.60}", ""


def as_steps(steps: Any) -> tuple[Mapping[str, Any], ...]:
    """The steps of a case: operations in order, or one mapping ``random``."""
    return (dict(steps),) if isinstance(steps, Mapping) else tuple(dict(step) for step in steps)
