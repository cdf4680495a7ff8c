"""Designs with an exact answer: no tolerance decides, the bits do.

Each makes a mask that shows every query just the keys that the answer needs, unless the case itself restricts what
queries see; then the answer is exact for rows that see what the design's note says.
"""

from __future__ import annotations

import numpy as np

from .scores import normal
from .setting import Arrays, Setting, design


@design(
    shows="windows and masks that are off by one, at any length and in any dtype",
    exact="the mean of the V that a row sees, rounded once, wherever their number is a power of two",
)
def counting(rng: np.random.Generator, setting: Setting, live: int = 0, largest: int = 8) -> Arrays:
    """q = 0 and V of integers up to ``largest``; a row sees ``live`` keys (by default the greatest power of two)."""
    arrays = normal(rng, setting)
    v = rng.integers(-largest, largest + 1, size=arrays["v"].shape).astype(np.float64)
    made = {"q": np.zeros_like(arrays["q"]), "k": arrays["k"], "v": v}
    return made | _showing(rng, setting, live or _power_of_two_below(setting.T_kv))


@design(shows="anything that touches a key a row does not see", exact="the V of the key that a row sees, bit for bit")
def one_live_key(rng: np.random.Generator, setting: Setting, std: float = 1.0) -> Arrays:
    """Every row sees one key, another in every row."""
    return normal(rng, setting, std) | _showing(rng, setting, 1)


@design(shows="weights that differ for equal keys", exact="0 in every row that sees one pair of twins, bit for bit")
def twins(rng: np.random.Generator, setting: Setting, std: float = 1.0) -> Arrays:
    """Keys 2m and 2m + 1 are equal, their V opposite; every row sees one pair. An odd last key is seen by none."""
    arrays = normal(rng, setting, std)
    even = setting.T_kv - setting.T_kv % 2
    k, v = arrays["k"], arrays["v"]
    k[:, :, 1:even:2] = k[:, :, 0:even:2]
    v[:, :, 1:even:2] = -v[:, :, 0:even:2]
    made = {**arrays, "k": k, "v": v}
    if setting.restricted or even == 0:
        return made
    pair = rng.integers(even // 2, size=(setting.B, setting.N_q, setting.T_q, 1))
    return made | {"mask": np.arange(setting.T_kv) // 2 == pair}


@design(
    shows="weights or sums that are not exact where they can be",
    exact="the mean of the V that a row sees, bit for bit, wherever their number is a power of two up to 8",
)
def dyadic(rng: np.random.Generator, setting: Setting, live: int = 8, std: float = 1.0) -> Arrays:
    """All keys are equal, V are integers up to 8; a row sees ``live`` keys."""
    arrays = normal(rng, setting, std)
    k = np.broadcast_to(arrays["k"][:, :, :1], arrays["k"].shape)
    v = rng.integers(-8, 9, size=arrays["v"].shape).astype(np.float64)
    return {"q": arrays["q"], "k": k, "v": v} | _showing(rng, setting, min(live, _power_of_two_below(setting.T_kv)))


def _showing(rng: np.random.Generator, setting: Setting, live: int) -> Arrays:
    """A mask by which every row sees ``live`` keys, chosen anew in every row."""
    if setting.restricted or setting.T_kv == 0:
        return {}
    mask = np.broadcast_to(np.arange(setting.T_kv) < live, (setting.B, setting.N_q, setting.T_q, setting.T_kv))
    return {"mask": rng.permuted(mask, axis=-1)}


def _power_of_two_below(n: int) -> int:
    return 1 << (max(n, 1).bit_length() - 1)
