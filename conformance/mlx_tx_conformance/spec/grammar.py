"""The structure of a clause file: which keys there are, what they hold, and what they may be called."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .check_signatures import CHECKS
from .errors import Finding, suggestion
from .merge import OWN, Body, merge
from .model import Clause, Source, Template
from .names import KEBAB, NameCheck
from .ops import DEFAULT_OP, OPS, Op
from .reader import Document

CLAUSE_KEYS: Mapping[str, str] = {
    "clause": "The clause's id, as MSK-1.",
    "title": "A few words.",
    "text": "The normative words.",
    "source": "What the clause rests on: statements of documents, papers, bug reports.",
    "note": "A remark that is not normative.",
    "defaults": "What every case of the file begins with.",
    "cases": "The cases that check the clause.",
}
CASE_KEYS: Mapping[str, str] = {
    "id": "Name of the case, unique in the clause, in kebab-case.",
    "note": "Why the case is there.",
    "source": "What the case rests on, besides the clause's sources.",
    "shapes": "Dims: numbers, or expressions over other dims.",
    "dtype": "dtype of the floating inputs; float32 where absent.",
    "call": "The op, its options, and the outputs wanted.",
    "inputs": "A design, and recipes or written values by array.",
    "layout": "How inputs lie in memory: one word, or by array.",
    "vary": "Values of several keys, every combination a case.",
    "pairwise": "Values of several keys, every pair in some case.",
    "only_if": "Combinations for which this does not hold are dropped.",
    "let": "Intermediate values, each a call, by name.",
    "steps": "Several forms of the call, one after another.",
    "over": "A figure, and the sizes that it is measured over.",
    "check": "What is checked.",
    "expect": "The outputs written out, or the error that must be raised.",
    "tags": "Words to select cases by.",
    "path": "The path that must have run.",
    "seed": "Another seed for the inputs.",
}
DEFAULT_KEYS = tuple(key for key in CASE_KEYS if key not in ("id", "source", "note"))
SOURCE_FORMS: tuple[tuple[frozenset[str], frozenset[str]], ...] = (
    (frozenset({"document", "statement"}), frozenset()),
    (frozenset({"paper"}), frozenset({"where"})),
    (frozenset({"report"}), frozenset()),
)


def read_clause(document: Document, subject: str) -> tuple[Clause | None, list[Finding]]:
    """The clause of a document, or the faults that keep it from being one."""
    return _ClauseReader(document).read(subject)


class _ClauseReader:
    def __init__(self, document: Document) -> None:
        self.document = document
        self.findings: list[Finding] = []

    def add(self, message: str, *place: str | int) -> None:
        self.findings.append(self.document.finding(message, *place))

    def keys(self, value: Mapping[str, Any], known: Any, where: str, *place: str | int) -> None:
        for key in value:
            if key not in known:
                self.add(f"unknown key {key!r} in {where}{suggestion(key, known)}", *place, key)

    def text(self, value: Any, what: str, *place: str | int) -> str:
        if isinstance(value, str) and value.strip():
            return value.strip()
        self.add(f"{what} must be a text; got {value!r:.60}", *place)
        return ""

    def read(self, subject: str) -> tuple[Clause | None, list[Finding]]:
        top = self.document.value
        if not isinstance(top, Mapping):
            self.add("a clause file is a mapping of clause, title, text, source and cases")
            return None, self.findings
        self.keys(top, CLAUSE_KEYS, "the clause")
        for key in ("clause", "title", "text", "source", "cases"):
            if top.get(key) is None:
                self.add(f"no {key!r} in the clause", key)
        if self.findings:
            return None, self.findings
        name = self.text(top["clause"], "clause", "clause")
        title, text = self.text(top["title"], "title", "title"), self.text(top["text"], "text", "text")
        note = self.text(top["note"], "note", "note") if "note" in top else ""
        source = self.sources(top["source"], "source")
        templates = self.templates(top, name, source)
        if self.findings:
            return None, self.findings
        return (
            Clause(
                name,
                " ".join(title.split()),
                text,
                source,
                templates,
                subject,
                self.document.file,
                self.document.line("clause"),
                note,
                self.document,
            ),
            [],
        )

    def sources(self, value: Any, *place: str | int) -> tuple[Source, ...]:
        if not isinstance(value, list) or not value:
            self.add("source must be a list of at least one {document, statement}, {paper, where} or {report}", *place)
            return ()
        found = []
        for n, entry in enumerate(value):
            if not isinstance(entry, Mapping):
                self.add(f"a source is a mapping; got {entry!r:.60}", *place, n)
                continue
            known = {key for needed, free in SOURCE_FORMS for key in needed | free}
            self.keys(entry, known, "a source", *place, n)
            fits = any(needed <= entry.keys() <= needed | free for needed, free in SOURCE_FORMS)
            if not fits:
                if entry.keys() <= known:
                    self.add("a source is {document, statement}, {paper, where} or {report}", *place, n)
            elif not all(isinstance(item, str) and item for item in entry.values()):
                self.add("the parts of a source are texts (quote numbers)", *place, n)
            else:
                found.append(Source(**entry, line=self.document.line(*place, n)))
        return tuple(found)

    def templates(self, top: Mapping[str, Any], clause: str, source: tuple[Source, ...]) -> tuple[Template, ...]:
        cases = top["cases"]
        if not isinstance(cases, list):
            self.add("cases must be a list", "cases")
            return ()
        defaults = self.defaults(top.get("defaults"))
        found: dict[str, Template] = {}
        for n, case in enumerate(cases):
            template = self.template(case, n, clause, source, defaults)
            if template is None:
                continue
            if template.name in found:
                first = found[template.name].line("id")
                self.add(f"two cases are called {template.name!r} (first on line {first})", "cases", n, "id")
            found[template.name] = template
        return tuple(found.values())

    def defaults(self, value: Any) -> Body:
        if value is None:
            return {}
        if not isinstance(value, Mapping):
            self.add("defaults must be a mapping", "defaults")
            return {}
        self.keys(value, DEFAULT_KEYS, "the defaults", "defaults")
        names = NameCheck(self.document, ("defaults",), "in the defaults")
        names.sections(value, _ops(value, tuple(OPS.values())), _let(value))
        self.findings += names.findings
        if names.findings:
            return {}
        body = merge({}, {key: item for key, item in value.items() if key in DEFAULT_KEYS})
        body.pop(OWN, None)
        return body

    def template(self, case: Any, n: int, clause: str, source: tuple[Source, ...], defaults: Body) -> Template | None:
        place = ("cases", n)
        if not isinstance(case, Mapping):
            self.add(f"a case is a mapping; got {case!r:.60}", *place)
            return None
        name = case.get("id")
        if not isinstance(name, str) or not KEBAB.fullmatch(name):
            self.add(f"a case needs an id in kebab-case; got {name!r:.60}", *place, "id")
            return None
        before = len(self.findings)
        where = f"case {name!r}"
        self.keys(case, CASE_KEYS, where, *place)
        own = self.sources(case["source"], *place, "source") if "source" in case else ()
        names = NameCheck(self.document, place, f"in {where}")
        below = defaults.get("call") if isinstance(defaults.get("call"), Mapping) else None
        ops = _ops(case, _ops({"call": below}, (OPS[DEFAULT_OP],)))
        names.sections(case, ops, _let(defaults) | _let(case))
        self.findings += names.findings
        if len(self.findings) > before:
            return None
        body = merge(
            defaults, {key: item for key, item in case.items() if key in CASE_KEYS and key not in ("id", "source")}
        )
        self.complete(body, ops[0], where, *place)
        return Template(clause, name, body, body.pop(OWN, frozenset()), (*source, *own), self.document, place)

    def complete(self, body: Body, op: Op, where: str, *place: str | int) -> None:
        """What only the case and its defaults together must have."""
        if "check" not in body and "expect" not in body:
            self.add(f"neither check nor expect in {where}", *place)
            return
        if "check" not in body:
            return
        ((name, arguments),) = body["check"].items()
        signature = CHECKS[name]
        if signature.needs and signature.needs not in body:
            self.add(f"the check {name} needs {signature.needs!r} in {where}", *place, "check")
        if signature.ops and op.name not in signature.ops:
            self.add(f"the check {name} judges {', '.join(signature.ops)}, not {op.name}, in {where}", *place, "check")
        for argument in signature.arguments.values():
            if argument.required and argument.name not in arguments:
                self.add(f"the check {name} needs the argument {argument.name!r} in {where}", *place, "check")
        if signature.variable and not arguments.keys() - signature.arguments.keys():
            self.add(f"the check {name} needs a variable with its values in {where}", *place, "check")
        for section, check in (("steps", "order_does_not_matter"), ("over", "law")):
            if section in body and signature.needs != section:
                self.add(f"{section!r} belongs to the check {check} in {where}", *place, section)


def _let(body: Mapping[str, Any]) -> dict[str, Any]:
    let = body.get("let")
    return dict(let) if isinstance(let, Mapping) else {}


def _ops(body: Mapping[str, Any], otherwise: tuple[Op, ...]) -> tuple[Op, ...]:
    call = body.get("call")
    name = call.get("op") if isinstance(call, Mapping) else None
    return (OPS[name],) if isinstance(name, str) and name in OPS else otherwise
