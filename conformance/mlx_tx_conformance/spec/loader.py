"""Loading the spec: every clause file under a folder, all faults reported at once."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path

from ..data import spec_root
from .errors import Finding, SpecError, suggestion
from .expand import expand
from .grammar import read_clause
from .model import Case, Clause, Sources
from .reader import read
from .sources import load_sources

SOURCES = "sources.yaml"


class Spec:
    """The clauses of a folder and what they cite. Cases are expanded when they are first asked for."""

    def __init__(self, root: Path, clauses: tuple[Clause, ...], sources: Sources) -> None:
        self.root = root
        self.clauses = clauses
        self.sources = sources
        self._by_id = {clause.id: clause for clause in clauses}
        self._expanded: dict[str, tuple[Case, ...]] = {}

    def __repr__(self) -> str:
        return f"Spec({str(self.root)!r}, {len(self.clauses)} clauses)"

    def clause(self, name: str) -> Clause:
        """The clause of this id. Raises SpecError with the nearest id otherwise."""
        if name not in self._by_id:
            raise SpecError(f"no clause {name!r}{suggestion(name, self._by_id)}")
        return self._by_id[name]

    def cases_of(self, clause: Clause | str) -> tuple[Case, ...]:
        """The cases of one clause, expanded."""
        clause = self.clause(clause) if isinstance(clause, str) else clause
        if clause.id not in self._expanded:
            findings: list[Finding] = []
            cases: list[Case] = []
            for template in clause.templates:
                try:
                    cases += expand(template)
                except SpecError as error:
                    findings += error.findings
            if findings:
                raise SpecError(findings)
            self._expanded[clause.id] = tuple(cases)
        return self._expanded[clause.id]

    @cached_property
    def cases(self) -> tuple[Case, ...]:
        """All cases, clause by clause. Raises SpecError with every case that cannot be expanded."""
        findings: list[Finding] = []
        cases: list[Case] = []
        for clause in self.clauses:
            try:
                cases += self.cases_of(clause)
            except SpecError as error:
                findings += error.findings
        if findings:
            raise SpecError(findings)
        return tuple(cases)

    def case(self, name: str) -> Case:
        """The case of this id; only its clause is expanded. Raises SpecError with the nearest id otherwise."""
        cases = self.cases_of(name.partition("/")[0])
        for case in cases:
            if case.id == name:
                return case
        raise SpecError(f"no case {name!r}{suggestion(name, (case.id for case in cases))}")

    def select(self, globs: Iterable[str] = ()) -> tuple[Case, ...]:
        """The cases that any glob selects, in the order of the spec; all without globs.

        ``MSK-*`` selects clauses; with a slash a glob is held to the case's id, where ``MSK-1/equals-oracle`` selects
        every case of that name. Brackets are ordinary characters; ``*`` and ``?`` stand for any characters and any one.
        Raises SpecError for a glob that selects nothing.
        """
        globs = tuple(globs)
        chosen: dict[str, Case] = {}
        for glob in globs:
            clauses = [clause for clause in self.clauses if _matches(clause.id, glob.partition("/")[0])]
            found = [case for clause in clauses for case in self.cases_of(clause) if _selects(glob, case)]
            if not found:
                names = [clause.id for clause in self.clauses]
                names += [f"{t.clause}/{t.name}" for clause in self.clauses for t in clause.templates]
                raise SpecError(f"no case matches {glob!r}{suggestion(glob, names)}")
            chosen |= {case.id: case for case in found}
        return tuple(case for case in self.cases if case.id in chosen) if globs else self.cases


def _matches(text: str, glob: str) -> bool:
    pattern = "".join({"*": ".*", "?": "."}.get(c, re.escape(c)) for c in glob)
    return re.fullmatch(pattern, text, re.IGNORECASE | re.DOTALL) is not None


def _selects(glob: str, case: Case) -> bool:
    if "/" not in glob:
        return _matches(case.clause, glob)
    return _matches(case.id, glob) or _matches(f"{case.clause}/{case.name}", glob)


def load_spec(root: Path | str | None = None) -> Spec:
    """Load the spec under ``root`` (the installed one by default).

    Raises :class:`SpecError` with every fault in every file, each with file and line.
    """
    folder = spec_root() if root is None else Path(root)
    if not folder.is_dir():
        raise SpecError(f"no folder {folder}")
    findings: list[Finding] = []
    name = shown(folder, folder / SOURCES)
    sources = Sources(name, {}, {}, {}, {})
    try:
        sources = load_sources(folder / SOURCES, name)
    except SpecError as error:
        findings += error.findings
    clauses, faults = load_clauses(folder)
    findings += faults
    if findings:
        raise SpecError(findings)
    return Spec(folder, tuple(clauses.values()), sources)


def load_clauses(root: Path) -> tuple[Mapping[str, Clause], list[Finding]]:
    """The clauses of the files that can be read, in the order of their paths, and the faults of the others."""
    clauses: dict[str, Clause] = {}
    findings: list[Finding] = []
    for path in clause_files(root):
        name = shown(root, path)
        if path.parent.is_symlink():
            findings.append(Finding(name, 1, "lies in a folder that is a symbolic link", "file"))
            continue
        try:
            clause, faults = read_clause(read(path, name), path.parent.name)
        except SpecError as error:
            findings += error.findings
            continue
        findings += faults
        if clause is None:
            continue
        if clause.id in clauses:
            first = clauses[clause.id]
            message = f"the clause {clause.id} is there twice (first in {first.file}:{first.line})"
            findings.append(Finding(clause.file, clause.line, message, "unique"))
            continue
        clauses[clause.id] = clause
    return clauses, findings


def clause_files(root: Path) -> list[Path]:
    """The files that hold clauses: ``<subject>/<clause>.yaml``, sorted with numbers in their order."""
    found = (path for path in root.glob("*/*.yaml") if not path.name.startswith("."))
    return sorted(found, key=lambda path: (path.parent.name, _in_order(path.stem)))


def _in_order(name: str) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name) if part]


def shown(root: Path, path: Path) -> str:
    """A path as messages name it: from the spec's folder on."""
    return f"{root.name or root.resolve().name}/{path.relative_to(root).as_posix()}"


def spec_hash(root: Path) -> str:
    """A sha256 of everything that decides what the cases are: names and bytes of every YAML file."""
    digest = hashlib.sha256()
    for path in [*clause_files(root), root / SOURCES]:
        digest.update(path.relative_to(root).as_posix().encode() + b"\0")
        digest.update(path.read_bytes() + b"\0")
    return digest.hexdigest()
