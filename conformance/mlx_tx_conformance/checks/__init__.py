"""The checks: how a case of the spec is turned into a verdict."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ..call import Target, Unsupported
from ..inputs import build_call, fingerprint
from ..outcome import Outcome
from . import caches, counts, dependence, derivatives, errors, gradients, models, parts, relations, scaling, values
from .chain import run_chain, same_along
from .context import Context, Departure
from .registry import CHECKS, run_check

__all__ = [
    "CHECKS",
    "Context",
    "Departure",
    "caches",
    "counts",
    "dependence",
    "derivatives",
    "errors",
    "gradients",
    "models",
    "parts",
    "relations",
    "run_case",
    "scaling",
    "values",
]


def run_case(case: Any, target: Target) -> Outcome:
    """Pose one case to one target.

    Never raises for what a target does: what it cannot do is ``unsupported``, what it does wrong ``fail``, and any
    other exception of it ``error``.
    """
    mark, context = "", None
    try:
        call = build_call(case)
        mark = fingerprint(call)
        context = Context(case, target, call)
        outcome = _judge(context)
    except Unsupported as reason:
        outcome = Outcome("unsupported", str(reason))
    except Departure as fault:
        outcome = Outcome("fail", str(fault))
    except Exception as error:  # a target may raise anything; the run goes on
        outcome = Outcome("error", f"{error.__class__.__name__}: {error}")
    path = context.path if context is not None else ""
    return replace(outcome, path=outcome.path or path, fingerprint=outcome.fingerprint or mark)


def _judge(context: Context) -> Outcome:
    case = context.case
    if case.let:
        if case.check == "same_for":
            ((variable, settings),) = case.check_args.items()
            return same_along(context, variable, settings)
        return run_chain(context, {})[0]
    return run_check(case.check, context, case.check_args)
