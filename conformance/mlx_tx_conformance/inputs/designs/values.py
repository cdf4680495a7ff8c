"""Designs of V: what hides or shows errors of the weights and of the accumulation."""

from __future__ import annotations

import numpy as np

from .scores import normal
from .setting import Arrays, Setting, design


def _with_values(rng: np.random.Generator, setting: Setting, std: float, v: np.ndarray) -> Arrays:
    return {**normal(rng, setting, std), "v": v}


@design(shows="accumulators in half (and nothing else: an offset hides every error of a weight)")
def offset_v(rng: np.random.Generator, setting: Setting, offset: float = 100.0, std: float = 1.0) -> Arrays:
    """V around ``offset``."""
    return _with_values(rng, setting, std, offset + 0.1 * setting.values(rng))


@design(shows="accumulators in half: partial sums grow and never cancel")
def one_sign_v(rng: np.random.Generator, setting: Setting, offset: float = 1.0, std: float = 1.0) -> Arrays:
    """V >= ``offset``, spread by 1."""
    return _with_values(rng, setting, std, offset + np.abs(setting.values(rng)))


@design(shows="weights that do not sum to one (and nothing else: every other error of a weight cancels)")
def constant_v(rng: np.random.Generator, setting: Setting, value: float = 1.375, std: float = 1.0) -> Arrays:
    """V = ``value`` everywhere."""
    return _with_values(rng, setting, std, np.full(setting.values(rng).shape, value))


@design(shows="single weights: every channel reads out the weights of one in D_v keys")
def onehot_v(rng: np.random.Generator, setting: Setting, std: float = 1.0) -> Arrays:
    """V of key j is 1 in channel j mod D_v and 0 elsewhere."""
    v = np.zeros((setting.B, setting.N_kv, setting.T_kv, setting.D_v))
    keys = np.arange(setting.T_kv)
    v[:, :, keys, keys % max(setting.D_v, 1)] = 1.0
    return _with_values(rng, setting, std, v)


@design(shows="errors of the weights: the output is small, the sum of magnitudes is not")
def near_cancelling(
    rng: np.random.Generator, setting: Setting, size: float = 10.0, alternate: bool = True, std: float = 1.0
) -> Arrays:
    """V of ``size`` with alternating signs (or one sign in each half), plus one part in a thousand."""
    place = np.arange(setting.T_kv)
    positive = place % 2 == 0 if alternate else place < setting.T_kv // 2
    v = size * np.where(positive, 1.0, -1.0)[:, None] + 1e-3 * size * setting.values(rng)
    return _with_values(rng, setting, std, v)


@design(shows="accumulations in which few terms decide: magnitudes over nine powers of ten")
def wide_v(rng: np.random.Generator, setting: Setting, spread: float = 3.0, std: float = 1.0) -> Arrays:
    """V log-normal, cut off where float16 ends."""
    return _with_values(rng, setting, std, np.minimum(np.exp(spread * setting.values(rng)), 6e4))


@design(shows="a wrong scale by the score test: channels are independent, and V moves with the scores")
def v_is_k(rng: np.random.Generator, setting: Setting, std: float = 3.0) -> Arrays:
    """V = K (repeated or cut to D_v channels)."""
    arrays = normal(rng, setting)
    take = np.arange(setting.D_v) % setting.D
    return {"q": arrays["q"] * std, "k": arrays["k"], "v": arrays["k"][..., take]}
