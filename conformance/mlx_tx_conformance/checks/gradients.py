"""Checks of gradients through whole models."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any

import numpy as np

from ..call import Call
from ..inputs import build_call
from ..oracle.model_gradients import STENCIL
from ..oracle.parameters import parameter_shapes
from ..oracle.record import Recorder
from ..oracle.rnn import first_input_jacobian
from ..outcome import Outcome, failed, passed
from ..spec.expand import at, changed
from ..spec.expr import evaluate
from .compare import float64
from .context import Context
from .models import end_of, model_of
from .registry import check

# Score of the key that a query looks for: far above what chance gives to any number of others here.
SOUGHT = 20.0
# What a gradient may be off by along a random direction, in units of its usual size along one; a wrong rule is off by
# about 1. Float32 roundings through a small model reach 1e-5.
WITHIN: Mapping[str, float] = {"float32": 1e-3, "float16": 0.2, "bfloat16": 0.8}


@check
def parameters_are(context: Context, present: list[str] | None = None, absent: list[str] | None = None) -> Outcome:
    """The trainable parameters are exactly those of the configuration; ``present`` and ``absent`` name some by glob."""
    found = set(context.run().outputs) - {"embedded"}
    expected = set(parameter_shapes(context.call.options["config"]))
    if found != expected:
        extra, missing = sorted(found - expected), sorted(expected - found)
        return failed(f"trainable parameters must be those of the configuration; missing {missing}, unknown {extra}")
    for glob in absent or ():
        wrong = [name for name in sorted(found) if fnmatchcase(name, glob)]
        if wrong:
            return failed(f"there must be no parameter {glob}; there is {', '.join(wrong)}")
    for glob in present or ():
        if not any(fnmatchcase(name, glob) for name in found):
            return failed(f"there must be a parameter {glob}; there are {', '.join(sorted(found))}")
    return passed(f"{len(found)} parameters")


@check
def gradient_rows(context: Context, of: str, rows: str | None = None) -> Outcome:
    """The gradient of a table is not zero exactly in the rows where ``rows`` holds; by default of tokens that occur."""
    gradient = float64(context.run().outputs[of])
    reached = (gradient != 0).any(axis=-1)
    if rows is None:
        wanted = np.isin(np.arange(len(gradient)), context.call.arrays["tokens"])
    else:
        holds = evaluate(rows, {**context.case.dims, "i": np.arange(len(gradient))})
        wanted = np.broadcast_to(np.asarray(holds, dtype=bool), reached.shape)
    wrong = reached != wanted
    if wrong.any():
        row = int(np.argmax(wrong))
        return failed(f"the gradient {'reaches' if reached[row] else 'misses'} row {row} of {of}")
    return passed(f"{int(wanted.sum())} of {len(wanted)} rows")


@check
def gradient_equals_difference(context: Context) -> Outcome:
    """The gradient by all parameters together, along a random direction, is the oracle's central difference."""
    call = context.call
    found = context.run().outputs
    rng = np.random.Generator(np.random.PCG64(context.case.seed))
    model = model_of(call)
    direction = {name: rng.standard_normal(w.shape) for name, w in model.weights.items()}
    length = np.sqrt(sum(float((d * d).sum()) for d in direction.values()))
    direction = {name: d / length for name, d in direction.items()}
    d_logits = float64(call.arrays["d_logits"])

    def loss(h: float) -> float:
        moved = {name: w + h * direction[name] for name, w in model.weights.items()}
        record = replace(model, weights=moved).run(Recorder())
        return float((record.values[end_of(call)] * d_logits).sum())

    step = 1e-3
    expected = sum(share * loss(k * step) for k, share in STENCIL) / step
    actual = sum(float((float64(found[name]) * d).sum()) for name, d in direction.items())
    size = np.sqrt(sum(float((float64(found[name]) ** 2).sum()) for name in direction)) / np.sqrt(
        sum(d.size for d in direction.values())
    )
    off = abs(actual - expected) / size
    if not off <= WITHIN[call.dtype]:
        return failed(
            f"along a direction the gradient is {actual:.9g}, the oracle's difference {expected:.9g}: off by {off:.3g} "
            "of the gradient's usual size along one",
            details={"actual": actual, "expected": expected},
        )
    return passed(f"off by {off:.2g} of its size", details={"off": off})


@check
def gradient_with_depth(
    context: Context, layers: list[int], at_least: float | None = None, at_most: float | None = None
) -> Outcome:
    """The size of the gradient at the embedded tokens in a stack of so many layers, over that in the shallowest."""
    sizes = []
    for number in layers:
        config = {**context.call.options["config"], "num_layers": number}
        call = build_call(changed(context.case, {"call": {"config": config}}))
        sizes.append(_norm(call, context))
    ratios = [size / sizes[0] for size in sizes]
    details = {"layers": layers, "sizes": sizes}
    if at_most is not None and not max(ratios) <= at_most:
        return failed(f"with depth {layers} the gradient at the input grows to {max(ratios):.3g}", details=details)
    if at_least is not None and not min(ratios) >= at_least:
        return failed(f"with depth {layers} the gradient at the input shrinks to {min(ratios):.3g}", details=details)
    return passed(f"ratios {', '.join(f'{r:.3g}' for r in ratios)}", details=details)


@check
def gradient_reach(context: Context, sizes: list[int], flat_within: float, vanishes_below: float) -> Outcome:
    """The norm of the gradient of the last output by the first value, over the length: flat where the last query asks
    for the first key. The same of a plain RNN whose state keeps nine tenths of its size at each step fades with each.
    """
    norms, faded = [], []
    for T in sizes:
        call = build_call(at(context.case, T=T))
        q, k = call.arrays["q"], call.arrays["k"].copy()
        # The last query's score with the first key is SOUGHT, so that its weight does not depend on T.
        last = float64(q[:, :, -1])
        k[:, :, 0] = (SOUGHT * np.sqrt(q.shape[-1]) * last / (last**2).sum(-1, keepdims=True)).astype(k.dtype)
        d_out = np.zeros_like(call.arrays["d_out"])
        d_out[:, :, -1] = 1
        gradient = float64(context.run(call.with_arrays(k=k, d_out=d_out)).outputs["v"])[:, :, 0]
        norms.append(float(np.sqrt((gradient**2).sum())))
        rng = np.random.Generator(np.random.PCG64(context.case.seed))
        w_x, w_h = rng.standard_normal((2, 8, 8))
        w_h = 0.9 * w_h / np.max(np.abs(np.linalg.eigvals(w_h)))
        jacobian = first_input_jacobian(rng.standard_normal((1, T, 8)), w_x, w_h)
        faded.append(float(np.sqrt((jacobian**2).sum())))
    details = {"sizes": sizes, "attention": norms, "rnn": faded}
    listed = ", ".join(f"{norm:.4g}" for norm in norms)
    if not max(norms) <= (1.0 + flat_within) * min(norms) or min(norms) == 0:
        return failed(
            f"over {sizes} tokens the gradient of the last output by the first input is {listed}", details=details
        )
    if not faded[-1] <= vanishes_below * faded[0]:
        return failed(f"the RNN's gradient stays at {faded[-1] / faded[0]:.3g}", details=details)
    return passed(f"attention {listed}; the RNN keeps {faded[-1] / faded[0]:.2g}", details=details)


@check
def figure_ratio(context: Context, figure: str, ratio: float, **changes: Any) -> Outcome:
    """A figure of the call over that of the call with what ``with`` changes, exactly ``ratio``."""
    calls = (context.call, build_call(changed(context.case, changes["with"])))
    for call in calls:
        context.require(call)
    first, other = (float(context.target.figure(call, figure)) for call in calls)
    if first != ratio * other:
        return failed(f"{figure} is {first:,.0f}, and {other:,.0f} in the changed call: expected {ratio:g} times that")
    return passed(f"{first:,.0f} and {other:,.0f}")


def _norm(call: Call, context: Context) -> float:
    gradient = float64(context.run(call).outputs["embedded"])
    return float(np.sqrt((gradient**2).mean()))
