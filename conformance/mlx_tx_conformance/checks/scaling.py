"""Checks of how something grows: laws over many runs, and what the scale 1/sqrt(D) is for."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..inputs import build_call
from ..outcome import Outcome, failed, passed
from ..spec.count_checks import KERNEL_FIGURES
from ..spec.expand import at
from .compare import float64
from .context import Context
from .registry import check


@check
def law(
    context: Context,
    exponent_at_most: float | None = None,
    exponent_at_least: float | None = None,
    at_most: float | None = None,
    tolerance: float = 0.0,
    flat_within: float | None = None,
) -> Outcome:
    """A figure measured over several sizes follows a power of the size.

    The exponent comes from successive differences, log((f3 - f2) / (f2 - f1)) / log(ratio of sizes), so that a constant
    part of the figure does not hide it; the largest over all triples is held to the limits. ``at_most`` bounds the
    figure at the largest size, ``flat_within`` how far the largest is above the smallest (0.1: by a tenth). Sizes must
    grow by a constant ratio where an exponent is asked for.
    """
    over = dict(context.case.over)
    figure = over.pop("figure")
    ((variable, sizes),) = over.items()
    values = [_measure(context, figure, variable, size) for size in sizes]
    details = {"figure": figure, variable: list(sizes), "values": values}
    if at_most is not None and values[-1] > at_most:
        return failed(
            f"{figure} at {variable}={sizes[-1]} is {values[-1]:,.0f}, allowed {at_most:,.0f}", details=details
        )
    if flat_within is not None and max(values) > (1.0 + flat_within) * min(values):
        return failed(
            f"{figure} must not depend on {variable}; over {list(sizes)} it is {_listed(values)}", details=details
        )
    exponents = successive_exponents(list(sizes), values)
    details["exponents"] = exponents
    if exponent_at_most is not None and max(exponents) > exponent_at_most + tolerance:
        return failed(
            f"{figure} grows with {variable}^{max(exponents):.3g} over {list(sizes)} ({_listed(values)}), "
            f"allowed {exponent_at_most:g}",
            details=details,
        )
    if exponent_at_least is not None and min(exponents) < exponent_at_least - tolerance:
        return failed(
            f"{figure} grows with {variable}^{min(exponents):.3g} over {list(sizes)} ({_listed(values)}), "
            f"expected at least {exponent_at_least:g}",
            details=details,
        )
    return passed(f"{figure}: {_listed(values)}", details=details)


@check
def score_variance(context: Context, low: float = 0.8, high: float = 1.25) -> Outcome:
    """With q and k of unit variance the scores have variance about 1, read back from the weights of two keys.

    V = (1, 0) makes each output the weight p of the first of two keys; logit(p) = s_1 - s_2 has variance 2.
    """
    call = replace(context.call, outputs=("out",))
    v = np.zeros_like(call.arrays["v"])
    v[:, :, 0] = 1
    weight = float64(context.run(call.with_arrays(v=v)).outputs["out"])[..., 0]
    with np.errstate(divide="ignore", invalid="ignore"):
        variance = float(np.var(np.log(weight / (1 - weight))) / 2)
    D = call.arrays["q"].shape[-1]
    if not low <= variance <= high:
        return failed(f"scores of unit-normal q and k have variance {variance:.4g} at D = {D}, expected about 1")
    return passed(f"variance {variance:.4g}", details={"variance": variance, "D": D})


@check
def softmax_gradient_survives(context: Context, sizes: list[int], unscaled_below: float = 0.5) -> Outcome:
    """With the scale the softmax's slope 1 - sum p^2 does not depend on D; without it, it collapses as D grows."""
    slope = {}
    for scale in (None, 1.0):
        for D in sizes:
            call = build_call(at(context.case, D=D)).with_options(scale=scale)
            T_kv = call.arrays["k"].shape[2]
            eye = np.broadcast_to(np.eye(T_kv), (*call.arrays["v"].shape[:2], T_kv, T_kv))
            call = call.with_arrays(v=np.ascontiguousarray(eye.astype(call.arrays["q"].dtype)))
            p = float64(context.run(replace(call, outputs=("out",))).outputs["out"])
            slope[scale, D] = float(np.mean(1 - np.sum(p * p, axis=-1)))
    kept = slope[None, sizes[-1]] / slope[None, sizes[0]]
    lost = slope[1.0, sizes[-1]] / slope[1.0, sizes[0]]
    details = {"sizes": sizes, "scaled": kept, "unscaled": lost}
    if not 0.9 <= kept <= 1.1:
        return failed(
            f"from D = {sizes[0]} to {sizes[-1]} the scaled softmax's slope changes by {kept:.3g}", details=details
        )
    if not lost < unscaled_below:
        return failed(
            f"with scale = 1 the slope keeps {lost:.3g} of its size, so scale is not honoured", details=details
        )
    return passed(f"slope kept {kept:.3g} with the scale, {lost:.3g} without", details=details)


def successive_exponents(sizes: list[float], values: list[float]) -> list[float]:
    """Exponents of f(T) = a + b T^e from each three successive sizes with a constant ratio."""
    exponents = []
    for n in range(len(sizes) - 2):
        ratio = sizes[n + 1] / sizes[n]
        low, high = values[n + 1] - values[n], values[n + 2] - values[n + 1]
        if low <= 0 or high <= 0:
            exponents.append(0.0 if high <= 0 else float("inf"))
            continue
        exponents.append(float(np.log(high / low) / np.log(ratio)))
    return exponents


def _measure(context: Context, figure: str, variable: str, size: int) -> float:
    call = build_call(at(context.case, **{variable: size}))
    if figure in KERNEL_FIGURES and hasattr(context.target, "kernel_counts"):
        return float(context.kernel_counts(call).figures[figure])
    context.require(call)
    return float(context.target.figure(call, figure))


def _listed(values: list[float]) -> str:
    return ", ".join(f"{value:,.0f}" for value in values)
