"""Caches in a file: :func:`save_cache` and :func:`load_cache`, in safetensors format.

Metadata entry ``mlx_tx_cache`` tells the kind of every cache, its ``meta_state`` and how many arrays it has; the arrays
are named by a running number. A file is written beside its place and then renamed, so that a reader never meets half
of one, and a file that does not describe caches is refused before anything is made from it.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx

from mlx_tx.cache.base import Cache
from mlx_tx.cache.batch import BatchKVCache, BatchRotatingKVCache
from mlx_tx.cache.cross import CacheList, CrossKVCache
from mlx_tx.cache.full import KVCache
from mlx_tx.cache.quantised import QuantizedKVCache
from mlx_tx.cache.rotating import RotatingKVCache
from mlx_tx.safetensors import read_header

VERSION = 1
KINDS: Mapping[str, type[Cache]] = {
    kind.__name__: kind
    for kind in (KVCache, RotatingKVCache, QuantizedKVCache, BatchKVCache, BatchRotatingKVCache, CrossKVCache)
}
ENTRY = "mlx_tx_cache"


def save_cache(
    path: str | os.PathLike[str], caches: Sequence[Cache | CacheList], metadata: Mapping[str, str] | None = None
) -> None:
    """Writes the caches of a model, one for each layer, to ``path``, whose name ends in ``.safetensors``.

    ``metadata`` holds strings of the caller's own.
    """
    place = Path(path)
    if place.suffix != ".safetensors":
        raise ValueError(f"[save_cache] path must end in .safetensors; got {str(path)!r}")
    arrays: dict[str, mx.array] = {}
    described = [_describe(cache, arrays) for cache in caches]
    entry = json.dumps({"version": VERSION, "caches": described, "metadata": dict(metadata or {})})
    # The name of the temporary file ends as MLX wants it; it would add the ending otherwise.
    beside = place.with_name(f".{place.stem}.{uuid.uuid4().hex}.safetensors")
    try:
        mx.save_safetensors(str(beside), arrays or {"empty": mx.zeros((1,))}, {"format": "mlx", ENTRY: entry})
        beside.replace(place)
    finally:
        beside.unlink(missing_ok=True)


def load_cache(path: str | os.PathLike[str]) -> tuple[list[Cache | CacheList], dict[str, str]]:
    """The caches and the metadata that :func:`save_cache` wrote; ``ValueError`` for any other file."""
    header = read_header(path)
    try:
        entry = json.loads(header.metadata[ENTRY])
        version, described, metadata = entry["version"], entry["caches"], entry["metadata"]
    except (KeyError, TypeError, ValueError, RecursionError):
        raise _wrong(path, f"its metadata has no entry {ENTRY!r} that describes caches") from None
    if version != VERSION or not isinstance(described, list) or not isinstance(metadata, dict):
        raise _wrong(path, f"it must be of version {VERSION}; got {version!r}")
    names = [str(n) for n in range(sum(_count(path, one) for one in described))]
    if set(names) != set(header.tensors) - {"empty"}:
        raise _wrong(path, f"its caches need {len(names)} arrays; it has {len(header.tensors)}")
    loaded: Any = mx.load(str(path), format="safetensors")
    rest = iter([loaded[name] for name in names])
    try:
        return [_restore(one, rest) for one in described], {str(k): str(v) for k, v in metadata.items()}
    except (ValueError, TypeError) as error:
        raise _wrong(path, str(error)) from error


def _describe(cache: Cache | CacheList, arrays: dict[str, mx.array]) -> dict[str, Any]:
    if isinstance(cache, CacheList):
        return {"kind": "CacheList", "caches": [_describe(one, arrays) for one in cache]}
    kind = type(cache).__name__
    if KINDS.get(kind) is not type(cache):
        raise TypeError(f"[save_cache] caches must be of {', '.join(KINDS)} or CacheList; got {kind}")
    flat = [x for part in cache.state for x in (part if isinstance(part, tuple) else (part,))]
    for x in flat:
        arrays[str(len(arrays))] = x
    return {"kind": kind, "meta": list(cache.meta_state), "arrays": len(flat)}


def _count(path: Any, described: Any, *, nested: bool = False) -> int:
    """How many arrays a description asks for; refuses what is no description."""
    kind = described.get("kind") if isinstance(described, dict) else None
    if kind == "CacheList" and not nested and isinstance(described.get("caches"), list) and described["caches"]:
        return sum(_count(path, one, nested=True) for one in described["caches"])
    number, meta = (described.get("arrays"), described.get("meta")) if isinstance(described, dict) else (None, None)
    good = isinstance(number, int) and not isinstance(number, bool) and 0 <= number <= 6 and isinstance(meta, list)
    if kind not in KINDS or not good:
        raise _wrong(path, f"a cache must be described by kind ({', '.join(KINDS)}), meta and arrays")
    assert isinstance(number, int)
    return number


def _restore(described: dict[str, Any], arrays: Any) -> Cache | CacheList:
    if described["kind"] == "CacheList":
        parts = [_restore(one, arrays) for one in described["caches"]]
        return CacheList(*(part for part in parts if isinstance(part, Cache)))
    state: tuple[Any, ...] = tuple(next(arrays) for _ in range(described["arrays"]))
    if described["kind"] == QuantizedKVCache.__name__ and state:
        state = state[:3], state[3:]
    return KINDS[described["kind"]].from_state(state, described["meta"])


def _wrong(path: Any, problem: str) -> ValueError:
    return ValueError(f"[load_cache] {os.fspath(path)} is no file of caches: {problem}")
