"""Where a black-box attention departs from the oracle first, found by calling it again in ever fuller forms.

With V = identity an attention's output *is* its weights. So the function is called with q, k and scale alone, then
with the soft-cap, with what is added to the scores, with the masks, with the sinks, each time on identity blocks, and
last with its own V. The first form whose result leaves its bound names the stage: everything before it was right.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..bounds import bound_call
from ..call import Call, Target, Unsupported
from ..targets.posing import spelled_out

STAGES = ("scores", "capped", "biased", "masked", "weights", "output")
# Arguments that come in with each stage; what is not named here (path, compiled, ...) is always there.
ENTERS = {
    "softcap": "capped",
    "alibi": "biased",
    "bias": "biased",
    "q_offset": "biased",
    "causal": "masked",
    "window": "masked",
    "kv_lengths": "masked",
    "segments": "masked",
    "q_segments": "masked",
    "kv_segments": "masked",
    "sinks": "weights",
}
RULES = ("causal", "window", "mask", "kv_lengths", "segments", "q_segments")
# Identity blocks tried at most for one stage; a long row is sampled, its ends included.
MOST_BLOCKS = 16


@dataclass(frozen=True)
class Departure:
    """The worst element of a result: where, what was found, what was expected, and the bound."""

    output: str
    index: tuple[int, ...]
    actual: float
    expected: float
    limit: float
    headroom: float


@dataclass(frozen=True)
class Finding:
    """What one stage said: ``departs`` is None where it could not be asked (``remark`` says why)."""

    stage: str
    departs: bool | None
    headroom: float = 0.0
    worst: Departure | None = None
    remark: str = ""


def worst_of(target: Target, call: Call) -> Departure | None:
    """Run a call and return its worst element against the bounds (``None``: empty result).

    Raises Unsupported, and whatever the implementation raises.
    """
    reason = target.supports(call)
    if reason is not None:
        raise Unsupported(reason)
    result = target.run(call)
    bounds = bound_call(call, target.precision(call.dtype))
    found: list[Departure] = []
    for name in call.outputs:
        actual, bound = result.outputs[name], bounds[name]
        if actual.shape != bound.value.shape:
            raise ValueError(f"{name} has shape {actual.shape}, expected {bound.value.shape}")
        headroom = bound.headroom(actual)
        if headroom.size == 0:
            continue
        index = tuple(int(n) for n in np.unravel_index(int(np.argmax(headroom)), headroom.shape))
        value = float(np.asarray(actual).astype(np.float64)[index])
        limit = float(np.broadcast_to(bound.limit, headroom.shape)[index])
        found.append(Departure(name, index, value, float(bound.value[index]), limit, float(headroom[index])))
    return max(found, key=lambda d: d.headroom, default=None)


def probe(target: Target, call: Call) -> list[Finding]:
    """Every stage of an attention call in order, up to and with the first that departs."""
    findings = []
    for stage in STAGES:
        if stage not in ("scores", "masked", "output") and not _enters(call, stage):
            continue
        finding = _ask(target, call, stage)
        findings.append(finding)
        if finding.departs:
            break
    return findings


def guilty_rules(target: Target, call: Call) -> list[str]:
    """The masking arguments that already depart when each stands alone."""
    found = []
    for rule in RULES:
        if rule not in call.arrays and call.options.get(rule) in (None, False):
            continue
        others = {name for name in RULES if name != rule} - ({"kv_segments"} if rule == "q_segments" else set())
        others |= {"kv_segments"} if rule != "q_segments" else set()
        alone = _without(reduced(call, "masked"), others | {"q_offset"} if rule in ("mask", "segments") else others)
        if _ask_weights(target, alone, "masked").departs:
            found.append("segments" if rule == "q_segments" else rule)
    return found


def reduced(call: Call, stage: str) -> Call:
    """The call with the arguments that enter up to a stage."""
    depth = STAGES.index(stage)
    call = spelled_out(call)
    late = {name for name, enters in ENTERS.items() if STAGES.index(enters) > depth}
    cut = _without(replace(call, op="attention", outputs=_outputs(call)), late | {"d_out", "d_lse"})
    mask = call.arrays.get("mask")
    if depth < STAGES.index("masked"):
        if mask is not None:
            finite = None
            if mask.dtype != np.bool_ and stage == "biased":
                finite = np.where(np.isfinite(mask.astype(np.float64)), mask, np.zeros((), mask.dtype))
            cut = cut.with_arrays(mask=finite)
        # Keys that a later stage hides may hold NaN; before it, they must not.
        keys = np.nan_to_num(cut.arrays["k"].astype(np.float64), posinf=0, neginf=0)
        cut = cut.with_arrays(k=keys.astype(cut.arrays["k"].dtype))
    return cut


def _ask(target: Target, call: Call, stage: str) -> Finding:
    if stage != "output":
        return _ask_weights(target, reduced(call, stage), stage)
    return _said(stage, lambda: worst_of(target, reduced(call, stage)))


def _ask_weights(target: Target, call: Call, stage: str) -> Finding:
    """Compare the weights, read through identity blocks in the place of V, and the LSE where the call asks for it."""

    def worst() -> Departure | None:
        found: list[Departure] = []
        for first, block in _identity_blocks(call):
            departure = worst_of(target, call.with_arrays(v=block))
            if departure is None:
                continue
            if departure.output == "out":
                *row, channel = departure.index
                departure = replace(departure, output="weights", index=(*row, first + channel))
            found.append(departure)
        return max(found, key=lambda d: d.headroom, default=None)

    return _said(stage, worst)


def _said(stage: str, worst: Any) -> Finding:
    try:
        departure = worst()
    except Unsupported as reason:
        return Finding(stage, None, remark=f"not asked: {reason}")
    except Exception as error:  # the implementation's answer to this form of the call
        return Finding(stage, True, float("inf"), remark=f"{type(error).__name__}: {error}")
    if departure is None:
        return Finding(stage, False)
    return Finding(stage, not departure.headroom <= 1, departure.headroom, departure)


def _identity_blocks(call: Call) -> Iterator[tuple[int, np.ndarray]]:
    """(first key, V) with V = 1 where the channel is the key's number in the block; D_v stays what it was."""
    v = call.arrays["v"]
    B, N_kv, T_kv, D_v = v.shape
    starts = list(range(0, T_kv, D_v))
    if len(starts) > MOST_BLOCKS:
        starts = sorted({starts[int(n)] for n in np.linspace(0, len(starts) - 1, MOST_BLOCKS)})
    for first in starts:
        block = np.zeros((B, N_kv, T_kv, D_v), v.dtype)
        for channel in range(min(D_v, T_kv - first)):
            block[:, :, first + channel, channel] = 1
        yield first, block


def _enters(call: Call, stage: str) -> bool:
    mask = call.arrays.get("mask")
    if stage == "biased" and mask is not None and mask.dtype != np.bool_:
        return True
    given = set(call.arrays) | {name for name, value in call.options.items() if value not in (None, False)}
    return any(enters == stage for name, enters in ENTERS.items() if name in given and name != "q_offset")


def _without(call: Call, names: set[str]) -> Call:
    arrays = {name: array for name, array in call.arrays.items() if name not in names}
    options = {name: value for name, value in call.options.items() if name not in names}
    layout = {name: value for name, value in call.layout.items() if name in arrays}
    return replace(call, arrays=arrays, options=options, layout=layout)


def _outputs(call: Call) -> tuple[str, ...]:
    return tuple(name for name in call.outputs if name in ("out", "lse")) or ("out",)
