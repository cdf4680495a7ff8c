"""Seeded attention calls of every shape of data, on which correct code must stay within its bounds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..call import DTYPES, Call
from ..inputs import Setting, find_design, rng_for

_LENGTHS = (1, 2, 3, 7, 17, 33, 64, 100, 257, 512, 1000, 1024, 2048, 4096)
_SIZES = (8, 16, 32, 40, 64, 80, 96, 128, 256)
_STDS = (0.1, 0.3, 1.0, 2.0, 4.0, 8.0, 16.0, 40.0)
# Designs whose scores take a standard deviation, and the rest; the first are drawn more often.
_SPREAD = ("normal", "offset_v", "near_cancelling", "onehot_v", "wide_v", "constant_v", "one_sign_v", "duplicates")
_FIXED = (
    "zero_queries",
    "ramp",
    "competing",
    "balanced_sink",
    "private_channels",
    "tagged",
    "counting",
    "one_live_key",
    "twins",
    "dyadic",
    "tiny",
    "huge",
    "v_is_k",
)


@dataclass(frozen=True)
class Sample:
    """A call and what it was drawn as, in words."""

    call: Call
    about: Mapping[str, Any]


def samples(count: int, seed: int = 0, longest: int = 4096, gradients: bool = False) -> Iterator[Sample]:
    """``count`` calls; number n is the same whatever ``count`` is. The dtypes take turns.

    With ``gradients`` the operation is attention_gradients, with cotangents.
    """
    for n in range(count):
        yield sample(n, seed, longest, gradients)


def sample(n: int, seed: int = 0, longest: int = 4096, gradients: bool = False) -> Sample:
    """Call number ``n``."""
    rng = rng_for(f"corpus {n}", seed, "gradients" if gradients else "attention")
    dtype = tuple(DTYPES)[n % len(DTYPES)]
    T_kv = int(rng.choice([length for length in _LENGTHS if length <= longest]))
    D = int(rng.choice(_SIZES))
    dims = {
        "B": int(rng.integers(1, 3)),
        "N_kv": 1,
        "N_q": int(rng.integers(1, 3)),
        "T_q": int(rng.choice([1, 3, 16] if gradients else [1, 2, 4])),
        "T_kv": T_kv,
        "D": D,
        "D_v": D if rng.random() < 0.8 else int(rng.choice(_SIZES)),
    }
    spread = rng.random() < 0.75
    name = str(rng.choice(_SPREAD if spread else _FIXED))
    parameters: dict[str, Any] = {"std": float(rng.choice(_STDS))} if spread else {}
    if name == "near_cancelling":
        parameters["alternate"] = bool(rng.integers(2))
    options: dict[str, Any] = {}
    if rng.random() < 0.2:
        options["softcap"] = float(rng.choice([20.0, 50.0]))
    rule = str(rng.choice(["none", "causal", "random", "sparse", "window"]))
    if rule in ("causal", "window"):
        options["causal"] = True
    if rule == "window":
        options["window"] = int(rng.integers(1, T_kv + 1))
    if rng.random() < 0.1:
        options["alibi"] = True
    given = frozenset({"mask"} if rule in ("random", "sparse") else ())
    made = find_design(name)(rng, Setting(dims, DTYPES[dtype], options, given), **parameters)
    arrays = {**made, **_beside(rng, dims, rule, DTYPES[dtype])}
    if gradients:
        arrays["d_out"] = rng.standard_normal((*made["q"].shape[:3], dims["D_v"])).astype(DTYPES[dtype])
        if rng.random() < 0.3:
            arrays["d_lse"] = rng.standard_normal(made["q"].shape[:3]).astype(np.float32)
    op, outputs = ("attention_gradients", ("q", "k", "v")) if gradients else ("attention", ("out", "lse"))
    about = {"n": n, "design": name, **parameters, **dims, **options, "rule": rule, "arrays": sorted(arrays)}
    return Sample(Call(op, arrays, options, {}, outputs), about)


def _beside(rng: np.random.Generator, dims: Mapping[str, int], rule: str, dtype: np.dtype) -> dict[str, np.ndarray]:
    """Mask, bias and sinks of a call."""
    arrays: dict[str, np.ndarray] = {}
    shape = (dims["B"], dims["N_q"], dims["T_q"], dims["T_kv"])
    if rule in ("random", "sparse"):
        arrays["mask"] = rng.random(shape) < (0.7 if rule == "random" else 0.03)
    if rng.random() < 0.25:
        kept = tuple(size if rng.random() < 0.7 else 1 for size in shape)
        arrays["bias"] = (2.0 * rng.standard_normal(kept)).astype(dtype)
    if rng.random() < 0.2:
        arrays["sinks"] = (2.0 * rng.standard_normal(dims["N_q"])).astype(dtype)
    return arrays
