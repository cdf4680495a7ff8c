"""``sources.yaml``: the documents and their statements, the papers, and the bug reports that clauses cite."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .errors import Finding, SpecError, suggestion
from .model import Paper, Report, Sources, Statement
from .reader import Document, read

SCOPES = ("attention", "model", "kernel", "checkpoint")
_TOP = ("documents", "papers", "reports")
_DOCUMENT = ("id", "title", "statements")
_STATEMENT = ("id", "scope", "says")
_PAPER = ("id", "cite", "title", "where")
_REPORT = ("id", "scope", "says", "also")


def load_sources(path: Path, name: str) -> Sources:
    """Read the file. Raises :class:`SpecError` with every fault found."""
    reader = _Reader(read(path, name))
    sources = reader.sources()
    if reader.findings:
        raise SpecError(reader.findings)
    return sources


class _Reader:
    def __init__(self, document: Document) -> None:
        self.document = document
        self.findings: list[Finding] = []

    def add(self, message: str, *place: str | int) -> None:
        self.findings.append(self.document.finding(message, *place, rule="sources"))

    def sources(self) -> Sources:
        top = self.document.value
        if not isinstance(top, Mapping):
            self.add("must be a mapping of documents, papers and reports")
            top = {}
        self.keys(top, _TOP, "the sources")
        documents: dict[str, str] = {}
        statements: dict[tuple[str, str], Statement] = {}
        for n, entry in self.entries(top.get("documents", []), _DOCUMENT, ("id", "title"), "documents"):
            if not self.twice(documents, entry["id"], "documents", n):
                documents[entry["id"]] = entry["title"]
            place = ("documents", n, "statements")
            for m, item in self.entries(entry.get("statements", []), _STATEMENT, _STATEMENT, *place):
                self.scope(item["scope"], *place, m)
                key = (entry["id"], item["id"])
                if not self.twice(statements, key, *place, m):
                    line = self.document.line(*place, m)
                    statements[key] = Statement(entry["id"], item["id"], item["says"].strip(), item["scope"], line)
        papers: dict[str, Paper] = {}
        for n, entry in self.entries(top.get("papers", []), _PAPER, ("id", "cite", "title"), "papers"):
            if not self.twice(papers, entry["id"], "papers", n):
                papers[entry["id"]] = Paper(entry["id"], entry["cite"], entry["title"], entry.get("where", ""))
        return Sources(self.document.file, documents, statements, papers, self.reports(top.get("reports", [])))

    def reports(self, value: Any) -> dict[str, Report]:
        reports: dict[str, Report] = {}
        taken: dict[str, int] = {}
        for n, entry in self.entries(value, _REPORT, ("id", "scope", "says"), "reports"):
            self.scope(entry["scope"], "reports", n)
            also = entry.get("also", [])
            if not isinstance(also, list) or not all(isinstance(item, str) for item in also):
                self.add("also must be a list of report ids", "reports", n, "also")
                also = []
            for name in (entry["id"], *also):
                if not self.twice(taken, name, "reports", n):
                    taken[name] = n
            line = self.document.line("reports", n)
            reports.setdefault(
                entry["id"], Report(entry["id"], entry["says"].strip(), entry["scope"], tuple(also), line)
            )
        return reports

    def keys(self, value: Mapping[str, Any], known: tuple[str, ...], where: str, *place: str | int) -> None:
        for key in value:
            if key not in known:
                self.add(f"unknown key {key!r} in {where}{suggestion(key, known)}", *place, key)

    def entries(
        self, value: Any, known: tuple[str, ...], needed: tuple[str, ...], *place: str | int
    ) -> list[tuple[int, Mapping[str, Any]]]:
        """The entries of a list that have what they need, with their place in it."""
        if not isinstance(value, list):
            self.add(f"{place[-1]} must be a list", *place)
            return []
        found = []
        for n, entry in enumerate(value):
            if not isinstance(entry, Mapping):
                self.add(f"an entry of {place[-1]} is a mapping; got {entry!r:.60}", *place, n)
                continue
            self.keys(entry, known, f"an entry of {place[-1]}", *place, n)
            missing = [key for key in needed if not (isinstance(entry.get(key), str) and entry[key].strip())]
            if missing:
                self.add(f"an entry of {place[-1]} needs {', '.join(missing)} as text", *place, n)
            else:
                found.append((n, entry))
        return found

    def scope(self, scope: str, *place: str | int) -> None:
        if scope not in SCOPES:
            self.add(f"unknown scope {scope!r}{suggestion(scope, SCOPES)}", *place, "scope")

    def twice(self, known: Mapping[Any, Any], key: Any, *place: str | int) -> bool:
        if key not in known:
            return False
        name = " ".join(key) if isinstance(key, tuple) else key
        self.add(f"{name!r} is there twice", *place, "id")
        return True
