"""From a case as it stands in a file to the cases that are run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product
from math import prod
from typing import Any

from .check_signatures import CHECKS
from .errors import Finding, SpecError
from .evaluate import Evaluation, build, selection_names
from .expr import ExpressionError, parse
from .merge import OWN, Body, merge
from .model import Case, Source, Template
from .ops import DEFAULT_OP, DIMS, OPS
from .pairwise import all_pairs, covering
from .vary import Choice, Factor, VaryFault, factor

MAX_CASES = 2_000
# What is enumerated at all: combinations that only_if may drop from, and pairs to cover.
MAX_COMBINATIONS = 20_000
MAX_PAIRS = 50_000


def expand(template: Template) -> tuple[Case, ...]:
    """Every case of a template, in the order of its values. Raises :class:`SpecError` with file and line."""
    return _Expansion(template).cases()


class _Expansion:
    def __init__(self, template: Template) -> None:
        self.template = template
        self.body: Body = {**template.body, OWN: template.own}
        varied = self.factors("vary")
        paired = self.factors("pairwise")
        self.factors_in_order = varied + paired
        self.varied, self.paired = varied, paired
        self.only_if = self.body.get("only_if")
        labels = {choice.label for f in self.factors_in_order for choice in f.choices if choice.bare}
        self.flags = {label: False for label in labels if label.isidentifier()}

    def fail(self, message: str, *path: str | int, hint: str = "") -> SpecError:
        line = self.template.line(*path)
        return SpecError(Finding(self.template.file, line, f"{message} in case {self.template.name!r}{hint}", "vary"))

    def factors(self, section: str) -> list[Factor]:
        op = OPS.get((self.body.get("call") or {}).get("op", DEFAULT_OP), OPS[DEFAULT_OP])
        found = []
        for key, values in (self.body.pop(section, None) or {}).items():
            try:
                found.append(factor(key, values, op))
            except VaryFault as fault:
                raise self.fail(fault.message, section, key, hint=fault.hint) from None
        return found

    def cases(self) -> tuple[Case, ...]:
        found: list[Case] = []
        for choices in self.combinations():
            body, evaluation = self.evaluated(choices)
            if self.only_if is not None and not self.holds(evaluation, choices):
                continue
            if len(found) == MAX_CASES:
                raise self.fail(f"more than {MAX_CASES:,} combinations")
            params = {f.key: c.value for f, c in zip(self.factors_in_order, choices, strict=True)}
            labels = tuple(choice.label for choice in choices)
            found.append(build(body, self.template, params, labels, evaluation=evaluation))
        if not found:
            raise self.fail("only_if leaves no combination", "only_if")
        return tuple(found)

    def combinations(self) -> Iterator[tuple[Choice, ...]]:
        """Every choice of the product part, each with the rows of the pairwise part."""
        looked_at = self.varied if self.only_if is None else self.factors_in_order
        count = prod(len(f.choices) for f in looked_at)
        if count > MAX_COMBINATIONS:
            raise self.fail(f"{count:,} combinations; at most {MAX_COMBINATIONS:,} are looked at", "vary")
        rows: list[tuple[Choice, ...]] = [()]
        if self.paired and self.only_if is None:
            rows = self.pairwise_rows()
        for chosen in product(*(f.choices for f in self.varied)):
            if self.paired and self.only_if is not None:
                rows = self.allowed_rows(chosen)
            for row in rows:
                yield (*chosen, *row)

    def pairwise_rows(self) -> list[tuple[Choice, ...]]:
        sizes = sorted(len(f.choices) for f in self.paired)
        pairs = (sum(sizes) ** 2 - sum(n * n for n in sizes)) // 2
        if pairs > MAX_PAIRS or prod(sizes[-2:]) > MAX_CASES:
            raise self.fail(f"{pairs:,} pairs need more than {MAX_CASES:,} cases", "pairwise")
        return [self.picked(row) for row in all_pairs([len(f.choices) for f in self.paired], MAX_CASES)]

    def allowed_rows(self, chosen: tuple[Choice, ...]) -> list[tuple[Choice, ...]]:
        """The pairwise part among what only_if allows next to one choice of the product part."""
        rows = []
        for row in product(*(range(len(f.choices)) for f in self.paired)):
            choices = (*chosen, *self.picked(row))
            if self.holds(self.evaluated(choices)[1], choices):
                rows.append(row)
        return [self.picked(row) for row in covering(rows)]

    def picked(self, row: tuple[int, ...]) -> tuple[Choice, ...]:
        return tuple(f.choices[n] for f, n in zip(self.paired, row, strict=True))

    def evaluated(self, choices: tuple[Choice, ...]) -> tuple[Body, Evaluation]:
        body = self.body
        for f, choice in zip(self.factors_in_order, choices, strict=True):
            try:
                body = choice.apply(body)
            except KeyError as missing:
                section = "vary" if f in self.varied else "pairwise"
                raise self.fail(f"{f.key!r} leads nowhere: {missing} is no mapping", section, f.key) from None
        return body, Evaluation(body, self.template)

    def holds(self, evaluation: Evaluation, choices: tuple[Choice, ...]) -> bool:
        text = str(self.only_if)
        flags = self.flags | {c.label: True for c in choices if c.label in self.flags}
        try:
            return bool(parse(text)(selection_names(evaluation, flags)))
        except ExpressionError as error:
            raise self.fail(str(error), "only_if") from None


@dataclass(frozen=True)
class _FromCase:
    """A case as the origin of another: every line is the case's own."""

    case: Case

    @property
    def clause(self) -> str:
        return self.case.clause

    @property
    def name(self) -> str:
        return self.case.name

    @property
    def source(self) -> tuple[Source, ...]:
        return self.case.source

    @property
    def file(self) -> str:
        return self.case.file

    def line(self, *path: str | int) -> int:
        del path
        return self.case.line


def at(case: Case, **values: Any) -> Case:
    """The case with dims (``T`` for both lengths) or free variables set, everything that follows from them anew.

    ``at(case, T=512)`` is one run of a law, ``at(case, s=17)`` one of ``same_for``. The id, and with it the random
    numbers, stay. Raises SpecError for a name that is neither.
    """
    dims = {name: value for name, value in values.items() if name == "T" or name in DIMS}
    variables = {name: value for name, value in values.items() if name not in dims}
    body = merge(case.declared, {"shapes": dims}) if dims else dict(case.declared)
    evaluation = Evaluation(body, _FromCase(case), variables)
    for name in variables:
        if name not in evaluation.free:
            evaluation.fail(f"no dim or free variable {name!r}")
    return build(body, _FromCase(case), case.params, evaluation=evaluation, id=case.id)


def changed(case: Case, changes: Mapping[str, Any]) -> Case:
    """The case with ``call``, ``inputs``, ``layout`` changed, as a step or ``agrees: {with: ...}`` has them."""
    return build(merge(case.declared, changes), _FromCase(case), case.params, id=case.id)


def forms(case: Case) -> Iterator[Case]:
    """Every call that a case poses, as a case: its own, those of ``let`` and ``steps``, those it is held against."""
    yield case
    for line in case.let.values():
        yield replace(case, call=line, let={}, layout={})
    others: list[Mapping[str, Any]] = [] if OPS[case.call["op"]].stateful else [*case.steps]
    if "with" in case.check_args:
        others.append(case.check_args["with"])
    if CHECKS[case.check].variable:
        options = OPS[case.call["op"]].options
        for name, values in case.check_args.items():
            if name == "layout":
                others += [{"layout": value} for value in values]
            elif name in options and isinstance(values, list):
                others += [{"call": {name: value}} for value in values]
    for changes in others:
        yield changed(case, changes)
