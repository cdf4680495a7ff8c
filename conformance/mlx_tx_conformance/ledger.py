"""The ledger of divergences: which target breaks which clause, from runs alone, never from memory."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from .runner.result import Run
from .runner.rows import Row


@dataclass(frozen=True)
class Divergence:
    """A clause that a target breaks: in how many of the cases that ran, with the first as the example."""

    clause: str
    target: str
    device: str
    failed: int
    ran: int
    case: str
    message: str


def divergences(run: Run) -> list[Divergence]:
    """Every (clause, target) with a failure (waived ones too: a waiver hides nothing here)."""
    groups: dict[tuple[str, str, str], list[Row]] = defaultdict(list)
    for row in run.rows:
        groups[row["clause"], row["target"], row["device"]].append(row)
    found = []
    for (clause, target, device), rows in groups.items():
        failed = [row for row in rows if row["verdict"] in ("fail", "waived")]
        ran = [row for row in rows if row["verdict"] != "unsupported"]
        if failed:
            first = failed[0]
            found.append(Divergence(clause, target, device, len(failed), len(ran), first["case"], first["message"]))
    return found


def ledger_table(run: Run) -> list[str]:
    """The ledger as the lines of a Markdown table (none where nobody differs)."""
    found = divergences(run)
    if not found:
        return []
    lines = ["| clause | target | cases | for example |", "|---|---|---|---|"]
    for entry in found:
        message = " ".join(entry.message.split()).replace("|", "\\|")
        lines.append(
            f"| {entry.clause} | {entry.target}, {entry.device} | {entry.failed} of {entry.ran} | "
            f"`{entry.case}`: {message} |"
        )
    return lines
