"""What the spec consists of: sources, clauses, and cases as they stand in a file and as they are run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .reader import Document, Place


@dataclass(frozen=True)
class Source:
    """What a clause or case rests on: a statement of a document, a place in a paper, or a public bug report."""

    document: str = ""
    statement: str = ""
    paper: str = ""
    where: str = ""
    report: str = ""
    line: int = field(default=0, compare=False)

    def __str__(self) -> str:
        if self.report:
            return self.report
        if self.paper:
            return f"{self.paper}, {self.where}" if self.where else self.paper
        return f"{self.document} {self.statement}"


@dataclass(frozen=True)
class Statement:
    """One sentence of a document that clauses cite. ``scope`` is the part of the product that it belongs to."""

    document: str
    id: str
    says: str
    scope: str
    line: int = field(default=0, compare=False)


@dataclass(frozen=True)
class Paper:
    """A paper that clauses cite by id."""

    id: str
    cite: str
    title: str
    where: str = ""


@dataclass(frozen=True)
class Report:
    """A public bug report, in our words. ``also`` are the ids of reports of the same fault."""

    id: str
    says: str
    scope: str
    also: tuple[str, ...] = ()
    line: int = field(default=0, compare=False)


@dataclass(frozen=True)
class Sources:
    """Everything that may be cited."""

    file: str
    documents: Mapping[str, str]
    statements: Mapping[tuple[str, str], Statement]
    papers: Mapping[str, Paper]
    reports: Mapping[str, Report]

    def report(self, name: str) -> Report | None:
        """The report of this id, or the one of the same fault."""
        found = self.reports.get(name)
        return found or next((report for report in self.reports.values() if name in report.also), None)


@dataclass(frozen=True, eq=False)
class Template:
    """A case as it stands in its file, the clause's defaults merged under it; :func:`~.expand.expand` makes cases.

    ``own`` are the dims that the case sets itself (and does not have from the defaults).
    """

    clause: str
    name: str
    body: Mapping[str, Any]
    own: frozenset[str]
    source: tuple[Source, ...]
    document: Document
    place: Place

    @property
    def file(self) -> str:
        """The file, as messages name it."""
        return self.document.file

    def line(self, *path: str | int) -> int:
        """The line of a key of the case, or of the default that it comes from, or of the case."""
        for place in ((*self.place, *path), ("defaults", *path)):
            if place in self.document.lines:
                return self.document.lines[place]
        return self.line(*path[:-1]) if path else self.document.line(*self.place)


@dataclass(frozen=True, eq=False)
class Clause:
    """A normative sentence or two, what it rests on, and the cases that check it."""

    id: str
    title: str
    text: str
    source: tuple[Source, ...]
    templates: tuple[Template, ...]
    subject: str
    file: str
    line: int
    note: str
    document: Document = field(repr=False)


@dataclass(frozen=True, eq=False)
class Case:
    """One call to pose and the check of its result, complete: every number evaluated, nothing left to choose.

    ``id`` is ``MSK-1/equals-oracle[bfloat16,T_q=9]``, ``clause`` and ``name`` its first two parts and ``params`` what
    stands in the brackets. ``dims`` has every dim. ``call`` holds ``op``, the options that are given, ``outputs`` (a
    tuple), and arrays by the name of an intermediate value of ``let``. ``inputs`` holds ``design`` and the recipes by
    array name. ``check`` and ``check_args`` say what is checked: for ``expect: {raises: ...}`` that is ``raises``, for
    expected values ``equals_oracle`` (the linter holds the values to the oracle). Strings that use the free variable
    of ``same_for`` stay as they are; :func:`~.expand.at` evaluates them.
    """

    id: str
    clause: str
    name: str
    params: Mapping[str, Any]
    dims: Mapping[str, int]
    dtype: str
    call: Mapping[str, Any]
    inputs: Mapping[str, Any]
    layout: Mapping[str, str]
    let: Mapping[str, Mapping[str, Any]]
    steps: tuple[Mapping[str, Any], ...]
    over: Mapping[str, Any]
    check: str
    check_args: Mapping[str, Any]
    expect: Mapping[str, Any] | None
    tags: tuple[str, ...]
    path: str
    seed: int
    source: tuple[Source, ...]
    note: str
    file: str
    line: int
    declared: Mapping[str, Any] = field(repr=False)
    own: frozenset[str] = field(repr=False)

    @property
    def names(self) -> dict[str, Any]:
        """What an expression of this case may use: the dims and the options that are numbers."""
        return {**self.dims, **{k: v for k, v in self.call.items() if isinstance(v, int | float)}}
