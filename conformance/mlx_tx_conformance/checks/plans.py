"""Sequences of operations on a cache: drawn at random, kept possible by a ledger, and shortened when they fail."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Operation = tuple[str, Any]
Plan = tuple[Operation, ...]

# No text of a sequence grows beyond this many slots: faults of a cache show in small ones.
LONGEST = 36
LARGEST_STEP = 5
# How many shorter plans are tried before the shortest found is shown.
TRIALS = 300


@dataclass
class Ledger:
    """What must be known of a cache to tell which operation may come next: rows, slots fed, and whether it forgets."""

    kind: str
    max_size: int | None
    rows: int
    pads: list[int] = field(default_factory=list)
    fed: int = 0

    @property
    def batched(self) -> bool:
        return self.kind.startswith("batched")

    def may(self, operation: Operation) -> bool:
        """Whether the operation is possible now; a full rotating cache takes nothing back."""
        name, argument = operation
        if name == "update":
            return argument >= 1 and self.fed + argument <= LONGEST and not (self.kind == "cross" and self.fed)
        if name in ("trim", "rewind"):
            return self.max_size is None or self.fed < self.max_size
        if name == "reorder":
            return self.batched and all(0 <= row < self.rows for row in argument)
        if name == "regroup":
            return self.batched
        return True

    def take(self, operation: Operation) -> None:
        """The ledger after an operation."""
        name, argument = operation
        if name == "update":
            self.fed += argument
        elif self.kind == "cross":
            return
        elif name == "trim":
            self.fed -= min(argument, self.fed)
        elif name == "rewind":
            self.fed = min(self.fed, argument)
        elif name == "reorder":
            self.pads, self.rows = [self.pads[row] for row in argument], len(argument)
        elif name == "regroup":
            lengths = [max(self.fed - pad, 0) for pad in self.pads]
            self.fed = max(lengths)
            self.pads = [self.fed - length for length in lengths]


def ledger_of(cache: Mapping[str, Any], pads: Sequence[int]) -> Ledger:
    """The ledger of an empty cache that the option ``cache`` describes."""
    return Ledger(str(cache["kind"]), cache.get("max_size"), len(pads), list(pads))


def is_possible(plan: Plan, ledger: Ledger) -> bool:
    """Whether every operation of a plan can come where it stands, and something is fed."""
    for operation in plan:
        if not ledger.may(operation):
            return False
        ledger.take(operation)
    return any(name == "update" for name, _ in plan)


def random_plans(asked: Mapping[str, Any], cache: Mapping[str, Any], pads: Sequence[int], seed: int) -> Iterator[Plan]:
    """The sequences that ``random: {...}`` asks for."""
    names, weights = list(asked["weights"]), np.array(list(asked["weights"].values()), dtype=np.float64)
    for number in range(asked["sequences"]):
        rng = np.random.Generator(np.random.PCG64([seed + asked.get("seed", 0), number]))
        ledger = ledger_of(cache, pads)
        plan: list[Operation] = []
        for _ in range(int(rng.integers(min(3, asked["n"]), asked["n"] + 1))):
            name = names[rng.choice(len(names), p=weights / weights.sum())] if plan else "update"
            operation = (name, _argument(name, ledger, rng))
            if not ledger.may(operation):
                operation = ("restore", "state")
            ledger.take(operation)
            plan.append(operation)
        yield tuple(plan)


def _argument(name: str, ledger: Ledger, rng: np.random.Generator) -> Any:
    if name == "update":
        # Often a single token, as in decoding; sometimes more than a rotating cache holds.
        longest = LARGEST_STEP if ledger.max_size is None else max(LARGEST_STEP, ledger.max_size + 3)
        return 1 if rng.random() < 0.4 else int(rng.integers(1, longest + 1))
    if name == "trim":
        return int(rng.integers(1, max(2, ledger.fed + 2)))
    if name == "rewind":
        return int(rng.integers(0, ledger.fed + 1))
    if name == "reorder":
        return [int(row) for row in rng.integers(0, ledger.rows, rng.integers(1, 4))]
    if name == "regroup":
        return True
    return "file" if rng.random() < 0.05 else "state"


def listed_plan(steps: Sequence[Mapping[str, Any]]) -> Plan:
    """The operations that a case lists."""
    return tuple(next(iter(step.items())) for step in steps)


def shrunk(plan: Plan, ledger: Callable[[], Ledger], fails: Callable[[Plan], bool]) -> Plan:
    """A plan that fails too and cannot be made shorter by leaving out an operation or feeding less at once."""
    trials = 0
    found = True
    while found and trials < TRIALS:
        found = False
        for shorter in _shorter(plan):
            if trials >= TRIALS:
                break
            if not is_possible(shorter, ledger()):
                continue
            trials += 1
            if fails(shorter):
                plan, found = shorter, True
                break
    return plan


def _shorter(plan: Plan) -> Iterator[Plan]:
    for n in reversed(range(len(plan))):
        yield plan[:n] + plan[n + 1 :]
    for n, (name, argument) in enumerate(plan):
        if name in ("update", "trim") and argument > 1:
            for less in sorted({1, argument // 2, argument - 1}):
                yield (*plan[:n], (name, less), *plan[n + 1 :])


def written(plan: Plan) -> str:
    """A plan as a case would list it."""
    return "[" + ", ".join(f"{{{name}: {_text(argument)}}}" for name, argument in plan) + "]"


def _text(argument: Any) -> str:
    return str(argument).lower() if isinstance(argument, bool) else str(argument)
