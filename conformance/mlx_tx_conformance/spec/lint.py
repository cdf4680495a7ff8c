"""What a clause file should be beyond what can be loaded: every finding with file, line and rule.

``lint(root)`` first reports what keeps files from loading, then, of the clauses that do load: names and places, sources
that nothing defines, cases that cannot be expanded, parts that do nothing, and expected values that the oracle does
not give.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from .check_signatures import CHECKS
from .errors import Finding, SpecError, suggestion
from .expand import expand
from .expr import ExpressionError, parse
from .kinds import EXPRESSION, EXPRESSION_OR_NUMBER
from .loader import SOURCES, load_clauses, shown
from .model import Case, Clause, Sources, Template
from .ops import OPS
from .recipes import INDICES
from .sources import load_sources

CLAUSE_ID = re.compile(r"[A-Z][A-Z0-9]*-(0|[1-9][0-9]*)")
LONGEST_TITLE = 80
LONGEST_ID = 160
# A value that is written out must be the oracle's to a float32's last place.
RELATIVE, ABSOLUTE = 2.0**-23, 2.0**-30

Values = Callable[[Case], Mapping[str, np.ndarray]]


def lint(root: Path | str, oracle: Values | None = None) -> list[Finding]:
    """Every finding about the spec under ``root``, sorted by file and line; none for a spec in order.

    ``oracle`` gives the outputs of a case (by default :func:`evaluate_with_oracle`).
    """
    folder = Path(root)
    findings: list[Finding] = list(_strays(folder))
    sources: Sources | None = None
    try:
        sources = load_sources(folder / SOURCES, shown(folder, folder / SOURCES))
    except SpecError as error:
        findings += error.findings
    clauses, faults = load_clauses(folder)
    findings += faults
    for clause in clauses.values():
        findings += _clause(clause)
        if sources is not None:
            findings += _sources(clause, sources)
        for template in clause.templates:
            findings += _template(template)
            try:
                cases = expand(template)
            except SpecError as error:
                findings += error.findings
                continue
            findings += _cases(template, cases, oracle or evaluate_with_oracle)
    return sorted(set(findings))


def evaluate_with_oracle(case: Case) -> Mapping[str, np.ndarray]:
    """The outputs of a case as the float64 oracle gives them."""
    from ..bounds import bound_call
    from ..inputs import build_call

    bounds = bound_call(build_call(case), "f32-internal")
    return {name: bound.value for name, bound in bounds.items()}


def _strays(root: Path) -> Iterator[Finding]:
    """YAML files that the loader does not look at, so that no clause is lost by its place or its ending."""
    for path in sorted((*root.rglob("*.yaml"), *root.rglob("*.yml"))):
        depth = len(path.relative_to(root).parts)
        if path.suffix == ".yml":
            yield Finding(shown(root, path), 1, "is not loaded; its name must end in .yaml", "place")
        elif depth != 2 and path != root / SOURCES:
            yield Finding(shown(root, path), 1, "is not loaded; a clause lies in <subject>/<clause>.yaml", "place")


def _clause(clause: Clause) -> Iterator[Finding]:
    document = clause.document
    if not CLAUSE_ID.fullmatch(clause.id):
        message = f"a clause's id is capitals, a hyphen and a number, as MSK-1; got {clause.id!r}"
        yield document.finding(message, "clause", rule="id")
    expected = f"{clause.id.lower()}.yaml"
    if Path(clause.file).name != expected:
        yield document.finding(f"the file of {clause.id} is called {expected}", "clause", rule="place")
    if len(clause.title) > LONGEST_TITLE:
        message = f"the title has {len(clause.title)} characters; at most {LONGEST_TITLE}"
        yield document.finding(message, "title", rule="title")
    if clause.title.endswith("."):
        yield document.finding("a title has no full stop", "title", rule="title")
    if not clause.templates:
        yield document.finding(f"no case checks {clause.id}", "cases", rule="empty")


def _sources(clause: Clause, sources: Sources) -> Iterator[Finding]:
    """Sources that sources.yaml does not define."""
    cited = [*clause.source, *(s for t in clause.templates for s in t.source if s not in clause.source)]
    for source in cited:
        problem = ""
        if source.report and sources.report(source.report) is None:
            problem = f"unknown report {source.report!r}{suggestion(source.report, sources.reports)}"
        elif source.paper and source.paper not in sources.papers:
            problem = f"unknown paper {source.paper!r}{suggestion(source.paper, sources.papers)}"
        elif source.document and source.document not in sources.documents:
            problem = f"unknown document {source.document!r}{suggestion(source.document, sources.documents)}"
        elif source.document and (source.document, source.statement) not in sources.statements:
            known = [statement for document, statement in sources.statements if document == source.document]
            problem = f"{source.document} has no statement {source.statement!r}{suggestion(source.statement, known)}"
        if problem:
            yield Finding(clause.file, source.line, f"{problem} (in {SOURCES})", "source")


def _template(template: Template) -> Iterator[Finding]:
    """Parts of a case that do nothing."""

    def finding(message: str, *path: str | int, rule: str, hint: str = "") -> Finding:
        return Finding(template.file, template.line(*path), f"{message} in case {template.name!r}{hint}", rule)

    body = template.body
    for section in ("vary", "pairwise"):
        for key, values in (body.get(section) or {}).items():
            if len(values) == 1:
                message = f"{key!r} varies over one value only; say it where it belongs"
                yield finding(message, section, key, rule="vary")
    if len(body.get("pairwise") or {}) == 1:
        yield finding("pairwise of one key is the same as vary", "pairwise", rule="vary")
    used = _words({key: value for key, value in body.items() if key != "let"})
    lines = dict(body.get("let") or {})
    for name in reversed(lines):
        if name not in used:
            yield finding(f"let {name!r} is not used", "let", name, rule="unused")
        used |= _words(lines[name])
    for name, arguments in (body.get("check") or {}).items():
        if CHECKS[name].variable:
            yield from _variables(
                template, name, arguments, _words(body.get("let")) | _words(body.get("call")), finding
            )


def _variables(
    template: Template, check: str, arguments: Mapping[str, Any], words: set[str], finding: Any
) -> Iterator[Finding]:
    op = OPS[(template.body.get("call") or {}).get("op", "attention")]
    for name in arguments:
        known = name in CHECKS[check].arguments or name in op.options or name == "layout"
        if not known and name not in words:
            near = suggestion(name, (*op.options, "layout"))
            message = f"nothing uses the variable {name!r} of {check}"
            yield finding(message, "check", check, name, rule="unused", hint=near)


def _words(value: Any) -> set[str]:
    """The names in every string of a value."""
    if isinstance(value, str):
        return set(re.findall(r"[A-Za-z_]\w*", value))
    if isinstance(value, Mapping):
        return {word for item in value.values() for word in _words(item)}
    if isinstance(value, list):
        return {word for item in value for word in _words(item)}
    return set()


def _cases(template: Template, cases: tuple[Case, ...], oracle: Values) -> Iterator[Finding]:
    """Findings about the expanded cases; the first of a kind stands for all."""
    longest = max(cases, key=lambda case: len(case.id))
    if len(longest.id) > LONGEST_ID:
        yield Finding(template.file, longest.line, f"an id of {len(longest.id)} characters: {longest.id}", "id")
    seen: set[str] = set()
    for case in cases:
        for finding in (*_expressions(template, case), *_design(template, case), *_expected(template, case, oracle)):
            if finding.message not in seen:
                seen.add(finding.message)
                yield finding


def _expressions(template: Template, case: Case) -> Iterator[Finding]:
    """Expressions that are evaluated in a run only, held to the names that they will find there."""
    known = {*case.names, *INDICES, "p", *CHECKS[case.check].names}
    signature = CHECKS[case.check]
    for name, argument in signature.arguments.items():
        value = case.check_args.get(name)
        if isinstance(value, str) and argument.kind in (EXPRESSION, EXPRESSION_OR_NUMBER):
            yield from _unknown(template, value, known, "check", case.check, name)
    recipes = [case.inputs, *(step.get("inputs") or {} for step in case.steps)]
    if isinstance(case.check_args.get("with"), Mapping):
        recipes.append(case.check_args["with"].get("inputs") or {})
    for inputs in recipes:
        for name, recipe in inputs.items():
            for key in ("where", "formula"):
                if isinstance(recipe, Mapping) and isinstance(recipe.get(key), str):
                    yield from _unknown(template, recipe[key], known - {"p"}, "inputs", name, key)


def _unknown(template: Template, text: str, known: set[str], *path: str) -> Iterator[Finding]:
    try:
        names = parse(text).names
    except ExpressionError as error:
        yield Finding(template.file, template.line(*path), f"{error} in case {template.name!r}", "expression")
        return
    for name, column in names.items():
        if name not in known:
            near = suggestion(name, sorted(known))
            message = f"unknown name {name!r} in {text!r}, column {column}, in case {template.name!r}{near}"
            yield Finding(template.file, template.line(*path), message, "expression")


def _design(template: Template, case: Case) -> Iterator[Finding]:
    """A design, and its parameters, that nothing makes."""
    chosen = case.inputs.get("design")
    if chosen is None:
        return
    from ..inputs import DESIGNS

    (name, parameters) = next(iter(chosen.items())) if isinstance(chosen, Mapping) else (chosen, {})
    line = (
        template.line("inputs", "design")
        if "design" in (template.body.get("inputs") or {})
        else template.line("vary", "design")
    )
    if name not in DESIGNS:
        message = f"unknown design {name!r} in case {template.name!r}{suggestion(name, DESIGNS)}"
        yield Finding(template.file, line, message, "design")
        return
    for parameter in parameters or {}:
        if parameter not in DESIGNS[name].parameters:
            near = suggestion(parameter, DESIGNS[name].parameters)
            message = f"the design {name} has no parameter {parameter!r} in case {template.name!r}{near}"
            yield Finding(template.file, line, message, "design")


def _expected(template: Template, case: Case, oracle: Values) -> Iterator[Finding]:
    """Expected values that the oracle does not give."""
    if case.expect is None or "raises" in case.expect:
        return

    def finding(message: str, name: str) -> Finding:
        return Finding(template.file, template.line("expect", name), f"{message} in case {template.name!r}", "expect")

    try:
        values = oracle(case)
    except Exception as error:  # whatever the oracle refuses is a finding about the case
        yield finding(f"the oracle refuses the case: {error}", next(iter(case.expect)))
        return
    for name, written in case.expect.items():
        try:
            expected = np.array(written, dtype=np.float64)
        except (TypeError, ValueError):
            yield finding(f"the expected {name} is no array of numbers", name)
            continue
        actual = np.asarray(values[name], dtype=np.float64)
        if actual.shape != expected.shape:
            yield finding(f"the expected {name} has shape {expected.shape}; the oracle's has {actual.shape}", name)
            continue
        with np.errstate(invalid="ignore"):
            near = np.isfinite(actual) & (np.abs(expected - actual) <= RELATIVE * np.abs(actual) + ABSOLUTE)
        off = ~(near | (expected == actual) | (np.isnan(expected) & np.isnan(actual)))
        if off.any():
            index = tuple(int(n) for n in np.argwhere(off)[0])
            place = ",".join(map(str, index))
            yield finding(
                f"{name}[{place}] is written as {expected[index]:.9g}; the oracle gives {actual[index]:.9g}", name
            )
