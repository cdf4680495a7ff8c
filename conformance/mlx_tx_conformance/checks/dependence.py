"""Checks of what depends on what: changed inputs, unchanged outputs, zero gradients, path lengths."""

from __future__ import annotations

import numpy as np

from ..call import Call
from ..outcome import Outcome, failed, passed
from ..spec.expr import evaluate
from .compare import first_difference, float64
from .context import Context
from .registry import check

# The axis of [B, N, T, D] along which a perturbation picks one index, by the letter of that index.
AXES = {"b": 0, "h": 1, "i": 2, "j": 2}
MOST_PROBES = 8


@check
def unchanged(
    context: Context,
    perturb: list[str],
    where: str,
    at: str = "j",
    by: str | float = "value",
    outputs: list[str] | None = None,
) -> Outcome:
    """Outputs at every (b, h, i) for which ``where`` is true stay bit for bit the same.

    One index ``p`` along the axis named by ``at`` (``b``, ``h``, ``i`` or ``j``; ``j`` also is the name of the index
    when a key is changed) of the arrays ``perturb`` is replaced: by other finite values, or by ``nan`` or ``inf``.
    """
    before = context.run()
    for p in _probes(context.call, perturb, at):
        call = _perturbed(context.call, perturb, at, p, by)
        hidden = region(context, where, at, p)
        if not hidden.any():
            continue
        after = context.run(call)
        for name in outputs or context.call.outputs:
            mask = hidden if name == "lse" else hidden[..., None]
            difference = first_difference(name, before.outputs[name], after.outputs[name], mask)
            if difference:
                return failed(
                    f"{' and '.join(perturb)} changed at {at} = {p}, which must not matter here: {difference}"
                )
    return passed()


@check
def changed(context: Context, perturb: list[str], where: str, at: str = "j") -> Outcome:
    """Outputs at every (b, h, i) for which ``where`` is true do change when one index of the arrays does."""
    before = float64(context.run().outputs["out"])
    for p in _probes(context.call, perturb, at):
        seen = region(context, where, at, p)
        if not seen.any():
            continue
        after = float64(context.run(_perturbed(context.call, perturb, at, p, "value")).outputs["out"])
        still = seen & ~(before != after).any(axis=-1)
        if still.any():
            index = tuple(int(i) for i in np.argwhere(still)[0])
            return failed(
                f"{' and '.join(perturb)} changed at {at} = {p}, and out[{','.join(map(str, index))}], "
                "which depends on it, stayed the same"
            )
    return passed()


@check
def gradient_zero(context: Context, of: list[str], where: str) -> Outcome:
    """The gradient of output row i by position j of the arrays ``of`` is exactly 0 wherever ``where`` is true."""
    call = context.call
    d_out = call.arrays["d_out"]
    for i in _spread(d_out.shape[2]):
        only = np.zeros_like(d_out)
        only[:, :, i] = d_out[:, :, i]
        result = context.run(call.with_arrays(d_out=only))
        for name in of:
            gradient = float64(result.outputs[name])
            j = np.arange(gradient.shape[2])
            zero = np.broadcast_to(evaluate(where, {**context.case.dims, **_options(context), "i": i, "j": j}), j.shape)
            wrong = zero[None, None, :, None] & (gradient != 0)
            if wrong.any():
                index = tuple(int(n) for n in np.argwhere(wrong)[0])
                return failed(
                    f"the gradient of output row {i} by {name}[{','.join(map(str, index))}] is {gradient[index]:.9g}, "
                    "must be exactly 0"
                )
    return passed()


@check
def path_length(context: Context, expected: str | int) -> Outcome:
    """The least number of layers after which the last output depends on the first position, measured by probes.

    A layer is the call with its output fed back as q, k and v. A plain RNN needs T - 1 steps for the same.
    """
    call = context.call
    T = call.arrays["q"].shape[2]
    wanted = int(evaluate(str(expected), {**context.case.dims, **_options(context)}))
    a, b = call.arrays["v"], _replaced(call.arrays["v"], 2, 0, "value")
    for layers in range(1, wanted + 1):
        a = context.run(call.with_arrays(q=a, k=a, v=a)).outputs["out"]
        b = context.run(call.with_arrays(q=b, k=b, v=b)).outputs["out"]
        depends = bool((float64(a)[:, :, T - 1] != float64(b)[:, :, T - 1]).any())
        if depends != (layers == wanted):
            return failed(
                f"after {layers} layer(s) the last of {T} outputs {'depends' if depends else 'does not depend'} on the "
                f"first position; the path length must be {wanted}"
            )
    return passed(f"path length {wanted} over {T} positions", details={"path_length": wanted, "rnn": T - 1})


def _options(context: Context) -> dict[str, object]:
    return {name: value for name, value in context.call.options.items() if isinstance(value, int | float)}


def region(context: Context, where: str, at: str, p: int) -> np.ndarray:
    """The (b, h, i) at which ``where`` holds, for the perturbed index p: a boolean array [B, N_q, T_q]."""
    dims = context.case.dims
    b, h, i = np.ix_(np.arange(dims["B"]), np.arange(dims["N_q"]), np.arange(dims["T_q"]))
    names = {**dims, **_options(context), "b": b, "h": h, "i": i, "p": p}
    if at == "j":
        names["j"] = p
    return np.broadcast_to(np.asarray(evaluate(where, names), dtype=bool), (dims["B"], dims["N_q"], dims["T_q"]))


def _probes(call: Call, perturb: list[str], at: str) -> list[int]:
    return _spread(call.arrays[perturb[0]].shape[AXES[at]])


def _spread(length: int) -> list[int]:
    """At most MOST_PROBES indices of 0..length-1: both ends, their neighbours, and some between."""
    if length <= MOST_PROBES:
        return list(range(length))
    ends = {0, 1, length - 2, length - 1}
    between = {int(x) for x in np.linspace(2, length - 3, MOST_PROBES - len(ends))}
    return sorted(ends | between)


def _perturbed(call: Call, perturb: list[str], at: str, p: int, by: str | float) -> Call:
    return call.with_arrays(**{name: _replaced(call.arrays[name], AXES[at], p, by) for name in perturb})


def _replaced(array: np.ndarray, axis: int, p: int, by: str | float) -> np.ndarray:
    """A copy in which index p along the axis holds other values, or NaN or infinity."""
    copy = array.copy()
    place = (slice(None),) * axis + (p,)
    if by == "value":
        # Far from the old value, with another sign in every element: visible wherever the element counts at all.
        old = float64(array)[place]
        copy[place] = np.where(old >= 0, -2.0 - old, 2.0 - old).astype(array.dtype)
    else:
        copy[place] = np.asarray(float(by)).astype(array.dtype)
    return copy
