"""The ops ``cache`` and ``model_steps`` on mlx_tx's caches, and what a model holds in memory while it is fed."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from . import mlx_tx_model
from .derive import Arrays


def cache(arrays: Arrays, options: Mapping[str, Any]) -> Arrays:
    """For update n: ``keys.n``, ``values.n``, ``allowed.n`` and ``offset.n``, the offset that was read before it; for
    operation m that takes back: ``returned.m``."""
    import mlx.core as mx

    held = _make(arrays, options)
    results: Arrays = {}
    n = 0
    for m, (name, argument) in enumerate(options["operations"]):
        if name == "update":
            k, v = arrays[f"keys.{n}"], arrays[f"values.{n}"]
            offset, mask = held.offset, held.make_mask(k.shape[2], return_array=True)
            keys, values = (_plain(part, held) for part in held.update_and_fetch(k, v))
            # A mask of None hides nothing; the offset is looked at after the update, which must not have changed it.
            full = mx.ones((1, 1, k.shape[2], keys.shape[2]), dtype=mx.bool_)
            shape = (1 if mask is None else mask.shape[0], 1, k.shape[2], keys.shape[2])
            allowed = full if mask is None else mx.broadcast_to(mask, shape)
            results |= {f"keys.{n}": keys, f"values.{n}": values, f"allowed.{n}": allowed}
            results[f"offset.{n}"] = mx.array(offset).reshape(-1)
            n += 1
            continue
        (held,), returned = operated([held], name, argument)
        if returned is not None:
            results[f"returned.{m}"] = mx.array(returned)
    return results


def _make(arrays: Arrays, options: Mapping[str, Any]) -> Any:
    import mlx_tx

    given = dict(options["cache"])
    kind = given.pop("kind")
    classes = {
        "full": mlx_tx.KVCache,
        "rotating": mlx_tx.RotatingKVCache,
        "quantised": mlx_tx.QuantizedKVCache,
        "batched": mlx_tx.BatchKVCache,
        "batched_rotating": mlx_tx.BatchRotatingKVCache,
        "cross": mlx_tx.CrossKVCache,
    }
    if kind.startswith("batched"):
        given["left_padding"] = arrays["left_padding"] if "left_padding" in arrays else [0] * options["B"]
    return classes[kind](**given)


def _plain(fetched: Any, held: Any) -> Any:
    import mlx_tx.cache

    if isinstance(fetched, tuple):
        return mlx_tx.cache.dequantised(fetched, group_size=held.group_size, bits=held.bits)
    return fetched


def operated(caches: list[Any], name: str, argument: Any) -> tuple[list[Any], int | None]:
    """The caches of all layers after an operation that feeds nothing, and how many tokens it took back."""
    import mlx_tx

    if name == "trim":
        return caches, [one.trim(argument) for one in caches].pop()
    if name == "rewind":
        return caches, [one.rewind(argument) for one in caches].pop()
    if name == "reorder":
        for one in caches:
            one.filter(argument)
        return caches, None
    if name == "regroup":
        return [type(one).merge([one.extract(b) for b in range(one.left_padding.shape[0])]) for one in caches], None
    if argument == "state":
        return [type(one).from_state(one.state, one.meta_state) for one in caches], None
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "cache.safetensors")
        mlx_tx.save_cache(path, caches)
        return mlx_tx.load_cache(path)[0], None


def model_steps(arrays: Arrays, options: Mapping[str, Any], path: str) -> Arrays:
    """Every stage of update n as ``n/stage``; the tokens of update n are ``tokens.n``."""
    import mlx.core as mx

    import mlx_tx

    steps = {name: array for name, array in arrays.items() if name.startswith("tokens.")}
    rest = {name: array for name, array in arrays.items() if name not in steps}
    module = mlx_tx_model.build(rest, options)
    held = mlx_tx_model.make_cache(module, rest, options["cache"])
    results: Arrays = {}
    n = 0
    with mlx_tx_model.attention_on(path):
        for name, argument in options["operations"]:
            if name == "update":
                with mlx_tx.record_stages() as stages:
                    module(steps[f"tokens.{n}"], held)
                mx.eval(list(stages.values()))
                results |= {f"{n}/{stage}": array for stage, array in stages.items()}
                n += 1
            else:
                held, _ = operated(held, name, argument)
    return results


def step_bytes(arrays: Arrays, options: Mapping[str, Any], path: str) -> int:
    """Peak memory of one step, beyond the model, near the end of a text that is fed token by token."""
    import mlx.core as mx

    module = mlx_tx_model.build(arrays, options)
    tokens = arrays["tokens"]
    mx.eval(module.parameters(), tokens)
    mx.synchronize()
    mx.clear_cache()
    before, held = mx.get_active_memory(), mlx_tx_model.make_cache(module, arrays, options["cache"])
    T, peak = tokens.shape[1], 0
    with mlx_tx_model.attention_on(path):
        for t in range(T):
            mx.reset_peak_memory()
            mx.eval(module(tokens[:, t : t + 1], held))
            if t >= T - max(4, T // 8):
                peak = max(peak, mx.get_peak_memory() - before)
    return peak


def cache_bytes(arrays: Arrays, options: Mapping[str, Any], path: str) -> int:
    """Bytes of the caches of all layers after the whole text was fed."""
    import mlx.core as mx

    module = mlx_tx_model.build(arrays, options)
    held = mlx_tx_model.make_cache(module, arrays, options["cache"])
    with mlx_tx_model.attention_on(path):
        mx.eval(module(arrays["tokens"], held))
    return sum(one.nbytes for one in held)
