"""Checks of derivatives beyond the gradient, and of calls under a vectorising transform: right, or refused by name."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..call import Call, Unsupported
from ..outcome import Outcome, failed, passed
from .compare import against_bounds, float64
from .context import Context
from .registry import check

# Central differences in float64 are good to about the square of the step; a missing derivative is off by all of itself.
STEP = 2.0**-13
PRESENT_WITHIN = 0.02


@check
def derivative(context: Context, kind: str) -> Outcome:
    """A forward-mode or second derivative is the oracle's finite difference to 2 %, or refused by an error that names
    ``path="composed"``; a vectorised (``vmap``) call equals the oracle by the bounds of the plain one, or is refused.

    It asks whether the derivative is there at all (a silent zero is off by 100 %), not how exact it is.
    """
    if kind == "vmap":
        call = replace(context.call, op="attention_vmap")
    else:
        call = _with_tangents(context, "attention_jvp" if kind == "forward" else "attention_hvp")
    context.require(call)
    try:
        result = context.target.run(call)
    except Unsupported:
        raise
    except Exception as error:  # a refusal is a right answer if it says where to turn
        if "composed" in str(error):
            return passed(f"refused: {error}")
        return failed(f"the refusal does not name path='composed': {error.__class__.__name__}: {error}")
    context.path = result.path
    if kind == "vmap":
        return against_bounds(call, result, context.bounds(), ("out",))
    actual, expected = float64(result.outputs["out"]), _finite_difference(call)
    off, size = float(np.max(np.abs(actual - expected))), float(np.max(np.abs(expected)))
    if not off <= PRESENT_WITHIN * size:
        return failed(f"the {kind} derivative is off by {off:.3g} where the true one reaches {size:.3g}")
    return passed(f"off by {off / size:.2g} of its size")


@check
def nan_where(context: Context, where: str) -> Outcome:
    """Outputs are NaN exactly where the expression over (b, h, i) is true, and the oracle's elsewhere is not asked."""
    from .dependence import region

    out = float64(context.run(replace(context.call, outputs=("out",))).outputs["out"])
    wanted = region(context, where, "i", 0)[..., None]
    wrong = np.isnan(out) != wanted
    if wrong.any():
        index = tuple(int(n) for n in np.argwhere(wrong)[0])
        expected = "NaN" if bool(np.broadcast_to(wanted, out.shape)[index]) else "a number"
        return failed(f"out[{','.join(map(str, index))}] is {out[index]:.9g}, expected {expected}")
    return passed()


def _with_tangents(context: Context, op: str) -> Call:
    rng = np.random.Generator(np.random.PCG64(context.case.seed))
    arrays = {}
    for name in ("q", "k", "v"):
        shape = context.call.arrays[name].shape
        arrays[f"t_{name}"] = rng.standard_normal(shape).astype(np.float32)
    if op == "attention_hvp":
        arrays["d_out"] = np.ones(context.bounds()["out"].value.shape, np.float32)
    return replace(context.call.with_arrays(**arrays), op=op)


def _finite_difference(call: Call) -> np.ndarray:
    """By central differences of the oracle: of the output along all tangents, or (``hvp``) of dq along that of q."""
    from ..oracle.attention import attention
    from ..oracle.gradients import attention_gradients

    def value(step: float) -> np.ndarray:
        moving = ("q",) if call.op == "attention_hvp" else ("q", "k", "v")
        q, k, v = (
            float64(call.arrays[n]) + (step * float64(call.arrays[f"t_{n}"]) if n in moving else 0.0)
            for n in ("q", "k", "v")
        )
        if call.op == "attention_hvp":
            return attention_gradients(q, k, v, call.arrays["d_out"], **call.options)["q"]
        return attention(q, k, v, **call.options).out

    return (value(STEP) - value(-STEP)) / (2 * STEP)
