"""Checks of one call's values against the oracle."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..bounds import quality
from ..bounds import score_test as fit_scale
from ..call import DTYPES
from ..outcome import Outcome, failed, passed
from .compare import against_bounds, first_difference, float64, merge
from .context import Context
from .registry import check

# |z| above which the fit of a scale error counts as a scale error; correct code stays below 0.7 (BOUNDS.md).
SCORE_TEST_THRESHOLD = 2.0


@check
def equals_oracle(context: Context, outputs: list[str] | None = None) -> Outcome:
    """Every element of the outputs lies within its a-priori bound of the float64 oracle."""
    result = context.run()
    bounds = context.bounds()
    outcome = against_bounds(context.call, result, bounds, outputs or context.call.outputs)
    if outcome.verdict != "pass":
        return outcome
    remark = quality(context.call, result, bounds)
    return replace(outcome, verdict="weak", message=remark) if remark else outcome


@check
def exactly(context: Context, ulp: int = 0, outputs: list[str] | None = None) -> Outcome:
    """The outputs are the oracle's values rounded to the dtype, bit for bit (or within ``ulp`` units)."""
    result = context.run()
    bounds = context.bounds()
    for name in outputs or context.call.outputs:
        actual = result.outputs[name]
        dtype = np.dtype(np.float32) if name == "lse" else DTYPES[context.call.dtype]
        expected = bounds[name].value.astype(dtype)
        if actual.dtype != dtype:
            return failed(f"{name} has dtype {actual.dtype}, expected {dtype}")
        if ulp == 0:
            difference = first_difference(name, expected, actual)
            if difference:
                return failed(f"exact value expected: {difference}")
            continue
        if actual.shape != expected.shape:
            return failed(f"{name} has shape {actual.shape}, expected {expected.shape}")
        spacing = _ulp(expected, dtype)
        off = np.abs(float64(actual) - float64(expected)) > ulp * spacing
        off |= ~np.isfinite(float64(actual))
        if off.any():
            index = tuple(int(i) for i in np.argwhere(off)[0])
            return failed(
                f"{name}[{','.join(map(str, index))}] = {float64(actual)[index]:.9g} is more than {ulp} ulp "
                f"from {float64(expected)[index]:.9g}"
            )
    return passed()


@check
def rows_sum_to_one(context: Context) -> Outcome:
    """With V = 1 every output is the sum of its row's weights: 1 (less the sink's weight; 0 for an empty row)."""
    ones = np.ones_like(context.call.arrays["v"])
    call = replace(context.call.with_arrays(v=ones), outputs=("out",))
    return against_bounds(call, context.run(call), context.bounds(call), ("out",))


@check
def in_hull(context: Context) -> Outcome:
    """Every output lies between the least and the greatest value of V in its channel, up to its bound."""
    call = replace(context.call, outputs=("out",))
    out = float64(context.run(call).outputs["out"])
    limit = context.bounds(call)["out"].limit
    v = float64(call.arrays["v"])
    group = out.shape[1] // v.shape[1]
    low = np.repeat(v.min(axis=2, keepdims=True), group, axis=1)
    high = np.repeat(v.max(axis=2, keepdims=True), group, axis=1)
    outside = (out < low - limit) | (out > high + limit) | ~np.isfinite(out)
    if outside.any():
        index = tuple(int(i) for i in np.argwhere(outside)[0])
        return failed(
            f"out[{','.join(map(str, index))}] = {out[index]:.9g} lies outside the range of V in its channel, "
            f"[{np.broadcast_to(low, out.shape)[index]:.9g}, {np.broadcast_to(high, out.shape)[index]:.9g}]"
        )
    return passed()


@check
def finite(context: Context) -> Outcome:
    """No output is NaN or infinite (a log-sum-exp may be -inf where a row is empty)."""
    result = context.run()
    for name in context.call.outputs:
        array = float64(result.outputs[name])
        bad = np.isnan(array) | (array == np.inf) if name == "lse" else ~np.isfinite(array)
        if bad.any():
            index = tuple(int(i) for i in np.argwhere(bad)[0])
            return failed(f"{name}[{','.join(map(str, index))}] is {array[index]}")
    return passed()


@check
def score_test(context: Context) -> Outcome:
    """Fit the error to the derivative by the scale: finds a wrong scale below the element-wise bound, and names it."""
    result = context.run()
    bounds = context.bounds()
    held = against_bounds(context.call, result, bounds, context.call.outputs)
    fit = fit_scale(context.call, result, bounds)
    if abs(fit.z) > SCORE_TEST_THRESHOLD:
        return failed(
            f"the error fits a scale that is wrong by a factor {1 + fit.eps:.6g} (z = {fit.z:.3g}, allowed "
            f"{SCORE_TEST_THRESHOLD:g})",
            details={"z": fit.z, "eps": fit.eps},
        )
    return merge([held])


def _ulp(values: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Distance between neighbouring numbers of the dtype at each value."""
    import ml_dtypes

    info = ml_dtypes.finfo(dtype)
    magnitude = np.abs(float64(values))
    exponent = np.floor(np.log2(np.maximum(magnitude, float(info.tiny))))
    return np.exp2(exponent - info.nmant)
