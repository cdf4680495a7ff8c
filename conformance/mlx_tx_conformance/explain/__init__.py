"""One case taken apart: the first stage that departs, the worst element, and a snippet that runs by itself."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..bounds import bound_call, bounded_ops
from ..call import Call, Target, Unsupported
from ..outcome import Outcome
from ..runner.select import SelectionError
from ..runner.worker import judge
from .models import stage_findings
from .snippet import make_snippet
from .stages import Finding, guilty_rules, probe, reduced, worst_of

# Elements shown on either side of the worst one, along its last axis.
NEIGHBOURS = 3
# Stages of a model that are shown: the one that departs and some before it.
LAST_STAGES = 6


@dataclass(frozen=True)
class Explanation:
    """What was found out about one case on one target."""

    case: str
    target: str
    outcome: Outcome
    summary: str
    findings: tuple[Finding, ...] = ()
    how: str = ""
    element: tuple[str, ...] = ()
    snippet: str = ""

    @property
    def stage(self) -> str | None:
        """The first stage that departs, or ``None``."""
        return next((finding.stage for finding in self.findings if finding.departs), None)

    def text(self) -> str:
        """All of it, for a terminal."""
        lines = [f"{self.case} on {self.target}: {self.outcome.verdict}", *_indented(self.outcome.message)]
        if self.outcome.headroom is not None:
            lines += [f"  error/bound {self.outcome.headroom:.3g}"]
        lines += ["", self.summary]
        for finding in self.findings:
            lines.append(f"  {finding.stage:8} {_finding_text(finding)}")
        if self.how:
            lines += ["", self.how]
        if self.element:
            lines += ["", *self.element]
        if self.snippet:
            lines += ["", "A snippet that shows it without this package:", "", *_indented(self.snippet)]
        return "\n".join(lines) + "\n"


def find_case(cases: Iterable[Any], wanted: str) -> Any:
    """The case of an id; without brackets, the only one of its name. Raises SelectionError with suggestions."""
    everything = list(cases)
    for case in everything:
        if case.id == wanted:
            return case
    named = [case for case in everything if case.id.split("[")[0] == wanted]
    if len(named) == 1:
        return named[0]
    if named:
        some = "\n".join(f"  {case.id}" for case in named[:12])
        more = f"\n  … and {len(named) - 12} more" if len(named) > 12 else ""
        raise SelectionError(f"{wanted!r} is {len(named)} cases; name one of them:\n{some}{more}")
    ids = [case.id for case in everything]
    close = [name for name in ids if name.startswith(wanted)][:3] or difflib.get_close_matches(wanted, ids, n=3)
    hint = "; did you mean " + " or ".join(repr(name) for name in close) + "?" if close else ""
    raise SelectionError(f"no case {wanted!r}{hint}")


def explain(
    case: Any, target: Target, *, seed: int = 0, check: Callable[[Any, Target], Outcome] | None = None
) -> Explanation:
    """Replay a case and find the first stage from which the target departs."""
    from ..inputs import build_call

    if check is None:
        from ..checks import run_case

        check = run_case
    posed = replace(case, seed=case.seed + seed) if seed else case
    outcome = judge(check, posed, target)
    if outcome.verdict == "unsupported":
        return Explanation(
            case.id, target.name, outcome, "The target does not do this, so there is nothing to take apart."
        )
    if outcome.details.get("ends_process"):
        summary = "The target would end this process too, so it is not taken apart."
        return Explanation(case.id, target.name, outcome, summary)
    if case.check == "raises":
        return Explanation(case.id, target.name, outcome, "The case is about an error; no values are compared.")
    try:
        call = build_call(posed)
    except Exception as error:
        summary = f"The inputs of the case cannot be built: {type(error).__name__}: {error}"
        return Explanation(case.id, target.name, outcome, summary)
    return explain_call(call, target, case=case.id, outcome=outcome)


def explain_call(call: Call, target: Target, *, case: str, outcome: Outcome) -> Explanation:
    """Take one call apart (see :mod:`.stages` for how)."""
    if call.op == "model":
        return _of_model(call, target, case, outcome)
    if call.op not in bounded_ops():
        return Explanation(
            case, target.name, outcome, f"{call.op} is judged as a whole: the message says what is wrong."
        )
    if call.op not in ("attention", "attention_gradients"):
        return _values_only(call, target, case, outcome)
    findings = tuple(probe(target, call))
    first = next((finding for finding in findings if finding.departs), None)
    how = (
        "Inferred by calling the function again with V = identity, so that its output is its weights, and with the\n"
        "arguments added in the order in which they act; each answer was held to its error bound."
    )
    if first is None:
        if call.op == "attention_gradients":
            element = _element(target, call)
            summary = "The forward pass agrees with the oracle at every stage: the backward pass departs."
            if not element:
                summary = "Forward and backward pass agree with the oracle on the inputs of the case."
            return Explanation(case, target.name, outcome, summary, findings, how, element)
        summary = "Every stage agrees with the oracle on the inputs of the case."
        if outcome.verdict == "fail":
            summary += " What is broken is what the case demands beyond them: see the message above."
        return Explanation(case, target.name, outcome, summary, findings, how)
    forward = reduced(call, "output")
    summary = f"First stage that departs: {first.stage}."
    if first.stage == "masked":
        rules = guilty_rules(target, forward)
        if rules:
            summary += f" Alone, {' and '.join(rules)} depart{'s' if len(rules) == 1 else ''} too."
    element = _stage_element(first) + _element(target, forward)
    title = f"{case} on {target.name}: departs at {first.stage}"
    snippet = make_snippet(target, replace(forward, outputs=("out",)), lambda c: _departs(target, c), title)
    return Explanation(case, target.name, outcome, summary, findings, how, element, snippet)


def _of_model(call: Call, target: Target, case: str, outcome: Outcome) -> Explanation:
    try:
        findings = tuple(stage_findings(target, call))
    except Exception as error:  # said rather than raised: the case may be about something else
        summary = f"The stages cannot be had: {type(error).__name__}: {error}"
        return Explanation(case, target.name, outcome, summary)
    how = "Every stage was computed by the oracle from the implementation's own previous ones and held to its bound."
    first = findings[-1] if findings and findings[-1].departs else None
    if first is None:
        summary = f"All of {len(findings)} stages agree with the oracle on the inputs of the case."
        if outcome.verdict == "fail":
            summary += " What is broken is what the case demands beyond them: see the message above."
        return Explanation(case, target.name, outcome, summary, findings, how)
    summary = f"First stage that departs: {first.stage}, number {len(findings)} in the order of the computation."
    return Explanation(case, target.name, outcome, summary, findings[-LAST_STAGES:], how, _model_element(first))


def _model_element(finding: Finding) -> tuple[str, ...]:
    worst = finding.worst
    if worst is None:
        return ()
    place = ",".join(map(str, worst.index))
    return (f"{worst.output}[{place}] = {worst.actual:.9g}, expected {worst.expected:.9g} within {worst.limit:.3g}",)


def _values_only(call: Call, target: Target, case: str, outcome: Outcome) -> Explanation:
    element = _element(target, call)
    summary = f"{call.op} has one stage; " + ("its worst element:" if element else "it agrees with the oracle.")
    return Explanation(case, target.name, outcome, summary, element=element)


def _departs(target: Target, call: Call) -> bool:
    try:
        worst = worst_of(target, call)
    except Unsupported:
        return False
    except Exception:  # an implementation that raises departs as well
        return True
    return worst is not None and not worst.headroom <= 1


def _stage_element(finding: Finding) -> tuple[str, ...]:
    worst = finding.worst
    if worst is None or worst.output == "out":
        return ()
    place = ",".join(map(str, worst.index))
    return (
        f"{worst.output}[{place}] = {worst.actual:.9g}, expected {worst.expected:.9g} within {worst.limit:.3g} "
        f"(b, h, i{', j' if worst.output == 'weights' else ''})",
    )


def _element(target: Target, call: Call) -> tuple[str, ...]:
    """The worst element of the call's results with its neighbours, as a table; nothing where all is within bounds."""
    try:
        result = target.run(call)
    except Exception:  # said where the stage is named
        return ()
    bounds = bound_call(call, target.precision(call.dtype))
    if any(result.outputs[name].shape != bounds[name].value.shape for name in call.outputs):
        return ()
    worst: tuple[float, str, tuple[int, ...]] | None = None
    for name in call.outputs:
        headroom = bounds[name].headroom(result.outputs[name])
        if headroom.size:
            index = tuple(int(n) for n in np.unravel_index(int(np.argmax(headroom)), headroom.shape))
            if worst is None or headroom[index] > worst[0]:
                worst = (float(headroom[index]), name, index)
    if worst is None or worst[0] <= 1:
        return ()
    _, name, index = worst
    bound, actual = bounds[name], result.outputs[name].astype(np.float64)
    limit = np.broadcast_to(bound.limit, actual.shape)
    headroom = bound.headroom(result.outputs[name])
    lines = [f"{'':28} {'actual':>14} {'expected':>14} {'bound':>10} {'error/bound':>12}"]
    *row, last = index
    for n in range(max(0, last - NEIGHBOURS), min(actual.shape[-1], last + NEIGHBOURS + 1)):
        place = (*row, n)
        label = f"{name}[{','.join(map(str, place))}]"
        mark = "  <- worst" if n == last else ""
        lines.append(
            f"{label:28} {actual[place]:14.9g} {bound.value[place]:14.9g} {limit[place]:10.3g} "
            f"{headroom[place]:12.3g}{mark}"
        )
    return tuple(lines)


def _finding_text(finding: Finding) -> str:
    if finding.departs is None:
        return finding.remark
    if not finding.departs:
        return f"agrees (error/bound {finding.headroom:.3g})"
    return f"departs ({finding.remark or f'error/bound {finding.headroom:.3g}'})"


def _indented(text: str) -> list[str]:
    return [f"  {line}".rstrip() for line in text.splitlines()]
