"""Posing one argument through another, so that a function which takes only a mask can be held to the mask clauses.

A causal mask, a window, a query offset and segments are boolean masks; a bias is an additive mask (an adapter that
knows its implementation poses it so). Nothing else is: lengths promise that keys do not exist, a soft-cap and sinks
change the formula, and ALiBi in a mask would be rounded to the mask's dtype.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from ..call import Call, Unsupported

BOOLEAN = ("causal", "window", "segments", "q_offset")
POSABLE = frozenset((*BOOLEAN, "bias"))


def pose_as_mask(call: Call, arguments: frozenset[str]) -> Call:
    """The call with the named arguments turned into its ``mask``.

    Raises Unsupported where they cannot be: an ill-formed argument (the function never sees it, so it cannot refuse
    it), a gradient by a mask or bias that would change its shape, or values that the mask's dtype would round.
    """
    if not arguments & POSABLE:
        return call
    names = ", ".join(sorted(arguments & POSABLE))
    if call.op == "attention_gradients" and {"mask", "bias"} & set(call.outputs):
        raise Unsupported(f"no argument {names}, and posed through mask its gradient would be another array")
    mask = call.arrays.get("mask")
    if mask is not None and mask.dtype.kind in "iu":
        raise Unsupported(f"no argument {names}, and an integer mask cannot be combined with it")
    additive = _additive(call, arguments, mask)
    allowed = _allowed(call, arguments)
    if allowed is None:
        posed = additive if additive is not None else mask
    elif additive is not None:
        posed = np.where(allowed, additive, np.asarray(-np.inf, additive.dtype))
    elif mask is not None:
        posed = mask & allowed
    else:
        posed = allowed
    return _without(call, arguments, posed)


def spelled_out(call: Call) -> Call:
    """The call with ``mask="causal"`` written as ``causal=True``: the same thing under one name."""
    if call.options.get("mask") != "causal":
        return call
    return call.with_options(mask=None, causal=True)


def _allowed(call: Call, arguments: frozenset[str]) -> np.ndarray | None:
    """The boolean rules among the arguments as one array [B or 1, 1, T_q, T_kv]."""
    T_q, T_kv = call.arrays["q"].shape[2], call.arrays["k"].shape[2]
    rules: list[np.ndarray] = []
    offset = _offset(call, T_q, T_kv)
    i = np.arange(T_q)[:, None] + offset  # [1 or B, 1, T_q, 1] positions of the queries
    j = np.arange(T_kv)[None, :]
    if call.options.get("causal") and "causal" in arguments:
        rules.append(j <= i)
    window = call.options.get("window")
    if window is not None and "window" in arguments:
        rules.append(_window(window, i, j))
    if "segments" in arguments:
        q_segments, kv_segments = segments_of(call)
        if q_segments is not None and kv_segments is not None:
            rules.append(q_segments[:, None, :, None] == kv_segments[:, None, None, :])
    if not rules:
        return None
    allowed = rules[0]
    for rule in rules[1:]:
        allowed = allowed & rule
    return np.ascontiguousarray(allowed)


def _window(window: Any, i: np.ndarray, j: np.ndarray) -> np.ndarray:
    if isinstance(window, int) and not isinstance(window, bool) and window >= 1:
        return (j <= i) & (i - j < window)
    try:
        left, right = window
        if all(side is None or (isinstance(side, int) and side >= 0) for side in (left, right)):
            everywhere = np.ones(np.broadcast_shapes(i.shape, j.shape), dtype=bool)
            after = everywhere if left is None else j >= i - left
            return after if right is None else after & (j <= i + right)
    except (TypeError, ValueError):
        pass
    raise Unsupported("no argument window (this value cannot be posed through mask)")


def _additive(call: Call, arguments: frozenset[str], mask: np.ndarray | None) -> np.ndarray | None:
    """The floating mask that the arguments make together, or ``None`` if there is nothing floating to pose."""
    bias = call.arrays.get("bias") if "bias" in arguments else None
    if mask is None or mask.dtype == np.bool_:
        if bias is None or mask is None:
            return bias
        return np.where(mask, bias, np.asarray(-np.inf, bias.dtype))
    if bias is not None:
        raise Unsupported("no argument bias beside an additive mask")
    return mask


def _offset(call: Call, T_q: int, T_kv: int) -> np.ndarray:
    """The queries' offset as [1 or B, 1, 1, 1]."""
    offset = call.arrays.get("q_offset", call.options.get("q_offset"))
    if offset is None:
        offset = T_kv - T_q
    return np.asarray(offset, np.int64).reshape(-1, 1, 1, 1)


def segments_of(call: Call) -> tuple[np.ndarray | None, np.ndarray | None]:
    """The segment ids of queries and keys, [B, T_q] and [B, T_kv], or a pair of ``None``."""
    if "segments" in call.arrays:
        return call.arrays["segments"], call.arrays["segments"]
    return call.arrays.get("q_segments"), call.arrays.get("kv_segments")


def _without(call: Call, arguments: frozenset[str], mask: np.ndarray | None) -> Call:
    keep: Callable[[str], bool] = lambda name: name not in arguments  # noqa: E731
    gone = {"q_segments", "kv_segments"} if "segments" in arguments else set()
    arrays = {name: array for name, array in call.arrays.items() if keep(name) and name not in gone}
    if mask is not None:
        arrays["mask"] = mask
    layout = {name: value for name, value in call.layout.items() if name in arrays and name != "mask"}
    options = {name: value for name, value in call.options.items() if keep(name)}
    return replace(call, arrays=arrays, options=options, layout=layout)
