"""New clauses and cases from a template that loads and runs as it is; a file is never left half written."""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path

from .errors import SpecError
from .grammar import read_clause
from .lint import CLAUSE_ID
from .loader import Spec, shown
from .names import KEBAB
from .reader import Document, parse

_CASE = """\
- id: {slug}
  note: Why this case is there.
  # source: [{{report: "project#123"}}]   # a bug report goes into sources.yaml first
  shapes: {{B: 1, N_q: 2, N_kv: 2, T_q: 8, T_kv: 8, D: 32}}
  vary: {{dtype: [float32, float16, bfloat16]}}
  check: equals_oracle
"""
_CLAUSE = """\
# yaml-language-server: $schema=../schema.json
clause: {name}
title: {title}
text: >
  What an implementation must do, in a sentence or two that can be checked.
# What it rests on. A new statement, paper or report goes into sources.yaml first; until then lint says so.
source: [{{document: suite, statement: {name}}}]
defaults:
  call: {{op: attention}}
cases:
"""


def new_case(spec: Spec, clause: str, slug: str) -> tuple[Path, int]:
    """Add a case ``slug`` to the end of a clause's cases; gives the file and the line of the new case.

    Raises :class:`SpecError` for a clause that is not there, for a name that is taken or not in kebab-case, and for a
    file whose cases are not written one below the other.
    """
    found = spec.clause(clause)
    _kebab(slug, "a case")
    if any(template.name == slug for template in found.templates):
        raise SpecError(f"{found.id} has a case {slug!r} already")
    path = spec.root / found.subject / Path(found.file).name
    lines = path.read_text(encoding="utf-8").splitlines()
    margin, place = _end_of_cases(found.document, lines)
    case = [f"{margin}{line}" if line else "" for line in _CASE.format(slug=slug).splitlines()]
    _write(path, "\n".join([*lines[:place], *case, *lines[place:]]) + "\n", shown(spec.root, path), found.subject)
    return path, place + 1


def new_clause(spec: Spec, name: str, subject: str, title: str = "A few words") -> tuple[Path, int]:
    """Write ``<subject>/<name>.yaml`` with a first case; gives the file and the line of that case.

    Raises :class:`SpecError` for an id that is taken or has another form than MSK-1, and for a file that exists.
    """
    if not CLAUSE_ID.fullmatch(name):
        raise SpecError(f"a clause's id is capitals, a hyphen and a number, as MSK-1; got {name!r}")
    _kebab(subject, "a subject")
    taken = next((clause for clause in spec.clauses if clause.id == name), None)
    if taken is not None:
        raise SpecError(f"{name} is there already, in {taken.file}:{taken.line}")
    path = spec.root / subject / f"{name.lower()}.yaml"
    if path.exists():
        raise SpecError(f"{shown(spec.root, path)} is there already")
    text = _CLAUSE.format(name=name, title=_quoted(title))
    case = "".join(f"  {line}\n" for line in _CASE.format(slug="equals-oracle").splitlines())
    path.parent.mkdir(exist_ok=True)
    _write(path, text + case, shown(spec.root, path), subject)
    return path, text.count("\n") + 1


def _kebab(name: str, what: str) -> None:
    if not KEBAB.fullmatch(name):
        raise SpecError(f"{what} is called in kebab-case, as equals-oracle; got {name!r}")


def _quoted(title: str) -> str:
    """A title as YAML: in quotes where it is not plain words."""
    if re.fullmatch(r"[A-Za-z][\w ,.()'-]*", title):
        return title
    escaped = title.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _end_of_cases(document: Document, lines: list[str]) -> tuple[str, int]:
    """The margin of the cases' dashes, and the number of lines before the end of the last case."""
    first = document.lines.get(("cases", 0))
    start = document.line("cases")
    dash = re.match(r"(\s*)-\s", lines[first - 1]) if first is not None and first > start else None
    if dash is None:
        message = "its cases are not written one below the other; add the case by hand"
        raise SpecError(document.finding(message, "cases"))
    below = [line for place, line in document.lines.items() if len(place) == 1 and line > start]
    end = min(below) - 1 if below else len(lines)
    while end > start and (not lines[end - 1].strip() or lines[end - 1].startswith("#")):
        end -= 1
    return dash[1], end


def _write(path: Path, text: str, name: str, subject: str) -> None:
    """Put a text in the place of a file, once it has been seen to load; the file is whole at any time."""
    _, findings = read_clause(parse(text, name), subject)
    if findings:
        raise SpecError(findings)
    descriptor, beside = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        mode = path.stat().st_mode & 0o777 if path.exists() else 0o644
        Path(beside).chmod(mode)
        Path(beside).replace(path)
    except BaseException:
        Path(beside).unlink(missing_ok=True)
        raise
