"""The report as Markdown: the support matrix, clause by target, and what differs where."""

from __future__ import annotations

from ..ledger import ledger_table
from ..runner.result import Run
from .table import column_title, conclusion, header_line, matrix, remarks

MARKS = {"pass": "✅", "weak": "🟡", "waived": "🟡", "fail": "❌", "error": "💥", "unsupported": "–"}


def render(run: Run) -> str:
    """Header, matrix, ledger and verdict counts."""
    columns = run.columns
    lines = ["# Conformance", ""]
    lines += [f"- {line}" for line in (*map(header_line, run.headers), *remarks(run))]
    lines += ["", "| clause | " + " | ".join(_cell(column_title(c)) for c in columns) + " |"]
    lines += ["|---" * (len(columns) + 1) + "|"]
    for clause, cells in matrix(run).items():
        found = [cells.get(column) for column in columns]
        texts = ["" if cell is None else f"{MARKS[cell.verdict]} {_said(cell.text)}".strip() for cell in found]
        lines.append(f"| {clause} | " + " | ".join(texts) + " |")
    lines += ["", "✅ passes, 🟡 passes with a remark (weak or waived), ❌ fails, 💥 errored, – unsupported", ""]
    ledger = ledger_table(run)
    if ledger:
        lines += ["## Who differs", "", *ledger, ""]
    lines += [conclusion(run), ""]
    return "\n".join(lines)


def _said(text: str) -> str:
    return "" if text == "unsupported" else text


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
