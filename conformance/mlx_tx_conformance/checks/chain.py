"""Chains of calls (``let``): each line's result feeds the next, and errors are bounded along the way."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..bounds import bound_call
from ..call import Call
from ..outcome import Outcome, failed, undecidable
from ..spec.expr import evaluate
from .compare import against_bounds, within_sum
from .context import Context


@dataclass(frozen=True)
class Link:
    """An intermediate array as the implementation gave it, and how far it may be from the true one."""

    array: np.ndarray
    error: np.ndarray


def run_chain(context: Context, variables: Mapping[str, Any]) -> tuple[Outcome, np.ndarray, np.ndarray]:
    """Run the case's ``let`` lines and its call for one assignment of the free variables.

    Every link is held to the oracle on the implementation's own previous output. Returns the outcome, the first output
    of the call and its bound, the errors of all links included.
    """
    names = {**context.case.dims, **variables}
    links: dict[str, Link] = {}
    for name, line in context.case.let.items():
        call = _link_call(context, line, links, names)
        result = context.run(call)
        (output,) = call.outputs
        outcome = against_bounds(call, result, context.bounds(call), call.outputs)
        if outcome.verdict not in ("pass", "weak"):
            return replace(outcome, message=f"let {name}: {outcome.message}"), result.outputs[output], np.zeros(())
        links[name] = Link(result.outputs[output], context.bounds(call, _errors(line, links))[output].limit)
    bound_names = {
        name: value for name, value in context.case.call.items() if isinstance(value, str) and value in links
    }
    call = context.call.with_arrays(**{name: links[value].array for name, value in bound_names.items()})
    call = replace(call, options={k: v for k, v in call.options.items() if k not in bound_names})
    call = _evaluated(call, variables, names)
    result = context.run(call)
    output = call.outputs[0]
    outcome = against_bounds(call, result, context.bounds(call), call.outputs)
    errors = {name: links[value].error for name, value in bound_names.items()}
    total = bound_call(call, context.target.precision(call.dtype), input_error=errors)[output]
    if not bool(np.all(total.decidable)):
        return undecidable("the errors of the chain swallow the result"), result.outputs[output], total.limit
    return outcome, result.outputs[output], total.limit


def same_along(context: Context, variable: str, values: list[Any]) -> Outcome:
    """The end of the chain is the same for every value of the variable, up to the bounds of both ends."""
    first: tuple[np.ndarray, np.ndarray] | None = None
    worst = 0.0
    outcome = failed("no values")
    for value in values:
        outcome, output, limit = run_chain(context, {variable: value})
        if outcome.verdict not in ("pass", "weak"):
            return replace(outcome, message=f"{variable} = {value}: {outcome.message}")
        if first is None:
            first = (output, limit)
            continue
        compared = within_sum(context.call.outputs[0], first[0], output, first[1] + limit)
        if compared.verdict != "pass":
            return replace(compared, message=f"{variable} = {values[0]} and {value} differ: {compared.message}")
        worst = max(worst, compared.headroom or 0.0)
    return replace(outcome, headroom=worst)


def _errors(line: Mapping[str, Any], links: Mapping[str, Link]) -> dict[str, np.ndarray]:
    return {name: links[value].error for name, value in line.items() if isinstance(value, str) and value in links}


def _link_call(context: Context, line: Mapping[str, Any], links: Mapping[str, Link], names: Mapping[str, Any]) -> Call:
    """The call of one ``let`` line: arrays by name from earlier links or the case's inputs, the rest options."""
    arrays, options = {}, {}
    outputs = tuple(line.get("outputs", ("out",)))
    for name, value in line.items():
        if name in ("op", "outputs"):
            continue
        if isinstance(value, str) and value in links:
            arrays[name] = links[value].array
        elif isinstance(value, str) and value in context.call.arrays:
            arrays[name] = context.call.arrays[value]
        elif isinstance(value, str):
            options[name] = _number(value, names)
        else:
            options[name] = value
    return Call(line["op"], arrays, options, {}, outputs)


def _evaluated(call: Call, variables: Mapping[str, Any], names: Mapping[str, Any]) -> Call:
    changed = {
        name: _number(value, names)
        for name, value in call.options.items()
        if isinstance(value, str) and any(variable in value for variable in variables)
    }
    return call.with_options(**changed) if changed else call


def _number(expression: str, names: Mapping[str, Any]) -> int | float:
    value = evaluate(expression, names)
    return value.item() if isinstance(value, np.generic | np.ndarray) else value
