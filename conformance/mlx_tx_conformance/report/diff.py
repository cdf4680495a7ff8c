"""What changed from one run to another: verdicts, and cases that came or went."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..outcome import CONFORMING
from ..runner.result import Run
from ..runner.rows import key
from .table import column_title, counts_text

GOOD = CONFORMING


@dataclass(frozen=True)
class Change:
    """One result that is not what it was; ``before`` or ``after`` is None where it was not run."""

    case: str
    target: str
    device: str
    before: str | None
    after: str | None
    message: str

    @property
    def worse(self) -> bool:
        """A conforming verdict, or none, became one that does not conform."""
        return self.after is not None and self.after not in GOOD and (self.before is None or self.before in GOOD)


def changes(before: Run, after: Run) -> list[Change]:
    """Every result whose verdict differs, in report order, those that are gone last.

    Two runs of one target each are compared case by case, whatever the targets are called: an implementation and its
    successor. Raises ValueError where several targets have none in common.
    """
    old = {key(row): row for row in before.rows}
    if _renamed(before, after):
        ((target, device),) = after.columns
        old = {(row["case"], target, device): row for row in before.rows}
    elif before.rows and after.rows and not set(before.columns) & set(after.columns):
        columns = [" and ".join(column_title(column) for column in run.columns) for run in (before, after)]
        raise ValueError(f"the runs have no target in common: {columns[0]} before, {columns[1]} after")
    new = {key(row): row for row in after.rows}
    found = []
    for place, row in new.items():
        was = old[place]["verdict"] if place in old else None
        if was != row["verdict"]:
            found.append(Change(*place, was, row["verdict"], row["message"]))
    found += [Change(*place, row["verdict"], None, "") for place, row in old.items() if place not in new]
    return found


def _renamed(before: Run, after: Run) -> bool:
    """Whether both runs have one target, not the same."""
    return len(before.columns) == len(after.columns) == 1 and before.columns != after.columns


def diff_text(before: Run, after: Run, found: Sequence[Change]) -> str:
    """The changes as lines, the ones for the worse first."""
    lines = []
    if _renamed(before, after):
        lines += [f"{column_title(before.columns[0])} → {column_title(after.columns[0])}", ""]
    for change in sorted(found, key=lambda change: not change.worse):
        step = f"{change.before or 'not run'} → {change.after or 'not run'}"
        lines.append(f"{step:24} {change.case}  on {change.target}, {change.device}")
        if change.message and change.worse:
            lines.append(f"{'':24} {change.message}")
    if not found:
        lines.append("no verdict changed")
    lines += ["", f"before: {counts_text(before.counts)}", f"after:  {counts_text(after.counts)}", ""]
    return "\n".join(lines)
