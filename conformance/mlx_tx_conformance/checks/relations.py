"""Checks that hold one call's result to another's: no expected values, only relations between answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from ..call import Call, Result
from ..inputs import build_call
from ..outcome import Outcome, failed, passed
from ..spec.expand import changed
from .compare import first_difference, float64, merge, within_sum
from .context import Context
from .registry import check
from .transforms import TRANSFORMS


@check
def agrees(
    context: Context,
    transform: str | None = None,
    bitwise: bool = False,
    outputs: list[str] | None = None,
    **changes: Any,
) -> Outcome:
    """The call and a changed form of it give the same numbers (bit for bit where ``bitwise``).

    ``with`` holds what changes: ``call``, ``inputs`` and ``layout`` as in a case (a null removes), and ``transform``
    one of the named transforms.
    """
    other = altered(context, changes.get("with", {}), transform)
    return _same(context, context.call, other, bitwise, outputs)


@check
def same_for(context: Context, bitwise: bool = False, **variables: list[Any]) -> Outcome:
    """The result is the same for every value of one variable of the call (an option, or a layout by array)."""
    ((name, values),) = variables.items()
    calls = [_with_value(context.call, name, value) for value in values]
    return merge(_same(context, calls[0], call, bitwise, None) for call in calls[1:])


@check
def equivariant(context: Context, permute: str) -> Outcome:
    """Permuting heads, batch rows, keys, or positions permutes the outputs the same way (keys: leaves them alone)."""
    call = context.call
    q, k = call.arrays["q"], call.arrays["k"]
    if permute == "keys":
        return agrees(context, transform="reverse_keys")
    if permute == "heads":
        kv_order = _moved(k.shape[1])
        group = q.shape[1] // k.shape[1]
        order = (kv_order[:, None] * group + _moved(group)).reshape(-1)
        moved = {name: call.arrays[name][:, order if name == "q" else kv_order] for name in ("q", "k", "v")}
        for name in ("mask", "bias"):
            array = call.arrays.get(name)
            if array is not None and array.ndim >= 3 and array.shape[-3] == q.shape[1]:
                moved[name] = np.take(array, order, axis=array.ndim - 3)
        for name in ("sinks", "alibi"):
            if name in call.arrays:
                moved[name] = call.arrays[name][..., order]
        axis = 1
    elif permute == "batch":
        order, axis = _moved(q.shape[0]), 0
        moved = {name: array[order] if _has_batch(call, name) else array for name, array in call.arrays.items()}
    else:
        order, axis = _moved(q.shape[2]), 2
        moved = {name: call.arrays[name][:, :, order] for name in ("q", "k", "v")}
    before, after = context.run(), context.run(call.with_arrays(**moved))
    bounds = context.bounds()
    return merge(
        within_sum(
            name,
            np.take(before.outputs[name], order, axis=axis),
            after.outputs[name],
            2 * np.take(bounds[name].limit, order, axis=axis),
        )
        for name in call.outputs
    )


@check
def linear(context: Context) -> Outcome:
    """The output is linear in V: f(2 v + w) = 2 f(v) + f(w), up to the bounds of the three calls."""
    call = replace(context.call, outputs=("out",))
    dtype = call.arrays["v"].dtype
    rng = np.random.Generator(np.random.PCG64(context.case.seed))
    v, w = (rng.integers(-8, 9, call.arrays["v"].shape).astype(dtype) for _ in range(2))
    calls = [call.with_arrays(v=x) for x in (v, w, (2 * v + w).astype(dtype))]
    fv, fw, both = (context.run(c).outputs["out"] for c in calls)
    limits = [context.bounds(c)["out"].limit for c in calls]
    return within_sum("out", 2 * float64(fv) + float64(fw), both, 2 * limits[0] + limits[1] + limits[2])


@check
def deterministic(context: Context, repeats: int = 3) -> Outcome:
    """The same call gives the same bits every time."""
    first = context.run()
    for n in range(1, repeats):
        again = context.run()
        for name in context.call.outputs:
            difference = first_difference(name, first.outputs[name], again.outputs[name])
            if difference:
                return failed(f"repeat {n} differs: {difference}")
    return passed()


@check
def batch_invariant(context: Context) -> Outcome:
    """A batch row gives the same alone as among its batch mates, up to the bounds."""
    call = context.call
    whole, bounds = context.run(), context.bounds()
    outcomes = []
    for b in range(call.arrays["q"].shape[0]):
        alone = call.with_arrays(
            **{name: array[b : b + 1] for name, array in call.arrays.items() if _has_batch(call, name)}
        )
        result = context.run(alone)
        for name in call.outputs:
            limit = 2 * bounds[name].limit[b : b + 1]
            outcomes.append(within_sum(name, result.outputs[name], whole.outputs[name][b : b + 1], limit))
    return merge(outcomes)


@check
def chunk_invariant(context: Context, chunks: list[int]) -> Outcome:
    """Queries fed in chunks, each with its q_offset, give what they give all at once."""
    call = context.call
    q = call.arrays["q"]
    T_q, T_kv = q.shape[2], call.arrays["k"].shape[2]
    whole, bounds = context.run(), context.bounds()
    outcomes = []
    for size in chunks:
        pieces: dict[str, list[np.ndarray]] = {name: [] for name in call.outputs}
        for start in range(0, T_q, size):
            piece = slice(start, min(start + size, T_q))
            arrays: dict[str, np.ndarray | None] = {"q": q[:, :, piece]}
            for name in ("mask", "bias"):
                array = call.arrays.get(name)
                if array is not None and array.ndim >= 2 and array.shape[-2] == T_q:
                    arrays[name] = array[..., piece, :]
            if "q_segments" in call.arrays:
                arrays["q_segments"] = call.arrays["q_segments"][:, piece]
            part = call.with_arrays(**arrays)
            if "q_offset" in call.arrays:
                part = part.with_arrays(q_offset=call.arrays["q_offset"] + start)
            else:
                part = part.with_options(q_offset=call.options.get("q_offset", T_kv - T_q) + start)
            result = context.run(part)
            for name in call.outputs:
                pieces[name].append(result.outputs[name])
        for name in call.outputs:
            joined = np.concatenate([float64(x) for x in pieces[name]], axis=2)
            outcomes.append(within_sum(name, joined, whole.outputs[name], 2 * bounds[name].limit))
    return merge(outcomes)


@check
def compiled_equals_eager(context: Context) -> Outcome:
    """Compiled and eager runs agree, up to the bounds of both."""
    return _same(context, context.call, context.call.with_options(compiled=True), False, None)


@check
def inputs_unmutated(context: Context) -> Outcome:
    """The call leaves its inputs as they were (every run of every check looks at this; here it is the clause)."""
    context.run()
    return passed()


@check
def path_is(context: Context, path: str) -> Outcome:
    """The path that ran is the one named."""
    ran = context.run().path
    return passed() if ran == path else failed(f"path {path!r} was asked for and {ran!r} ran")


@check
def order_does_not_matter(context: Context) -> Outcome:
    """Each call of ``steps`` gives the same bits first, last, and after any of the others."""
    calls = [altered(context, step, None) for step in context.case.steps]
    alone: list[Result] = [context.run(call) for call in calls]
    for order in (range(len(calls)), reversed(range(len(calls)))):
        for n in order:
            again = context.run(calls[n])
            for name in calls[n].outputs:
                difference = first_difference(name, alone[n].outputs[name], again.outputs[name])
                if difference:
                    return failed(f"step {n + 1} gives another result after the other calls: {difference}")
    return passed()


def altered(context: Context, changes: Mapping[str, Any], transform: str | None) -> Call:
    """The case's call with some of its options, inputs and layouts changed; arrays not named keep their values."""
    call = context.call
    if changes:
        # A design may look at the options, so arrays that the changes do not name come from the first call.
        rebuilt = build_call(changed(context.case, changes))
        kept = {n: a for n, a in call.arrays.items() if n in rebuilt.arrays and n not in changes.get("inputs", {})}
        call = replace(rebuilt, arrays={**rebuilt.arrays, **kept})
    return call if transform is None else TRANSFORMS[transform](call)


def _moved(n: int) -> np.ndarray:
    """An order of n things that is not the given one (a random one might be) and, from four on, no mere reversal."""
    order = np.arange(n)[::-1]
    return np.roll(order, 1) if n > 3 else order


def _with_value(call: Call, name: str, value: Any) -> Call:
    if name == "layout":
        layout = value if isinstance(value, Mapping) else dict.fromkeys(("q", "k", "v"), value)
        return replace(call, layout=layout)
    return call.with_options(**{name: value})


def _same(context: Context, one: Call, other: Call, bitwise: bool, outputs: list[str] | None) -> Outcome:
    names = outputs or list(one.outputs)
    a, b = context.run(one), context.run(other)
    if bitwise:
        for name in names:
            difference = first_difference(name, a.outputs[name], b.outputs[name])
            if difference:
                return failed(f"the two forms of the call must give the same bits: {difference}")
        return passed()
    bound_a, bound_b = context.bounds(one), context.bounds(other)
    return merge(
        within_sum(name, a.outputs[name], b.outputs[name], bound_a[name].limit + bound_b[name].limit) for name in names
    )


def _has_batch(call: Call, name: str) -> bool:
    """Whether the first axis of an array is the batch (and not one that broadcasts)."""
    B = call.arrays["q"].shape[0]
    array = call.arrays[name]
    if name in ("sinks",):
        return False
    if name in ("mask", "bias"):
        return array.ndim == 4 and array.shape[0] == B
    if name == "alibi":
        return array.ndim == 2
    return array.ndim >= 1 and array.shape[0] == B
