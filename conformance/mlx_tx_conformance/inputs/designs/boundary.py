"""Designs that mark the keys at which implementations go wrong: ends, window edges, block edges, a hidden key."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from .scores import normal
from .setting import Arrays, Setting, design

_BLOCKS = (8, 16, 32, 64, 128, 256, 512, 1024, 2048)
_KINDS = ("first", "last", "edges", "excluded", "blocks")


def boundary_keys(setting: Setting, kinds: tuple[str, ...] = _KINDS) -> list[int]:
    """Keys of these kinds in order of importance, each once.

    ``first``, ``last``; ``edges``: both sides of every limit that a causal mask or a window sets for the last, the
    first and the middle query; ``excluded``: the key that :func:`private_channels` hides; ``blocks``: both sides of
    block edges.
    """
    for kind in kinds:
        if kind not in _KINDS:
            raise ValueError(f"[boundary_keys] keys must be among {', '.join(_KINDS)}; got {kind!r}")
    found = {
        "first": [0],
        "last": [setting.T_kv - 1],
        "edges": list(_edges(setting)),
        "excluded": [excluded_key(setting)],
        "blocks": [key for size in _BLOCKS for key in (size - 1, size)],
    }
    keys = [key for kind in kinds for key in found[kind] if 0 <= key < setting.T_kv]
    return list(dict.fromkeys(keys))


def excluded_key(setting: Setting) -> int:
    """The key that a design hides from every query where it may: in the middle, away from block edges."""
    return setting.T_kv // 2 - setting.T_kv // 16 - 1 if setting.T_kv > 2 else -1


@design(
    shows="a leaked key (an exact zero becomes 2^12 times a weight) and a lost one (that product vanishes)",
    exact="0 in the channel of a key for every row that does not see it",
)
def private_channels(
    rng: np.random.Generator,
    setting: Setting,
    keys: Any = ("first", "last", "edges", "excluded", "blocks"),
    value: float = 2.0**12,
    std: float = 1.0,
) -> Arrays:
    """Boundary keys own a channel each: V is ``value`` there for that key and 0 for every other one.

    As many keys as leave half of the channels to ordinary values (at least one), in the order of ``keys``. Where the
    case says nothing about which keys are seen, the excluded key is hidden from every query by a mask.
    """
    arrays = normal(rng, setting, std)
    v = arrays["v"]
    owners = boundary_keys(setting, tuple([keys] if isinstance(keys, str) else keys))[: max(1, setting.D_v // 2)]
    for channel, key in enumerate(owners[: setting.D_v]):
        v[..., channel] = 0.0
        v[:, :, key, channel] = value
    return {**arrays, "v": v} | _hiding(setting, "excluded" in keys)


@design(shows="a lost or leaked boundary key even where rows have few heavy keys: its weight is comparable to the rest")
def tagged(
    rng: np.random.Generator,
    setting: Setting,
    keys: Any = ("first", "last", "edges", "excluded"),
    value: float = 8.0,
    weight: float = 1.0,
) -> Arrays:
    """Boundary keys have a score of about ln(T_kv / 4) in every row and V of +-``value`` that no other key has.

    ``weight`` scales that score. At most 8 keys are tagged, in the order of ``keys``.
    """
    arrays = normal(rng, setting)
    q, k, v = arrays["q"], arrays["k"], arrays["v"]
    direction = rng.standard_normal(setting.D)
    direction /= np.linalg.norm(direction)
    q = q - (q @ direction)[..., None] * direction + 4.0 * direction
    k = k - (k @ direction)[..., None] * direction
    owners = boundary_keys(setting, tuple([keys] if isinstance(keys, str) else keys))[:8]
    lift = weight * math.log(max(setting.T_kv / 4, 2)) / (4.0 * setting.scale)
    k[:, :, owners] += lift * direction
    signs = rng.choice([-1.0, 1.0], size=(len(owners), setting.D_v))
    v[:, :, owners] += value * signs
    return {"q": q, "k": k, "v": v} | _hiding(setting, "excluded" in keys)


def _hiding(setting: Setting, wanted: bool) -> Arrays:
    key = excluded_key(setting)
    if setting.restricted or not wanted or key < 0:
        return {}
    return {"mask": np.broadcast_to(np.arange(setting.T_kv) != key, (1, 1, setting.T_q, setting.T_kv)).copy()}


def _edges(setting: Setting) -> Iterator[int]:
    """Keys on both sides of the limits of what the last, the first and the middle query see."""
    window, causal = setting.options.get("window"), setting.options.get("causal")
    offset = setting.options.get("q_offset")
    offset = setting.T_kv - setting.T_q if offset is None else int(offset)
    left, right = _sides(window)
    if causal:
        right = 0 if right is None else min(right, 0)
    for query in dict.fromkeys((setting.T_q - 1, 0, setting.T_q // 2)):
        at = query + offset
        if left is not None:
            yield from (at - left, at - left - 1)
        if right is not None:
            yield from (at + right, at + right + 1)


def _sides(window: Any) -> tuple[int | None, int | None]:
    if window is None:
        return None, None
    if isinstance(window, list | tuple):
        return window[0], window[1]
    return int(window) - 1, 0
