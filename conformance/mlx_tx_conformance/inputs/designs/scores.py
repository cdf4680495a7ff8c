"""Designs of the scores: how large they are, how they compete, which of them are equal."""

from __future__ import annotations

import math

import numpy as np

from .setting import Arrays, Setting, design


@design(shows="gross faults only; the smallest part of any corpus")
def normal(rng: np.random.Generator, setting: Setting, std: float = 1.0) -> Arrays:
    """Normal q, k, v with scores of standard deviation ``std``."""
    root = math.sqrt(std)
    return {"q": setting.queries(rng, root), "k": setting.keys(rng, root), "v": setting.values(rng)}


@design(shows="a scale that is not 1/sqrt(D): the scores of unit-normal q and k have variance 1")
def unit_normal(rng: np.random.Generator, setting: Setting) -> Arrays:
    """q and k of independent unit-normal numbers, whatever the scale."""
    return normal(rng, setting)


@design(shows="rounded scores, half accumulators in q.k, wrong soft-caps (scores of several caps)")
def spiky(rng: np.random.Generator, setting: Setting, std: float = 16.0) -> Arrays:
    """Scores of standard deviation ``std``: few keys share a row."""
    return normal(rng, setting, std)


@design(shows="rounded scores and half accumulators in q.k: keys with large scores share the weight")
def competing(rng: np.random.Generator, setting: Setting, std: float = 16.0, keys: int = 8) -> Arrays:
    """``keys`` keys of every row stand within about 1 of a peak of 3 ``std``; the rest spread by ``std`` below."""
    q, k, v = setting.queries(rng), setting.keys(rng), setting.values(rng)
    direction = _direction(rng, setting.D)
    peak = 3.0 * std
    # alpha * beta * scale = peak, the same size for q and k
    size = math.sqrt(peak / abs(setting.scale))
    along = rng.standard_normal(k.shape[:3]) * std
    along = np.minimum(along, peak - 2.0 * std)
    leaders = rng.permuted(np.broadcast_to(np.arange(setting.T_kv), k.shape[:3]).copy(), axis=-1)[..., :keys]
    np.put_along_axis(along, leaders, peak + 0.5 * rng.standard_normal(leaders.shape), axis=-1)
    q = _without(q, direction) + size * math.copysign(1.0, setting.scale) * direction
    k = _without(k, direction) + (size * along / peak)[..., None] * direction
    return {"q": q, "k": k, "v": v}


@design(shows="overflow of scores, exponentials and accumulators")
def huge(rng: np.random.Generator, setting: Setting, peak: float = 1e4) -> Arrays:
    """Scores up to about ``peak``, which overflow an exponential that is not shifted by the maximum."""
    return normal(rng, setting, peak / 4.0)


@design(shows="flushed subnormals, products that underflow, a division by a tiny sum")
def tiny(rng: np.random.Generator, setting: Setting, size: float = 2.0**-12) -> Arrays:
    """q, k and v of size ``size``: subnormal in float16 for the smallest."""
    return {"q": setting.queries(rng, size), "k": setting.keys(rng, size), "v": setting.values(rng) * size}


@design(shows="errors that are alike from key to key and add up instead of averaging out")
def duplicates(rng: np.random.Generator, setting: Setting, distinct: int = 3, std: float = 1.0) -> Arrays:
    """Every key is one of ``distinct`` keys; values differ."""
    arrays = normal(rng, setting, std)
    choice = rng.integers(min(setting.T_kv, distinct), size=setting.T_kv) if setting.T_kv else slice(None)
    return {**arrays, "k": arrays["k"][:, :, choice]}


@design(shows="errors that are alike in a whole row: every weight is the same")
def zero_queries(rng: np.random.Generator, setting: Setting) -> Arrays:
    """q = 0: every row is the mean of the V that it sees (bit for bit only where :func:`counting` says so)."""
    arrays = normal(rng, setting)
    return {**arrays, "q": np.zeros_like(arrays["q"])}


@design(shows="coherent rounding of weights that change slowly from key to key")
def ramp(rng: np.random.Generator, setting: Setting, rise: float = 4.0) -> Arrays:
    """Equal queries, scores on a straight line that rises by ``rise`` along the keys, V +10 then -10."""
    direction = _direction(rng, setting.D)
    size = math.sqrt(rise / abs(setting.scale))
    line = np.linspace(0.0, 1.0, setting.T_kv)[:, None]
    shape_q = (setting.B, setting.N_q, setting.T_q, setting.D)
    q = np.broadcast_to(size * math.copysign(1.0, setting.scale) * direction, shape_q)
    k = np.broadcast_to(size * line * direction, (setting.B, setting.N_kv, setting.T_kv, setting.D))
    halves = np.where(np.arange(setting.T_kv) < setting.T_kv // 2, 10.0, -10.0)[:, None]
    return {"q": q, "k": k, "v": halves + 0.01 * setting.values(rng)}


@design(shows="a wrong scale, temperature or soft-cap, in every dtype: the output is as sensitive to it as can be")
def balanced_sink(rng: np.random.Generator, setting: Setting, live: int = 0) -> Arrays:
    """One key at score ln(n - 1) against n - 1 others near 0, values +1 and -1: the output is near 0.

    n is ``live``, by default T_kv: the number of keys that a row sees.
    """
    n = live or setting.T_kv
    direction = _direction(rng, setting.D)
    q = setting.rounded(np.broadcast_to(8.0 * direction, (setting.B, setting.N_q, setting.T_q, setting.D)))
    # Exactly along the rounded query, so that the score is met to the rounding of the key.
    axis = q[0, 0, 0] / (q[0, 0, 0] @ q[0, 0, 0]) if setting.T_q else direction
    k = setting.keys(rng, 0.05)
    k = k - (k @ (q[0, 0, 0] if setting.T_q else direction))[..., None] * axis
    v = -np.ones((setting.B, setting.N_kv, setting.T_kv, setting.D_v)) + 0.01 * setting.values(rng)
    if setting.T_kv:
        key = setting.T_kv // 3
        k[:, :, key] += math.log(max(n - 1, 1)) / setting.scale * axis
        v[:, :, key] = 1.0
    return {"q": q, "k": k, "v": v}


def _direction(rng: np.random.Generator, D: int) -> np.ndarray:
    direction = rng.standard_normal(D)
    return direction / np.linalg.norm(direction)


def _without(x: np.ndarray, direction: np.ndarray) -> np.ndarray:
    return x - (x @ direction)[..., None] * direction
