"""The journal: one JSON object a line. A header, a row for each result as soon as it is known, a footer.

A run that was cut short has no footer, perhaps half a line at its end; a reader says so, and ``resume`` goes on.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from .rows import Row, key

FORMAT = 1
# What two parts of one run must have in common.
IDENTITY = ("spec_hash", "device", "seed", "suite")


class JournalError(ValueError):
    """A file that is not a journal, or not the one expected; the message names file and line."""


@dataclass(frozen=True)
class Journal:
    """A journal read back. ``truncated`` says what is missing at its end, or is empty."""

    path: Path | None
    header: Mapping[str, Any]
    rows: list[Row]
    footer: Mapping[str, Any] | None = None
    truncated: str = ""


def read_journal(path: Path) -> Journal:
    """Read a journal. Raises JournalError for anything but a cut end."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise JournalError(f"{path}: {error.strerror}") from error
    lines = text.split("\n")
    unfinished = lines.pop()  # what follows the last newline: nothing, or half a line
    header: Mapping[str, Any] | None = None
    footer: Mapping[str, Any] | None = None
    rows: list[Row] = []
    seen: set[tuple[str, str, str]] = set()
    for number, line in enumerate(lines, 1):
        entry = _parse(path, number, line)
        kind = entry.get("kind")
        if header is None:
            if kind != "header" or entry.get("format") != FORMAT:
                raise JournalError(f"{path}:1: no header of a journal (format {FORMAT})")
            header = entry
        elif footer is not None:
            raise JournalError(f"{path}:{number}: a line after the footer")
        elif kind == "result":
            if key(entry) in seen:
                raise JournalError(f"{path}:{number}: {entry['case']} on {entry['target']} occurs twice")
            seen.add(key(entry))
            rows.append(entry)
        elif kind == "footer":
            footer = entry
        else:
            raise JournalError(f"{path}:{number}: a line of unknown kind {kind!r}")
    if header is None:
        raise JournalError(f"{path}: empty; no run got far enough to write its header")
    truncated = ""
    if footer is None:
        truncated = "half a line at the end" if unfinished else "no footer"
    elif unfinished:
        raise JournalError(f"{path}: a line after the footer")
    return Journal(path, header, rows, footer, truncated)


@dataclass
class JournalWriter:
    """Writes a journal; ``path=None`` writes nothing. Every line is flushed."""

    path: Path | None
    _file: IO[str] | None = field(default=None, repr=False)

    def start(self, header: Mapping[str, Any]) -> None:
        """Begin a new journal (an existing file is replaced)."""
        if self.path is not None:
            self._file = self.path.open("w", encoding="utf-8")
            self._line({"kind": "header", "format": FORMAT, **header})

    def resume(self, journal: Journal) -> None:
        """Go on after the rows of a journal, without its cut line or its footer, in the file of this writer."""
        if self.path is None:
            return
        # The old file stays whole until the new one is: a kill in between loses nothing.
        temporary = self.path.with_name(self.path.name + ".resumed")
        with temporary.open("w", encoding="utf-8") as file:
            for entry in (journal.header, *journal.rows):
                file.write(_dump(entry) + "\n")
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(self.path)
        self._file = self.path.open("a", encoding="utf-8")

    def row(self, row: Row) -> None:
        """Write one result."""
        self._line(row)

    def finish(self, footer: Mapping[str, Any]) -> None:
        """Write the footer: from here on the run counts as complete."""
        self._line({"kind": "footer", **footer})
        self.close()

    def close(self) -> None:
        """Close the file, as it is."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _line(self, entry: Mapping[str, Any]) -> None:
        if self._file is not None:
            self._file.write(_dump(entry) + "\n")
            self._file.flush()


def check_resumable(journal: Journal, header: Mapping[str, Any]) -> None:
    """Raise JournalError where a journal is of another spec, device, seed, suite version or set of targets."""
    for name in (*IDENTITY, "targets"):
        before, now = journal.header.get(name), header.get(name)
        if before != now:
            raise JournalError(
                f"{journal.path} cannot be resumed: its {name.replace('_', ' ')} is {_short(before)}, "
                f"this run's is {_short(now)}"
            )


def _parse(path: Path, number: int, line: str) -> dict[str, Any]:
    try:
        entry = json.loads(line)
    except json.JSONDecodeError as error:
        raise JournalError(f"{path}:{number}: not JSON ({error.msg})") from error
    if not isinstance(entry, dict):
        raise JournalError(f"{path}:{number}: not an object")
    return entry


def _dump(entry: Mapping[str, Any]) -> str:
    return json.dumps(entry, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def _short(value: Any) -> str:
    text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
    return text if len(text) <= 40 else text[:12] + "…"
