"""Checks of key/value caches, by sequences of operations against the plain list of tokens that they stand for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from ..bounds.quantise import quantised_errors
from ..call import DTYPES, Call, Unsupported
from ..inputs.build import rng_for
from ..oracle.cache import CrossCache, Rule, TokenCache, View
from ..outcome import Outcome, failed, passed
from .compare import float64, merge, within_sum
from .context import Context, Departure
from .models import hold_stages, only_there, spread_of, staged, there
from .plans import Plan, ledger_of, listed_plan, random_plans, shrunk, written
from .registry import check


@check
def keeps_what_was_fed(context: Context) -> Outcome:
    """After every step each query sees the keys and values of exactly the tokens that the plain list says, bit for bit
    (a quantised cache: as its codes give them back); offsets, and what is taken back, are as there.

    ``steps`` lists the operations, or asks for random ones; of those that fail the shortest found is shown.
    """
    return _over_plans(context, _pads(context), lambda plan: _kept(context, plan))


@check
def steps_equal_oracle(context: Context) -> Outcome:
    """What is left of a text after all operations has, at every stage of the model, what the oracle computes from the
    whole text at once: each stage from the implementation's own previous ones."""
    return _over_plans(context, _pads(context), lambda plan: _stepped(context, plan))


@check
def alone_equals_batched(context: Context) -> Outcome:
    """Each row of a batch with padding gives the logits that its tokens give alone, within the spread of both.

    With chunks, ``lengths`` are those of the first: what follows is for every row.
    """
    call = context.call
    together = staged(context)["logits"]
    first = (call.options.get("chunks") or [call.arrays["tokens"].shape[1]])[0]
    outcomes = []
    for b in range(call.arrays["tokens"].shape[0]):
        exists = there(call, "logits")
        kept = np.ones(call.arrays["tokens"].shape[1], bool) if exists is None else exists[b].copy()
        kept[first:] |= "lengths" in call.arrays
        arrays = {"tokens": np.ascontiguousarray(call.arrays["tokens"][b : b + 1, kept]), "left_padding": None}
        single = replace(call.with_arrays(**arrays, lengths=None), layout={})
        cache = call.options.get("cache")
        if cache is not None:
            kind = {"batched": "full", "batched_rotating": "rotating"}.get(cache["kind"], cache["kind"])
            single = single.with_options(cache={**cache, "kind": kind}, chunks=None)
        alone = staged(context, single)["logits"]
        outcome = within_sum("logits", alone, together[b : b + 1, kept], 2.0 * spread_of(context, single).limit)
        if outcome.verdict != "pass":
            return replace(outcome, message=f"row {b} alone and in the batch: {outcome.message}")
        outcomes.append(outcome)
    return merge(outcomes)


@check
def same_in_chunks(context: Context, chunks: list[Any]) -> Outcome:
    """The tokens fed in chunks of any sizes give what they give at once without a cache, within the spread of both."""
    call = context.call
    T = call.arrays["tokens"].shape[1]
    plain = call.with_options(cache=None, chunks=None)
    # A cache that forgets is a window, which the plain run is given by the oracle alone: then one pass through it.
    forgets = (call.options.get("cache") or {}).get("max_size") is not None
    packed = (call.options.get("cache") or {}).get("bits") is not None
    first = staged(context, call if forgets or packed else plain)["logits"]
    spread, exists = spread_of(context), there(call, "logits")
    limit = 2.0 * spread.limit
    outcomes = []
    for asked in chunks:
        sizes = _sizes(asked, T)
        fed = staged(context, call.with_options(chunks=sizes))["logits"]
        a, b = (only_there(float64(x), exists, 0.0) for x in (first, fed))
        outcome = within_sum("logits", a, b, limit)
        if outcome.verdict != "pass":
            return replace(outcome, message=f"in chunks of {sizes}: {outcome.message}")
        outcomes.append(outcome)
    return merge(outcomes)


def _sizes(asked: Any, T: int) -> list[int]:
    """Chunks of one size, the last with what is left; or as they are listed."""
    if not isinstance(asked, int):
        return list(asked)
    return [min(asked, T - start) for start in range(0, T, asked)]


def _over_plans(context: Context, pads: list[int], judge: Callable[[Plan], str]) -> Outcome:
    """Run every plan of the case; the first that fails is shortened."""
    steps, cache = context.case.steps, context.call.options["cache"]
    plans: Iterator[Plan] = iter([listed_plan(steps)])
    if "random" in steps[0]:
        plans = random_plans(steps[0]["random"], cache, pads, context.case.seed)
    count = 0
    for plan in plans:
        count += 1
        fault = judge(plan)
        if not fault:
            continue
        least = shrunk(plan, lambda: ledger_of(cache, pads), lambda shorter: bool(judge(shorter)))
        text = judge(least)
        note = "" if least == plan else f" (shortened from {len(plan)} operations)"
        return failed(f"sequence {count}: {text}; steps: {written(least)}{note}", details={"steps": written(least)})
    return passed(f"{count} sequences", details={"sequences": count})


def _pads(context: Context) -> list[int]:
    padding = context.call.arrays.get("left_padding")
    if padding is not None:
        return [int(n) for n in padding]
    rows = context.call.arrays["tokens"].shape[0] if "tokens" in context.call.arrays else context.call.options["B"]
    return [0] * rows


# -- a cache alone ------------------------------------------------------------------------------------------------


def _kept(context: Context, plan: Plan) -> str:
    """What is wrong with a cache that goes through the plan, or nothing."""
    call = _cache_call(context, plan)
    try:
        results = context.run(call).outputs
    except Unsupported:
        raise
    except Departure as departure:
        return str(departure)
    except Exception as error:  # whatever the cache raises on a possible sequence is its fault
        return f"{type(error).__name__}: {error}"
    if call.options["cache"]["kind"] == "cross":
        return _crossed(call, results)
    reference, n = _reference(context, call), 0
    for m, (name, argument) in enumerate(plan):
        if name == "update":
            fault = _update_fault(call, reference, results, n)
            if fault:
                return f"operation {m + 1}, an update of {argument}: {fault}"
            n += 1
        elif name in ("trim", "rewind"):
            expected = getattr(reference, name)(argument)
            if int(results[f"returned.{m}"]) != expected:
                took = int(results[f"returned.{m}"])
                return f"operation {m + 1}, {name} {argument}, took back {took} and not {expected}"
        elif name == "restore":
            reference = reference.copy()
        elif name == "reorder":
            reference.filter(argument)
        elif name == "regroup":
            reference = TokenCache.merge([reference.extract(b) for b in range(len(reference.rows))])
    return ""


def _cache_call(context: Context, plan: Plan) -> Call:
    """The call of a plan: keys and values of every update. The first channel of a key is a token's own number."""
    call, options = context.call, context.call.options
    rng, dtype = rng_for(context.case.id, context.case.seed, "tokens"), DTYPES[context.case.dtype]
    ledger, serial = ledger_of(options["cache"], _pads(context)), 0
    arrays: dict[str, np.ndarray] = dict(call.arrays)
    n = 0
    for name, argument in plan:
        if name == "update":
            shape = (ledger.rows, options["N_kv"], argument)
            keys, values = (rng.standard_normal((*shape, options[size])) for size in ("D", "D_v"))
            keys[..., 0] = (serial + np.arange(argument)) % 200
            serial += argument
            arrays[f"keys.{n}"], arrays[f"values.{n}"] = keys.astype(dtype), values.astype(dtype)
            n += 1
        ledger.take((name, argument))
    return replace(call, arrays=arrays, options={**options, "operations": [list(o) for o in plan]}, outputs=())


def _reference(context: Context, call: Call) -> TokenCache:
    cache = call.options["cache"]
    rule = Rule(cache["max_size"], cache.get("keep", 0)) if cache.get("max_size") is not None else None
    packing = None
    if cache.get("bits") is not None:
        packing = {"bits": cache["bits"], "group_size": cache["group_size"], "dtype": DTYPES[context.case.dtype]}
    return TokenCache(_pads(context), rule=rule, quantisation=packing)


def _update_fault(call: Call, reference: TokenCache, results: Any, n: int) -> str:
    offsets = np.array(reference.offsets)
    given = np.asarray(results[f"offset.{n}"])
    if not np.array_equal(np.broadcast_to(given, offsets.shape), offsets):
        return f"the offset before it is {given.tolist()} (read before, looked at after), expected {offsets.tolist()}"
    keys, values = call.arrays[f"keys.{n}"], call.arrays[f"values.{n}"]
    view = reference.update(keys, values)
    got = float64(results[f"keys.{n}"]), float64(results[f"values.{n}"])
    allowed = np.broadcast_to(np.asarray(results[f"allowed.{n}"]), (len(offsets), 1, keys.shape[2], got[0].shape[2]))
    packing = reference.quantisation
    for b in range(len(offsets)):
        for i, position in enumerate(view.positions[b].tolist()):
            if position < 0:
                continue
            fault = _query_fault(view, got, allowed, b, i, packing, call.dtype)
            if fault:
                return f"row {b}, the query at position {position} {fault}"
    return ""


def _query_fault(
    view: View, got: tuple[np.ndarray, np.ndarray], allowed: np.ndarray, b: int, i: int, packing: Any, dtype: str
) -> str:
    seen, wanted = np.flatnonzero(allowed[b, 0, i]), np.flatnonzero(view.allowed[b, 0, i])
    expected = [int(j) for j in view.key_positions[b, wanted]]
    if len(seen) != len(wanted):
        return f"sees {len(seen)} tokens, expected those at positions {expected}"
    pairs = ((got[0][b][:, seen], view.keys[b][:, wanted]), (got[1][b][:, seen], view.values[b][:, wanted]))
    if packing is not None:
        for what, (mine, theirs) in zip(("keys", "values"), pairs, strict=True):
            limit = _packing_error(theirs, packing, dtype)
            if (np.abs(mine - theirs) > limit).any():
                return f"gets other {what} than its codes give back"
        return ""
    order, theirs_order = (np.argsort(part[0, :, 0], kind="stable") for part in pairs[0])
    mine_ids, their_ids = pairs[0][0][0, order, 0], pairs[0][1][0, theirs_order, 0]
    if not np.array_equal(mine_ids, their_ids):
        return f"sees the tokens numbered {mine_ids.astype(int).tolist()}, expected {their_ids.astype(int).tolist()}"
    for what, (mine, theirs) in zip(("keys", "values"), pairs, strict=True):
        if not np.array_equal(mine[:, order], theirs[:, theirs_order]):
            return f"gets other {what} than were fed at positions {expected}"
    return ""


def _packing_error(values: np.ndarray, packing: Any, dtype: str) -> np.ndarray:
    """How far unpacked numbers may be from the oracle's: its bound for what unpacks to the same (packing is stable)."""
    kind = {"bits": packing["bits"], "group_size": packing["group_size"]}
    _, error = quantised_errors(values, dtype, **kind)
    return np.asarray(2.0 * error + 1e-12)


def _crossed(call: Call, results: Any) -> str:
    reference = CrossCache()
    reference.fill(call.arrays["keys.0"], call.arrays["values.0"])
    view = reference.fetch()
    for name, expected in (("keys", view.keys), ("values", view.values)):
        if not np.array_equal(float64(results[f"{name}.0"]), expected):
            return f"the memory comes back with other {name}"
    for m, (name, _) in enumerate(call.options["operations"]):
        if name in ("trim", "rewind") and int(results[f"returned.{m}"]) != 0:
            return f"operation {m + 1}, {name}, took from the memory"
    return "" if np.all(np.asarray(results["allowed.0"])) else "part of the memory is hidden"


# -- a model through its caches -----------------------------------------------------------------------------------


def _stepped(context: Context, plan: Plan) -> str:
    """What is wrong with a model that is fed by the plan, or nothing."""
    call, cache = context.call, context.call.options["cache"]
    weights = {name: array for name, array in call.arrays.items() if name not in ("tokens", "left_padding")}
    rng = rng_for(context.case.id, context.case.seed, "tokens")
    vocab = call.options["config"]["vocab_size"]
    ledger, fed = ledger_of(cache, _pads(context)), []
    for name, argument in plan:
        if name == "update":
            fed.append(rng.integers(0, vocab, (ledger.rows, argument)).astype(np.int32))
        ledger.take((name, argument))
    arrays = {**weights, **{f"tokens.{n}": ids for n, ids in enumerate(fed)}}
    # The op knows the number of rows from the tokens.
    arrays["tokens"] = call.arrays["tokens"]
    if "left_padding" in call.arrays:
        arrays["left_padding"] = call.arrays["left_padding"]
    options = {**call.options, "operations": [list(operation) for operation in plan]}
    try:
        results = context.run(replace(call, arrays=arrays, options=options, outputs=())).outputs
    except Unsupported:
        raise
    except Departure as departure:
        return str(departure)
    except Exception as error:  # whatever the model raises on a possible sequence is its fault
        return f"{type(error).__name__}: {error}"
    tokens, stages, pads = _left(plan, fed, results, _pads(context))
    if tokens.shape[1] == 0:
        return ""
    whole = {**weights, "tokens": tokens}
    if cache["kind"].startswith("batched"):
        whole["left_padding"] = np.array(pads, np.int32)
    outcome = hold_stages(
        Call("model", whole, {"config": call.options["config"], "cache": cache}),
        stages,
        context.target.precision(call.dtype),
    )
    return "" if outcome.verdict == "pass" else outcome.message


def _left(
    plan: Plan, fed: list[np.ndarray], results: Any, pads: list[int]
) -> tuple[np.ndarray, dict[str, np.ndarray], list[int]]:
    """Tokens [B, T] that are left after the plan, the stages of each, and the padding of the rows."""
    tokens, n = np.zeros((len(pads), 0), np.int32), 0
    stages: dict[str, np.ndarray] = {}
    for name, argument in plan:
        if name == "update":
            tokens = np.concatenate([tokens, fed[n]], axis=1)
            prefix = f"{n}/"
            for key, array in results.items():
                if not key.startswith(prefix):
                    continue
                stage = key.removeprefix(prefix)
                whole = stage.endswith((".k_cache", ".v_cache")) or stage not in stages
                stages[stage] = array if whole else np.concatenate([stages[stage], array], axis=-2)
            n += 1
        elif name in ("trim", "rewind"):
            T = max(tokens.shape[1] - argument, 0) if name == "trim" else min(argument, tokens.shape[1])
            tokens = tokens[:, :T]
            stages = {stage: array[..., :T, :] for stage, array in stages.items()}
        elif name == "reorder":
            tokens, pads = tokens[argument], [pads[row] for row in argument]
            stages = {stage: array[argument] for stage, array in stages.items()}
    return tokens, stages, pads
