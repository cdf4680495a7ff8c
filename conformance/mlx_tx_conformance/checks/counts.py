"""Checks of what kernels read, write and compute, and of one path by another."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..call import DTYPES, Unsupported
from ..outcome import Outcome, failed, passed
from ..spec.count_checks import KERNEL_FIGURES
from ..spec.expr import evaluate, parse
from .compare import merge, within_sum
from .context import Context, Departure
from .registry import check


@check
def counts_equal(
    context: Context,
    device_bytes: str | float | None = None,
    device_bytes_read: str | float | None = None,
    device_bytes_written: str | float | None = None,
    q_bytes_read: str | float | None = None,
    kv_bytes_read: str | float | None = None,
    feature_bytes_read: str | float | None = None,
    kernel_mma: str | float | None = None,
    kernel_exp: str | float | None = None,
    threadgroups: str | float | None = None,
    threadgroup_bytes: str | float | None = None,
) -> Outcome:
    """Each figure that is named equals its closed form, to the byte or operation."""
    given = {name: value for name, value in locals().items() if name in KERNEL_FIGURES and value is not None}
    counted, names = _counted(context)
    details: dict[str, Any] = {"counted": {name: counted[name] for name in given}, "tiles": _tiles(names)}
    for name, form in given.items():
        expected = form if isinstance(form, int | float) else evaluate(form, names)
        if counted[name] != expected:
            return failed(
                f"{name} is {counted[name]:,}, and {form} is {expected:,} with {_listed(details['tiles'])}",
                details=details,
            )
    return passed(", ".join(f"{name} {counted[name]:,}" for name in given), details=details)


@check
def counts_hold(context: Context, that: str) -> Outcome:
    """The relation holds between the figures of the call, its dims and the sizes of its tiles."""
    counted, names = _counted(context)
    used = {name: value for name, value in counted.items() if name in parse(that).names}
    details: dict[str, Any] = {"counted": used, "tiles": _tiles(names)}
    if not evaluate(that, {**names, **counted}):
        return failed(f"{that} does not hold: {_listed(used)}, with {_listed(details['tiles'])}", details=details)
    return passed(_listed(used), details=details)


@check
def equal_paths(context: Context, to: str) -> Outcome:
    """The call by another path differs by no more than the bounds of both."""
    if context.case.path == to:
        raise Unsupported(f"the case is about path {to} itself")
    context.require(context.call)
    on_path = getattr(context.target, "on_path", None)
    other = None if on_path is None else on_path(to)
    if other is None:
        raise Unsupported(f"no path {to} beside this one")
    reason = other.supports(context.call)
    if reason is not None:
        raise Unsupported(f"path {to}: {reason}")
    here, bounds = context.run(), context.bounds()
    there = other.run(context.call)
    if there.path != to:
        raise Departure(f"path {to!r} was asked for and {there.path or 'an unnamed path'!r} ran")
    return merge(
        within_sum(name, here.outputs[name], there.outputs[name], 2 * bounds[name].limit)
        for name in context.call.outputs
    )


def _counted(context: Context) -> tuple[Mapping[str, int], dict[str, Any]]:
    """The figures of the case's call, and the names that its closed forms may use."""
    call = context.call
    found = context.kernel_counts()
    options = {name: value for name, value in call.options.items() if isinstance(value, int | float)}
    dims = {name: value for name, value in context.case.dims.items() if isinstance(value, int)}
    return found.figures, {"itemsize": DTYPES[call.dtype].itemsize, **options, **dims, **found.tiles}


def _tiles(names: Mapping[str, Any]) -> dict[str, int]:
    return {name: names[name] for name in ("rows", "columns", "splits", "threads") if name in names}


def _listed(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value:,}" for name, value in values.items()) or "nothing counted"
