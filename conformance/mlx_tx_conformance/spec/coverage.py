"""What the spec leaves out: statements and reports that no clause cites, clauses without a case, and feature values
that no case exercises.

A value counts as exercised by a case that must be refused in no way: only calls with a result count.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .errors import suggestion
from .expand import forms
from .loader import Spec
from .ops import OPS
from .sources import SCOPES


@dataclass(frozen=True)
class Cited:
    """A statement or report, and what cites it: clause ids, or case names where only the case does."""

    id: str
    says: str
    scope: str
    by: tuple[str, ...]


@dataclass(frozen=True)
class FeatureCoverage:
    """A feature of an op: how many cases exercise each of its values."""

    op: str
    feature: str
    values: Mapping[str, int]

    @property
    def missing(self) -> tuple[str, ...]:
        """The values that no case exercises."""
        return tuple(value for value, count in self.values.items() if not count)


@dataclass(frozen=True)
class Coverage:
    """Two-way coverage of one scope (or of all, where ``scope`` is empty)."""

    scope: str
    statements: tuple[Cited, ...]
    reports: tuple[Cited, ...]
    clauses: Mapping[str, int]
    features: tuple[FeatureCoverage, ...]

    @property
    def gaps(self) -> tuple[str, ...]:
        """Every gap in one line; none in a spec that is complete."""
        return (
            *(f"statement {item.id} has no clause: {item.says}" for item in self.statements if not item.by),
            *(f"report {item.id} has no clause or case: {item.says}" for item in self.reports if not item.by),
            *(f"clause {clause} has no case" for clause, count in self.clauses.items() if not count),
            *(f"no case of {f.op} has {f.feature}: {value}" for f in self.features for value in f.missing),
        )

    @property
    def complete(self) -> bool:
        """Whether there is no gap."""
        return not self.gaps

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return {
            "scope": self.scope,
            "complete": self.complete,
            "gaps": list(self.gaps),
            "statements": [_cited(item) for item in self.statements],
            "reports": [_cited(item) for item in self.reports],
            "clauses": dict(self.clauses),
            "features": [{"op": f.op, "feature": f.feature, "values": dict(f.values)} for f in self.features],
        }

    def render(self, format: str = "pretty") -> str:
        """The coverage as text (``pretty``), as Markdown tables (``md``) or as a JSON object (``json``)."""
        if format == "json":
            return json.dumps(self.as_dict(), indent=2, ensure_ascii=False) + "\n"
        if format == "md":
            return _markdown(self)
        if format != "pretty":
            raise ValueError(f"[Coverage.render] format must be pretty, md or json; got {format!r}")
        lines = [f"Coverage of the spec, scope {self.scope or 'all'}"]
        lines += [f"  {name:<12} {share} {what}" for name, share, what in self.summary()]
        return "\n".join([*lines, *(f"  missing: {gap}" for gap in self.gaps)]) + "\n"

    def summary(self) -> tuple[tuple[str, str, str], ...]:
        """What is counted, how much of it is covered, and what that means."""
        values = [count for f in self.features for count in f.values.values()]
        return (
            ("statements", _share([bool(item.by) for item in self.statements]), "have a clause"),
            ("reports", _share([bool(item.by) for item in self.reports]), "have a clause or case"),
            ("clauses", _share([bool(n) for n in self.clauses.values()]), "have a case"),
            ("features", _share([bool(n) for n in values]), "of the values are exercised"),
        )


def _markdown(coverage: Coverage) -> str:
    lines = [f"# Coverage of the spec: {coverage.scope or 'all scopes'}", "", "| | covered | |", "|---|---|---|"]
    lines += [f"| {name} | {share} | {what} |" for name, share, what in coverage.summary()]
    if coverage.gaps:
        lines += ["", "## Missing", "", *(f"- {gap}" for gap in coverage.gaps)]
    for title, items in (("Statements", coverage.statements), ("Reports", coverage.reports)):
        if items:
            lines += ["", f"## {title}", "", "| id | says | cited by |", "|---|---|---|"]
            lines += [f"| {item.id} | {_cell(item.says)} | {', '.join(item.by) or '**nothing**'} |" for item in items]
    if coverage.features:
        lines += ["", "## Feature values", "", "| op | feature | cases for each value |", "|---|---|---|"]
        for f in coverage.features:
            counts = ", ".join(f"{_cell(value)} {count}" for value, count in f.values.items())
            lines.append(f"| {f.op} | {f.feature} | {counts} |")
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    """Text that may stand in a cell of a table."""
    return " ".join(text.split()).replace("|", "\\|")


def _cited(item: Cited) -> dict[str, Any]:
    return {"id": item.id, "says": item.says, "scope": item.scope, "cited_by": list(item.by)}


def _share(found: list[bool]) -> str:
    return f"{sum(found)} of {len(found)}"


def coverage(spec: Spec, scope: str = "") -> Coverage:
    """What of a scope (``attention``, ``model``, ``kernel``; empty: all) the spec covers, and what it leaves out."""
    if scope and scope not in SCOPES:
        raise ValueError(
            f"[coverage] scope must be one of {', '.join(SCOPES)}; got {scope!r}{suggestion(scope, SCOPES)}"
        )
    by_statement, by_report = _citations(spec)
    statements = tuple(
        Cited(f"{s.document} {s.id}", s.says, s.scope, tuple(by_statement.get((s.document, s.id), ())))
        for s in spec.sources.statements.values()
        if scope in ("", s.scope)
    )
    reports = tuple(
        Cited(r.id, r.says, r.scope, tuple(by_report.get(r.id, ())))
        for r in spec.sources.reports.values()
        if scope in ("", r.scope)
    )
    clauses = {clause.id: len(clause.templates) for clause in spec.clauses}
    return Coverage(scope, statements, reports, clauses, _features(spec, scope))


def _citations(spec: Spec) -> tuple[dict[tuple[str, str], dict[str, None]], dict[str, dict[str, None]]]:
    """Who cites which statement and which report, in the order of the spec."""
    statements: dict[tuple[str, str], dict[str, None]] = {}
    reports: dict[str, dict[str, None]] = {}
    for clause in spec.clauses:
        cited = [(clause.id, source) for source in clause.source]
        cited += [
            (f"{template.clause}/{template.name}", source)
            for template in clause.templates
            for source in template.source
            if source not in clause.source
        ]
        for name, source in cited:
            if source.report:
                known = spec.sources.report(source.report)
                reports.setdefault(known.id if known else source.report, {})[name] = None
            elif source.document:
                statements.setdefault((source.document, source.statement), {})[name] = None
    return statements, reports


def _features(spec: Spec, scope: str) -> tuple[FeatureCoverage, ...]:
    counts: dict[tuple[str, str], dict[str, int]] = {
        (op.name, feature.name): dict.fromkeys(feature.values, 0)
        for op in OPS.values()
        if scope in ("", op.scope)
        for feature in op.features
    }
    for case in spec.cases:
        if case.check == "raises":
            continue
        exercised: set[tuple[str, str, str]] = set()
        for form in forms(case):
            op = OPS[form.call["op"]]
            exercised |= {(op.name, feature.name, value) for feature in op.features for value in feature.found(form)}
        for op_name, feature_name, value in exercised:
            values = counts.get((op_name, feature_name), {})
            if value in values:
                values[value] += 1
    return tuple(FeatureCoverage(op, feature, values) for (op, feature), values in counts.items())
