"""The journal: one JSON object a line. A header, a row for each result as soon as it is known, a footer.

A run that was cut short has no footer, perhaps half a line at its end; a reader says so, and ``resume`` goes on.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from .rows import Row, key

FORMAT = 1
# What two parts of one run must have in common.
IDENTITY = ("spec_hash", "device", "seed", "suite", "versions")


class JournalError(ValueError):
    """A file that is not a journal, or not the one expected; the message names file and line."""


class JournalWriteError(RuntimeError):
    """A journal that cannot be written (any more); the message names the file. What it holds so far can be resumed."""


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
            with _writing(self.path):
                self._file = _open(self.path, "w")
            self._line({"kind": "header", "format": FORMAT, **header})

    def resume(self, journal: Journal) -> None:
        """Go on after the rows of a journal, without its cut line or its footer, in the file of this writer."""
        if self.path is None:
            return
        # The old file stays whole until the new one is: a kill in between loses nothing.
        temporary = self.path.with_name(self.path.name + ".resumed")
        with _writing(self.path):
            with _open(temporary, "w") as file:
                for entry in (journal.header, *journal.rows):
                    file.write(_dump(entry) + "\n")
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(self.path)
            self._file = _open(self.path, "a")

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
            # Every line was flushed, or its failure reported; a full disk would fail once more here.
            with contextlib.suppress(OSError):
                self._file.close()
            self._file = None

    def _line(self, entry: Mapping[str, Any]) -> None:
        if self._file is not None and self.path is not None:
            with _writing(self.path):
                self._file.write(_dump(entry) + "\n")
                self._file.flush()


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise JournalWriteError(f"{path} cannot be written: {error.strerror}") from error


def _open(path: Path, mode: str) -> IO[str]:
    # Half of a surrogate pair, which UTF-8 lacks, is written as the escape by which JSON knows it.
    return path.open(mode, encoding="utf-8", errors="backslashreplace")


def check_resumable(journal: Journal, header: Mapping[str, Any]) -> None:
    """Raise JournalError where a journal is of another spec, device, seed, suite version, of other packages, targets or
    cases, or where a target's code has changed: a report must be of one thing."""
    refused = f"{journal.path} cannot be resumed"
    for name in (*IDENTITY, "targets"):
        before, now = journal.header.get(name), header.get(name)
        if before != now:
            raise JournalError(
                f"{refused}: its {name.replace('_', ' ')} is {_short(before)}, this run's is {_short(now)}"
            )
    hashes = journal.header.get("target_hashes") or {}
    for target, now in header.get("target_hashes", {}).items():
        if hashes.get(target) != now:
            raise JournalError(
                f"{refused}: the code of {target} has changed since (hash {_short(hashes.get(target))}, "
                f"now {_short(now)}); run it anew with --out"
            )
    if journal.header.get("cases_hash") != header.get("cases_hash"):
        raise JournalError(
            f"{refused}: it is a run of {_selected(journal.header)}, and this one is of {_selected(header)}; "
            "--resume without --clause, --dtype and --tag goes on with the journal's own"
        )


def _selected(header: Mapping[str, Any]) -> str:
    """`3 cases (--clause MSK-*)`."""
    chosen = [f"--{name} {text}" for name, texts in (header.get("selection") or {}).items() for text in texts]
    return f"{header.get('cases')} cases ({' '.join(chosen) or 'the whole spec'})"


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
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {item}" for name, item in value.items())
    text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
    return text if len(text) <= 40 else text[:12] + "…"
