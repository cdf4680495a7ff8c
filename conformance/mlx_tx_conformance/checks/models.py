"""Checks of whole models, stage by stage."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any

import numpy as np

from ..bounds import precision_class
from ..bounds.end_to_end import RMS_RATIO, Spread, end_to_end
from ..bounds.stages import Model, stage_bounds
from ..call import DTYPES, Call
from ..oracle.cache import Rule
from ..outcome import Outcome, failed, passed
from .compare import Worst, first_difference, float64, worst_element
from .context import Context
from .registry import check

_INPUTS = ("tokens", "source", "lengths", "left_padding", "source_lengths", "segments", "d_logits")


def model_of(call: Call) -> Model:
    """The oracle's model of a call: its weights in float64, and what hides tokens, a cache's rule included."""
    arrays, config, cache = call.arrays, call.options["config"], call.options.get("cache") or {}
    names = ("lengths", "left_padding", "segments", "source_lengths")
    options: dict[str, Any] = {name: arrays[name] for name in names if name in arrays}
    if cache.get("max_size") is not None:
        rule = Rule(cache["max_size"], cache.get("keep", 0))
        options["mask"] = rule.mask(arrays["tokens"].shape[1], arrays.get("left_padding"))
    if cache.get("bits") is not None:
        packing = {"bits": cache["bits"], "group_size": cache.get("group_size", 64)}
        options["kv_quantisation"] = {**packing, "dtype": DTYPES[call.dtype]}
    weights = {name: float64(array) for name, array in arrays.items() if name not in _INPUTS}
    inputs = (arrays["source"], arrays["tokens"]) if "source" in arrays else (arrays["tokens"],)
    return Model(config, weights, inputs, options)


def staged(context: Context, call: Call | None = None) -> Mapping[str, np.ndarray]:
    """Every stage of a run, by name."""
    call = context.call if call is None else call
    return context.run(call.with_options(stages=True)).outputs


def end_of(call: Call) -> str:
    """The name of the last stage."""
    return "decoder.logits" if "source" in call.arrays else "logits"


def spread_of(context: Context, call: Call | None = None) -> Spread:
    """The oracle's logits of a call with the spread of perturbed runs."""
    call = context.call if call is None else call
    precision = precision_class(context.target.precision(call.dtype))
    return end_to_end(model_of(call), end_of(call), call.dtype, precision)


def there(call: Call, stage: str) -> np.ndarray | None:
    """Which positions [B, T] of a stage exist; ``None``: all. Rows of padding mean nothing."""
    arrays = call.arrays
    source = stage.startswith("encoder.") or stage.endswith(("cross_attn.k", "cross_attn.v", "cross_attn.k_norm"))
    T = arrays["source" if source else "tokens"].shape[1]
    exists = np.ones((arrays["tokens"].shape[0], T), dtype=bool)
    for name, rule in (("source_lengths" if source else "lengths", np.less), ("left_padding", np.greater_equal)):
        if name in arrays and not (source and name == "left_padding"):
            exists &= rule(np.arange(T), arrays[name][:, None])
    return None if exists.all() else exists


def only_there(array: np.ndarray, exists: np.ndarray | None, other: Any) -> np.ndarray:
    """An array [B, ..., T, C] with ``other`` at positions that do not exist."""
    if exists is None:
        return array
    mask = exists.reshape(len(exists), *(1,) * (array.ndim - 3), exists.shape[1], 1)
    return np.where(mask, array, other)


def held_stages(
    call: Call, stages: Mapping[str, np.ndarray], precision: str
) -> Iterator[tuple[str, Worst | str | None]]:
    """Every stage in the order of the computation with its worst element against its bound, each computed from the
    implementation's own previous stages: ``None`` for an empty one, a text for one that cannot be held.

    Raises ``ValueError`` for a stage of a wrong shape.
    """
    # Rows of padding may hold anything, which must not reach the oracle as NaN.
    given = {name: np.nan_to_num(float64(array)) for name, array in stages.items() if not name.endswith(".weights")}
    if "source" in call.arrays:
        given.pop("logits", None)
    bounds = stage_bounds(model_of(call), given, call.dtype, precision_class(precision))
    for name, bound in bounds.items():
        exists = there(call, name)
        if name not in stages:
            yield name, f"there is no stage {name}; there are {', '.join(given)}"
        elif not bool(np.all(only_there(bound.decidable, exists, True))):
            yield name, f"not decidable: the bound of stage {name} says nothing for some of its elements"
        else:
            yield name, worst_element(name, only_there(float64(stages[name]), exists, bound.value), bound)


def hold_stages(call: Call, stages: Mapping[str, np.ndarray], precision: str) -> Outcome:
    """Every stage within its bound of the oracle's, computed from the implementation's own previous stages."""
    top, count = None, 0
    try:
        for _, found in held_stages(call, stages, precision):
            count += 1
            if isinstance(found, str):
                return Outcome("error", found) if found.startswith("not decidable") else failed(found)
            if found is not None and not found.headroom <= 1:
                return failed(f"stage {found}", headroom=found.headroom, details={"worst": found.as_dict()})
            if found is not None and (top is None or found.headroom > top.headroom):
                top = found
    except ValueError as error:
        return failed(str(error))
    details = {"stages": count} | ({} if top is None else {"worst": top.as_dict()})
    return passed(headroom=None if top is None else top.headroom, details=details)


@check
def stages_equal_oracle(context: Context, end: bool = True) -> Outcome:
    """Every intermediate of the model lies within its derived bound of the oracle's stage, which is computed from the
    implementation's own previous ones; and the logits lie within the spread of perturbed oracle runs (``end``)."""
    call = context.call
    stages = staged(context)
    outcome = hold_stages(call, stages, context.target.precision(call.dtype))
    if outcome.verdict != "pass" or not end:
        return outcome
    spread, exists = spread_of(context), there(call, end_of(call))
    logits = only_there(float64(stages["logits"]), exists, spread.value)
    worst, ratio = spread.worst(logits), spread.rms_ratio(logits)
    details = {**outcome.details, "end_to_end": worst, "rms_ratio": ratio}
    if not (worst <= 1 and ratio <= RMS_RATIO):
        return failed(
            f"every stage is right by itself, but the logits are off by {worst:.3g} of what perturbed runs allow "
            f"(rms {ratio:.3g}, allowed {RMS_RATIO:g})",
            details=details,
        )
    return replace(outcome, details=details)


@check
def token_dependence(
    context: Context,
    change: str = "tokens",
    stage: str = "logits",
    changed: str | None = None,
    unchanged: str | None = None,
) -> Outcome:
    """Another token at position p changes a stage at the positions i where ``changed`` holds, and leaves it bit for bit
    the same where ``unchanged`` does. ``stage`` is a glob."""
    from ..spec.expr import evaluate

    call = context.call
    before = staged(context)
    names = [name for name in before if fnmatchcase(name, stage)]
    if not names:
        return failed(f"there is no stage {stage}; there are {', '.join(before)}")
    ids = call.arrays[change]
    for p in sorted({0, ids.shape[1] // 2, ids.shape[1] - 1}):
        other = ids.copy()
        other[:, p] = (ids[:, p] + 1) % call.options["config"]["vocab_size"]
        after = staged(context, call.with_arrays(**{change: other}))
        for name in names:
            a, b = float64(before[name]), float64(after[name])
            T = a.shape[-2]
            differs = (a != b).any(axis=tuple(n for n in range(a.ndim) if n != a.ndim - 2))
            place = {**context.case.dims, "i": np.arange(T), "p": p}
            for expression, wanted in ((changed, True), (unchanged, False)):
                if expression is None:
                    continue
                where = np.broadcast_to(np.asarray(evaluate(expression, place), dtype=bool), (T,))
                wrong = where & (differs != wanted)
                if wrong.any():
                    i = int(np.argmax(wrong))
                    happened = "changed" if differs[i] else "stayed the same"
                    return failed(f"another of the {change} at {p}: stage {name} {happened} at position {i}")
    return passed(f"{len(names)} stages")


@check
def order_matters(context: Context, expected: bool) -> Outcome:
    """Tokens in another order give the logits in that order (``expected`` false: there is no sense of order), or, with
    positions, others by far more than rounding."""
    call = context.call
    tokens = call.arrays["tokens"]
    order = np.roll(np.arange(tokens.shape[1])[::-1], 1)
    first, moved = staged(context), staged(context, call.with_arrays(tokens=np.ascontiguousarray(tokens[:, order])))
    limit = 2.0 * spread_of(context).limit[:, order]
    off = float(np.max(np.abs(float64(first["logits"])[:, order] - float64(moved["logits"])) / limit))
    if expected and not off > 100.0:
        return failed(f"tokens in another order give the same logits in that order (off by {off:.3g} of the spread)")
    if not expected and not off <= 1.0:
        return failed(f"without positions the order of tokens matters: logits are off by {off:.3g} of the spread")
    return passed(f"off by {off:.3g} of the spread", details={"off": off})


@check
def stages_alike(context: Context, first: str, others: list[str]) -> Outcome:
    """Stages that must hold the same numbers, bit for bit."""
    stages = staged(context)
    for name in (first, *others):
        if name not in stages:
            return failed(f"there is no stage {name}; there are {', '.join(stages)}")
    for name in others:
        difference = first_difference(name, stages[first], stages[name])
        if difference:
            return failed(f"{name} must equal {first}: {difference}")
    return passed()


@check
def attends(context: Context, layer: int, head: int, query: int, key: int, at_least: float) -> Outcome:
    """In one layer and head the query puts at least this weight on the key, read out of the attention weights; and the
    weights of every head sum to one and are the oracle's."""
    from ..oracle.record import Recorder

    call = context.call.with_options(attention_weights=True)
    stages = staged(context, call)
    name = f"layers.{layer}.self_attn.weights"
    if name not in stages:
        return failed(f"there is no stage {name}")
    weights = float64(stages[name])
    seen = float(weights[0, head, query, key])
    record = model_of(call).run(Recorder())
    expected = record.attentions[f"layers.{layer}.self_attn.out"].weights[0, head, query]
    most = int(np.argmax(weights[0, head, query]))
    if not seen >= at_least or most != key:
        return failed(
            f"head {head} of layer {layer}: position {query} puts {seen:.3g} on {key} and most, "
            f"{weights[0, head, query, most]:.3g}, on {most}; expected at least {at_least:g} on {key} "
            f"(the oracle: {expected[key]:.3g})"
        )
    if np.abs(weights.sum(-1) - 1.0).max() > 1e-2:
        return failed("the weights read out do not sum to one")
    return passed(f"weight {seen:.4g} on position {key}", details={"weights": weights[0, head, query].tolist()})
