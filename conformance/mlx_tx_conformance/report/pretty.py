"""The report for a terminal: a table of clauses, then every failure with what to type next."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections import defaultdict
from io import StringIO

from ..runner.result import Run
from ..runner.rows import Row
from .table import column_title, conclusion, explain_command, header_line, matrix, remarks, worst_headroom

# Failures shown in full for each clause and target; the journal has them all.
MOST_SHOWN = 3
STYLES = {
    "fail": "red",
    "error": "magenta",
    "weak": "yellow",
    "waived": "yellow",
    "pass": "green",
    "unsupported": "dim",
}


def render(run: Run) -> str:
    """The report as plain text."""
    parts = [*(header_line(header) for header in run.headers), *remarks(run), "", _plain_table(run)]
    failures = failure_lines(run)
    if failures:
        parts += ["", *failures]
    return "\n".join([*parts, "", conclusion(run), ""])


def show(run: Run) -> None:
    """Print the report: with colour where rich is installed and stdout is a terminal that wants it."""
    if not wants_colour():
        sys.stdout.write(render(run))
        return
    from rich.console import Console

    console = Console(highlight=False)
    for header in run.headers:
        console.print(header_line(header), style="dim", markup=False)
    for remark in remarks(run):
        console.print(remark, style="yellow", markup=False)
    console.print()
    console.print(_rich_table(run))
    for line in failure_lines(run):
        style = next((STYLES[word] for word in ("fail", "error") if line.startswith(word)), "")
        console.print(line, style=style, markup=False, soft_wrap=True)
    console.print()
    console.print(conclusion(run), style="bold green" if run.exit_code == 0 else "bold red", markup=False)


def wants_colour() -> bool:
    """Whether to print with rich: it is there, stdout is a terminal, and NO_COLOR is not set."""
    return not os.environ.get("NO_COLOR") and sys.stdout.isatty() and importlib.util.find_spec("rich") is not None


def failure_lines(run: Run) -> list[str]:
    """Every failing case: verdict, case, target, message, and the command that explains it."""
    groups: dict[tuple[str, str, str], list[Row]] = defaultdict(list)
    for row in run.rows:
        if row["verdict"] in ("fail", "error"):
            groups[row["clause"], row["target"], row["device"]].append(row)
    lines: list[str] = []
    for rows in groups.values():
        for row in rows[:MOST_SHOWN]:
            lines += [f"{row['verdict']:5}  {row['case']}  on {column_title((row['target'], row['device']))}"]
            lines += [f"       {line}" for line in row["message"].splitlines()]
            if row["clause"] != "waivers":
                lines += [f"       {explain_command(row)}"]
        if len(rows) > MOST_SHOWN:
            lines += [f"       … and {len(rows) - MOST_SHOWN} more of {rows[0]['clause']} on {rows[0]['target']}"]
    return lines


def _cells(run: Run) -> tuple[list[str], list[tuple[str, list[tuple[str, str]], str]]]:
    """Titles, and for each clause its name, (text, verdict) by column, and the largest headroom."""
    rows = []
    by_clause: dict[str, list[Row]] = defaultdict(list)
    for row in run.rows:
        by_clause[row["clause"]].append(row)
    for clause, cells in matrix(run).items():
        found = [cells.get(column) for column in run.columns]
        worst = worst_headroom(by_clause[clause])
        texts = [("–", "unsupported") if cell is None else (cell.text, cell.verdict) for cell in found]
        rows.append((clause, texts, "" if worst is None else f"{worst:.2g}"))
    return ["clause", *(column_title(column) for column in run.columns), "headroom"], rows


def _plain_table(run: Run) -> str:
    titles, rows = _cells(run)
    table = [titles, *([clause, *(text for text, _ in cells), worst] for clause, cells, worst in rows)]
    widths = [max(len(line[n]) for line in table) for n in range(len(titles))]
    out = StringIO()
    for number, line in enumerate(table):
        out.write("  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip() + "\n")
        if number == 0:
            out.write("  ".join("-" * width for width in widths) + "\n")
    return out.getvalue().rstrip("\n")


def _rich_table(run: Run) -> object:
    from rich.table import Table
    from rich.text import Text

    titles, rows = _cells(run)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in titles:
        table.add_column(title)
    for clause, cells, worst in rows:
        table.add_row(clause, *(Text(text, style=STYLES[verdict]) for text, verdict in cells), worst)
    return table
