"""Checks of the parts of a model that work on ``[B, T, C]``: norms, position-wise networks, fixed positions."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..call import Call
from ..oracle import mlp
from ..oracle.sinusoidal import shift_matrix
from ..outcome import Outcome, failed, passed
from .compare import first_difference, float64, merge, within_sum
from .context import Context
from .registry import check


@check
def position_wise(context: Context) -> Outcome:
    """Positions in another order give the results in that order; other values, or NaN, at one position change no other.

    The first up to the bounds (a product may sum in another order), the second bit for bit.
    """
    call = context.call
    x = call.arrays["x"]
    T = x.shape[1]
    order = np.roll(np.arange(T)[::-1], 1)
    before, limit = context.run(), context.bounds()["out"].limit
    after = context.run(call.with_arrays(x=np.ascontiguousarray(x[:, order])))
    moved = within_sum("out", before.outputs["out"][:, order], after.outputs["out"], 2 * limit[:, order])
    if moved.verdict != "pass":
        return replace(moved, message=f"positions in another order: {moved.message}")
    for p in sorted({0, T // 2, T - 1}):
        for value in (-3.0, np.nan):
            other = x.copy()
            other[:, p] = np.asarray(value, x.dtype)
            rest = (np.arange(T) != p)[None, :, None]
            result = context.run(call.with_arrays(x=other)).outputs["out"]
            difference = first_difference("out", before.outputs["out"], result, rest)
            if difference:
                return failed(f"x at position {p} became {value}, and another position changed: {difference}")
    return moved


@check
def not_linear(context: Context, margin: float) -> Outcome:
    """f(a + b) differs from f(a) + f(b) by more than ``margin`` of its size (root mean square).

    With the activation taken away the two are equal: the oracle's linear network shows that the margin means something.
    """
    call = context.call
    a = call.arrays["x"]
    b = np.ascontiguousarray(a[:, ::-1])
    together = (a + b).astype(a.dtype)
    of_a, of_b, of_both = (float64(context.run(call.with_arrays(x=x)).outputs["out"]) for x in (a, b, together))
    off = _rms(of_both - of_a - of_b) / _rms(of_both)
    wide = [float64(x) for x in (a, b)]
    flat = [_without_activation(call, x) for x in (*wide, wide[0] + wide[1])]
    control = _rms(flat[2] - flat[0] - flat[1]) / _rms(flat[2])
    details = {"departure": off, "without_activation": control}
    if not off > margin:
        return failed(
            f"f(a + b) and f(a) + f(b) differ by {off:.3g} of their size, expected more than {margin:g}",
            details=details,
        )
    if control > 1e-9:
        return failed(f"the network without its activation departs by {control:.3g}", details=details)
    return passed(f"differs by {off:.3g} of its size; {control:.1g} without the activation", details=details)


@check
def scale_invariant(context: Context, by: list[float]) -> Outcome:
    """x times a power of two gives the same result, up to the bounds of both."""
    call = context.call
    first, limit = context.run(), context.bounds()["out"].limit
    outcomes = []
    for factor in by:
        scaled = call.with_arrays(x=(float64(call.arrays["x"]) * factor).astype(call.arrays["x"].dtype))
        other = context.run(scaled)
        total = limit + context.bounds(scaled)["out"].limit
        outcome = within_sum("out", first.outputs["out"], other.outputs["out"], total)
        if outcome.verdict != "pass":
            return replace(outcome, message=f"x times {factor:g}: {outcome.message}")
        outcomes.append(outcome)
    return merge(outcomes)


@check
def shift_is_linear(context: Context, by: list[int]) -> Outcome:
    """PE(p + k) = M(k) PE(p) with a matrix that does not depend on p, up to the bounds of both."""
    call = context.call
    dims, base = int(call.options["dims"]), float(call.options.get("base", 10000.0))
    here, limit = float64(context.run().outputs["out"]), context.bounds()["out"].limit
    outcomes = []
    for k in by:
        moved = call.with_arrays(positions=(call.arrays["positions"] + k).astype(np.int32))
        there, far = context.run(moved).outputs["out"], context.bounds(moved)["out"].limit
        matrix = shift_matrix(k, dims, base)
        outcome = within_sum("out", here @ matrix.T, there, far + limit @ np.abs(matrix).T)
        if outcome.verdict != "pass":
            return replace(outcome, message=f"shifted by {k}: {outcome.message}")
        outcomes.append(outcome)
    return merge(outcomes)


def _without_activation(call: Call, x: np.ndarray) -> np.ndarray:
    weights = {f"{name}_proj.weight": float64(call.arrays[f"w_{name}"]).T for name in ("up", "down")}
    return mlp.linear(mlp.linear(x, weights["up_proj.weight"]), weights["down_proj.weight"])


def _rms(x: np.ndarray) -> float:
    return float(np.sqrt(np.mean(x * x)))
