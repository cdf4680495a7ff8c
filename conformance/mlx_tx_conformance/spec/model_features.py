"""Which values of the features of whole models a case exercises; see :mod:`.features`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from .features import CaseLike, Feature
from .operations import OPERATIONS
from .part_features import MLP_KINDS

CACHES = ("full", "rotating", "rotating with sinks", "quantised", "batched", "batched rotating")


def _config(case: CaseLike, *path: str) -> Any:
    """A value of a case's configuration; ``None`` where it is absent or the case has none."""
    found: Any = case.call.get("config")
    for name in path:
        found = found.get(name) if isinstance(found, Mapping) else None
    return found


def _word(name: str, values: tuple[str, ...], default: str, *path: str) -> Feature:
    def found(case: CaseLike) -> Iterable[str]:
        return () if _config(case) is None else (str(_config(case, *path) or default),)

    return Feature(name, values, found)


MODEL_KIND = _word("kind", ("decoder", "encoder", "encoder_decoder"), "decoder", "kind")
PLACEMENT = _word("placement", ("pre", "post", "sandwich"), "pre", "block", "placement")
POSITION = _word("position", ("none", "sinusoidal", "learned", "rope", "alibi", "t5"), "none", "position", "kind")
NORM = _word("norm", ("rms", "layer"), "rms", "norm", "kind")
MLP = _word("mlp", (*MLP_KINDS, "moe"), "relu", "mlp", "kind")


def _heads(case: CaseLike) -> Iterable[str]:
    heads = _config(case, "attention", "num_heads")
    if heads:
        kv = _config(case, "attention", "num_kv_heads") or heads
        yield "mha" if kv == heads else "mqa" if kv == 1 else "gqa"


HEADS = Feature("heads", ("mha", "gqa", "mqa"), _heads)


def config_flag(name: str, *path: str) -> Feature:
    """A field of the configuration that is true or false."""
    return Feature(
        name, ("false", "true"), lambda case: (str(bool(_config(case, *path, name))).lower(),) if _config(case) else ()
    )


def config_given(name: str, *path: str) -> Feature:
    """A field of the configuration that may be absent."""
    return Feature(name, ("none", "given"), lambda case: ("none" if _config(case, *path, name) is None else "given",))


TIED = config_flag("tie_embeddings")


def cache_name(cache: Mapping[str, Any]) -> str:
    """Which of :data:`CACHES` the option ``cache`` describes."""
    kind = str(cache.get("kind"))
    return "rotating with sinks" if kind == "rotating" and cache.get("keep") else kind.replace("_", " ")


def _given_caches(case: CaseLike) -> Iterable[str]:
    cache = case.call.get("cache")
    return () if cache is None else (cache_name(cache),)


CACHE = Feature("cache", ("none", *CACHES), lambda case: tuple(_given_caches(case)) or ("none",))
FED_CACHE = Feature("cache", CACHES, _given_caches)
KEY_CACHE = Feature("cache", (*CACHES, "cross"), _given_caches)


def _operations(case: CaseLike) -> Iterable[str]:
    for step in case.steps:
        yield from step["random"]["weights"] if "random" in step else step


STATE_OPERATIONS = Feature("operations", tuple(OPERATIONS), _operations)
# Rows that are put together anew have other padding, and a model nothing else: a cache by itself is asked.
MODEL_OPERATIONS = Feature("operations", tuple(name for name in OPERATIONS if name != "regroup"), _operations)
