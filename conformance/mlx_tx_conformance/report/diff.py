"""What changed from one run to another: verdicts, and cases that came or went."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..outcome import CONFORMING
from ..runner.result import Run
from ..runner.rows import key
from .table import counts_text

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
    """Every result whose verdict differs, in report order, those that are gone last."""
    old = {key(row): row for row in before.rows}
    new = {key(row): row for row in after.rows}
    found = []
    for place, row in new.items():
        was = old[place]["verdict"] if place in old else None
        if was != row["verdict"]:
            found.append(Change(*place, was, row["verdict"], row["message"]))
    found += [Change(*place, row["verdict"], None, "") for place, row in old.items() if place not in new]
    return found


def diff_text(before: Run, after: Run, found: Sequence[Change]) -> str:
    """The changes as lines, the ones for the worse first."""
    lines = []
    for change in sorted(found, key=lambda change: not change.worse):
        step = f"{change.before or 'not run'} → {change.after or 'not run'}"
        lines.append(f"{step:24} {change.case}  on {change.target}, {change.device}")
        if change.message and change.worse:
            lines.append(f"{'':24} {change.message}")
    if not lines:
        lines.append("no verdict changed")
    lines += ["", f"before: {counts_text(before.counts)}", f"after:  {counts_text(after.counts)}", ""]
    return "\n".join(lines)
