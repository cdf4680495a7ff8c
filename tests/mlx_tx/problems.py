"""Attention calls for property tests: every feature in random company, drawn by Hypothesis."""

from __future__ import annotations

import mlx.core as mx
import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

SETTINGS = settings(
    derandomize=True,
    database=None,
    deadline=None,
    max_examples=40,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def normal(rng, *shape, dtype=mx.float32):
    """Standard normal numbers as an MLX array."""
    return mx.array(rng.normal(size=shape).astype(np.float32)).astype(dtype)


@st.composite
def calls(draw, max_T=40, features=None):
    """(q, k, v, options) with up to all features at once; ``features`` names those that may occur."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    B = draw(st.integers(1, 2))
    N_kv, group = draw(st.sampled_from([(1, 1), (2, 1), (1, 2), (2, 2), (1, 4)]))
    N = N_kv * group
    T_kv = draw(st.integers(1, max_T))
    T_q = draw(st.one_of(st.just(T_kv), st.integers(1, max_T)))
    D, D_v = draw(st.sampled_from([(4, 4), (8, 4), (3, 5)]))
    q, k, v = normal(rng, B, N, T_q, D), normal(rng, B, N_kv, T_kv, D), normal(rng, B, N_kv, T_kv, D_v)

    def wanted(name, chance=3):
        return (features is None or name in features) and draw(st.integers(1, chance)) == 1

    def part():
        sizes = [draw(st.sampled_from([1, n])) for n in (B, N)] + [draw(st.sampled_from([1, T_q])), T_kv]
        return sizes[draw(st.integers(0, 2)) :]

    options = {}
    if wanted("scale"):
        options["scale"] = draw(st.sampled_from([0.0, 0.3, -0.7, 2.5]))
    if wanted("softcap"):
        options["softcap"] = draw(st.sampled_from([0.5, 3.0, 50.0]))
    if wanted("causal", 2):
        options["causal"] = True
    if wanted("window"):
        side = st.one_of(st.none(), st.integers(0, max_T))
        options["window"] = draw(st.one_of(st.integers(1, max_T), st.tuples(side, side)))
    if wanted("alibi"):
        options["alibi"] = normal(rng, *draw(st.sampled_from([(N,), (B, N)]))) * 0.3
    if wanted("sinks"):
        options["sinks"] = normal(rng, N) * 2
    if wanted("bias"):
        options["bias"] = normal(rng, *part())
    if wanted("mask"):
        shape = part()
        see = rng.random(shape) < draw(st.sampled_from([0.1, 0.5, 0.9]))
        if draw(st.booleans()):
            options["mask"] = mx.array(see)
        else:
            options["mask"] = mx.array(np.where(see, rng.normal(size=shape), -np.inf).astype(np.float32))
    if wanted("segments"):
        if T_q == T_kv and draw(st.booleans()):
            options["segments"] = mx.array(rng.integers(0, 3, (B, T_q)))
        else:
            options["segments"] = (mx.array(rng.integers(0, 3, (B, T_q))), mx.array(rng.integers(0, 3, (B, T_kv))))
    if wanted("kv_lengths"):
        lengths = [int(n) for n in rng.integers(0, T_kv + 1, B)]
        options["kv_lengths"] = lengths if draw(st.booleans()) else mx.array(lengths)
    placed = {"causal", "window", "alibi"} & set(options)
    if placed and ("kv_lengths" in options or wanted("q_offset")):
        offsets = [int(n) for n in rng.integers(-3, T_kv + 3, B)]
        options["q_offset"] = draw(st.sampled_from([offsets[0], offsets, mx.array(offsets)]))
    return q, k, v, options
