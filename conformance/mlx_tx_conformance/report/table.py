"""What every report counts: verdicts by clause and target, and how they are written."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ..outcome import VERDICTS
from ..runner.result import EXIT_CONFORMS, EXIT_DIFFERS, EXIT_ERRORED, Run

MEANING: Mapping[int, str] = {EXIT_CONFORMS: "conforms", EXIT_DIFFERS: "does not conform", EXIT_ERRORED: "errored"}

EMULATED = (
    "metal (emulated): the kernels' real sources ran on a CPU. This does not prove that Apple's compiler accepts them, "
    "nor speed, fast-math accuracy, register pressure or real memory ordering."
)


@dataclass(frozen=True)
class Cell:
    """The verdicts of one clause on one target."""

    counts: Mapping[str, int]

    @property
    def total(self) -> int:
        return sum(self.counts.values())

    @property
    def verdict(self) -> str:
        """The one word for all of them: the worst, and unsupported only where nothing else was found."""
        for name in ("fail", "error", "waived", "weak", "pass"):
            if self.counts.get(name):
                return name
        return "unsupported"

    @property
    def text(self) -> str:
        """`12`, `3/12 fail`, or what else there is to say in a table."""
        ran = self.total - self.counts.get("unsupported", 0)
        bad = self.counts.get(self.verdict, 0)
        if self.verdict == "pass":
            return f"{ran}" if ran == self.total else f"{ran} ({self.total - ran} unsupported)"
        if self.verdict == "unsupported":
            return "unsupported"
        return f"{bad}/{ran} {self.verdict}"


def matrix(run: Run) -> dict[str, dict[tuple[str, str], Cell]]:
    """Clause → (target, device) → verdicts, clauses in the order of the spec."""
    counts: dict[str, dict[tuple[str, str], Counter[str]]] = {}
    for row in run.rows:
        column = (row["target"], row["device"])
        counts.setdefault(row["clause"], {}).setdefault(column, Counter())[row["verdict"]] += 1
    return {clause: {column: Cell(c) for column, c in columns.items()} for clause, columns in counts.items()}


def counts_text(counts: Mapping[str, int]) -> str:
    """`1020 pass, 3 fail`: verdicts that occur, the usual order."""
    return ", ".join(f"{counts[name]} {name}" for name in VERDICTS if counts.get(name)) or "no results"


def column_title(column: tuple[str, str]) -> str:
    """A target on its device: the device as the reports name it."""
    target, device = column
    return f"{target}, {'metal (emulated)' if device == 'emulated' else device}"


def header_line(header: Mapping[str, Any]) -> str:
    """One line with what the numbers rest on."""
    versions = header.get("versions", {})
    known = " ".join(f"{name} {number}" for name, number in versions.items() if number)
    parts = [
        f"mlx-tx {header.get('suite')}",
        known,
        f"device {header.get('device')} ({header.get('device_name')})",
        f"BLAS {header.get('blas')}",
        str(header.get("platform")),
        f"spec {str(header.get('spec_hash'))[:12]}",
        f"seed {header.get('seed')}",
    ]
    return " · ".join(part for part in parts if part)


def remarks(run: Run) -> list[str]:
    """What a reader of the numbers has to know about the devices they come from."""
    return [EMULATED] if any(header.get("device") == "emulated" for header in run.headers) else []


def conclusion(run: Run) -> str:
    """The last line: verdicts, time, and what the exit status says."""
    seconds = f" in {run.seconds:.1f} s" if run.seconds else ""
    nothing = run.nothing_ran()
    errored = run.exit_code == EXIT_ERRORED and not run.counts["error"]  # then it is for one of the reasons below
    said = [nothing] * bool(nothing) if errored else [MEANING[run.exit_code]]
    if run.truncated:
        said.append(f"incomplete ({'; '.join(run.truncated)})")
    last = f"{counts_text(run.counts)}{seconds}: {', and '.join(said)}"
    if nothing:
        return last
    # A target of several that supports none of the cases: the verdict of the others is not its own.
    idle = {column_title(column): run.nothing_ran(column) for column in run.columns}
    return "\n".join([*(f"{title}: {reason}" for title, reason in idle.items() if reason), last])


def explain_command(row: Mapping[str, Any]) -> str:
    """What to type to see a case taken apart."""
    return f"mlx-tx explain '{row['case']}' --target {row['target']}"


def worst_headroom(rows: Iterable[Mapping[str, Any]]) -> float | None:
    """The largest error/bound among passing rows."""
    numbers = [
        row["headroom"]
        for row in rows
        if row["verdict"] in ("pass", "weak") and isinstance(row["headroom"], int | float)
    ]
    return max(numbers, default=None)
