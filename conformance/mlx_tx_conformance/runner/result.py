"""A finished run, or several merged: what every report is made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..outcome import CONFORMING
from .journal import Journal, JournalError
from .rows import Row, count_verdicts, in_order

EXIT_CONFORMS, EXIT_DIFFERS, EXIT_USAGE, EXIT_ERRORED = 0, 1, 2, 3


@dataclass(frozen=True)
class Run:
    """Headers of the journals it came from, rows in report order, and what is missing (empty if nothing)."""

    headers: tuple[Mapping[str, Any], ...]
    rows: tuple[Row, ...]
    truncated: tuple[str, ...] = ()
    seconds: float = 0.0

    @property
    def counts(self) -> dict[str, int]:
        """How many rows have each verdict."""
        return count_verdicts(self.rows)

    @property
    def broken(self) -> list[Row]:
        """The rows that keep an implementation from conforming."""
        return [row for row in self.rows if row["verdict"] not in CONFORMING]

    @property
    def exit_code(self) -> int:
        """0 conforms, 1 does not, 3 errored, incomplete, or nothing was run. A failure outweighs an error: it is a
        finding."""
        counts = self.counts
        if counts["fail"]:
            return EXIT_DIFFERS
        return EXIT_ERRORED if counts["error"] or self.truncated or self.nothing_ran() else EXIT_CONFORMS

    def nothing_ran(self, column: tuple[str, str] | None = None) -> str:
        """Why nothing can be said of a column (without one, of the run): every case is unsupported. Else empty."""
        rows = [row for row in self.rows if column in (None, (row["target"], row["device"]))]
        if any(row["verdict"] != "unsupported" for row in rows):
            return ""
        if not rows:
            return "nothing was run: there are no results"
        example = f"{rows[0]['case']}: {rows[0]['message']}"
        return f"nothing was run: every case is unsupported, for example {example}"

    @property
    def columns(self) -> list[tuple[str, str]]:
        """The targets with their devices, in order of appearance."""
        return list(dict.fromkeys((row["target"], row["device"]) for row in self.rows))


def run_of(journals: Sequence[Journal]) -> Run:
    """One run from one or several journals.

    Raises JournalError where they are of different specs or suites, or hold a result twice: a report must not choose
    between two verdicts on the same thing. Machines of the same kind are told apart by what their device is called.
    """
    rows: list[Row] = []
    first = journals[0].header
    names = {str(journal.header.get("device_name")) for journal in journals}
    seen: dict[tuple[str, str, str], Journal] = {}
    for journal in journals:
        for name in ("spec_hash", "suite"):
            if journal.header.get(name) != first.get(name):
                raise JournalError(
                    f"{journals[0].path} and {journal.path} cannot be merged: "
                    f"they ran different {'cases (spec hash)' if name == 'spec_hash' else 'versions of the suite'}"
                )
        for row in journal.rows:
            device = f"{row['device']} ({journal.header.get('device_name')})" if len(names) > 1 else row["device"]
            merged = {**row, "device": device}
            place = (row["case"], row["target"], device)
            if place in seen:
                raise JournalError(
                    f"{row['case']} on {row['target']}, {device}, is both in {seen[place].path} and in {journal.path}"
                )
            seen[place] = journal
            rows.append(merged)
    targets = [target for journal in journals for target in journal.header.get("targets", ())]
    truncated = tuple(f"{journal.path}: {journal.truncated}" for journal in journals if journal.truncated)
    seconds = sum(float((journal.footer or {}).get("seconds", 0.0)) for journal in journals)
    return Run(tuple(journal.header for journal in journals), tuple(in_order(rows, targets)), truncated, seconds)
