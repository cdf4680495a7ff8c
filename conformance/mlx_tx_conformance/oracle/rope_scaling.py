"""Rotary embedding stretched to longer texts: the frequencies and the attention factor of each recipe, in float64.

With d the rotated channels, w_r = base^(-2 r / d) the plain frequency of pair r, s the factor, M the length the model
was first trained on, and L the length of the present sequence:

| kind | frequency of pair r | attention factor |
|---|---|---|
| linear | w_r / s | 1 |
| ntk | w_r with base s^(d / (d - 2)) * base | 1 |
| dynamic | w_r with base (s max(L, M) / M - (s - 1))^(d / (d - 2)) * base | 1 |
| yarn | g_r w_r / s + (1 - g_r) w_r, where g climbs from 0 to 1 between two pairs | 0.1 ln s + 1 |
| llama3 | w_r for short waves, w_r / s for long ones, a blend between | 1 |
| longrope | w_r / short_factor[r] while L <= M, w_r / long_factor[r] beyond | sqrt(1 + ln s / ln M) |

The attention factor multiplies the rotated channels of queries and keys alike; scores grow by its square.

Sources: linear: Chen et al. 2023, "Extending Context Window via Positional Interpolation", section 3.2. ntk, dynamic,
yarn: Peng et al. 2023, "YaRN", sections 3.1 to 3.4 and, for the ramp over pairs and its ``truncate``, the released
code, which Hugging Face follows. llama3: Llama Team 2024, in the form of Meta's released code. longrope: Ding et al.
2024, "LongRoPE", section 3.3, with the attention factor of the Phi-3 release.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .positions import rope_frequencies, rotate

Float64 = NDArray[np.float64]

KINDS = ("linear", "ntk", "dynamic", "yarn", "llama3", "longrope")


def scaled_rope(
    x: ArrayLike,
    *,
    offset: int | ArrayLike = 0,
    positions: ArrayLike | None = None,
    base: float = 10000.0,
    dims: int | None = None,
    traditional: bool = False,
    scaling: Mapping[str, Any] | None = None,
    length: int | ArrayLike | None = None,
) -> Float64:
    """Rotary embedding of ``x`` [..., T, D] with a recipe of the table above; same shape (POS-3).

    Row t stands at ``positions`` [T], or [B, T] for the first axis of ``x``; without them at ``offset`` + t, an
    integer or [B].
    ``length`` is L, an integer or [B]; by default one more than the last position of each batch row, so that no row
    depends on its mates. The first ``dims`` channels turn, the rest stay and are not multiplied by the attention
    factor. Pairing as in :func:`~.positions.rope`.
    """
    array = np.asarray(x).astype(np.float64)
    if array.ndim < 2:
        raise ValueError(f"[scaled_rope] x must have the layout [..., T, D]; got shape {array.shape}")
    T, D = array.shape[-2:]
    dims = D if dims is None else dims
    if dims > D:
        raise ValueError(f"[scaled_rope] dims must lie in 0..{D}; got {dims}")
    at = np.asarray(offset)[..., None] + np.arange(T) if positions is None else np.asarray(positions)
    if at.shape not in ((T,), (array.shape[0], T)):
        raise ValueError(f"[scaled_rope] positions must have shape [T] or [B, T]; got {at.shape}")
    lengths = np.asarray(at.max(axis=-1, initial=-1) + 1 if length is None else length)
    if lengths.shape not in ((), (array.shape[0],)):
        raise ValueError(f"[scaled_rope] length must be an integer or have shape [B]; got shape {lengths.shape}")
    found = [rope_parameters(dims, base, scaling, length=int(L)) for L in lengths.ravel()]
    frequencies = np.array([of_row for of_row, _ in found]).reshape(-1, 1, dims // 2)
    factors = np.array([factor for _, factor in found]).reshape(-1, 1, 1)
    angles = np.atleast_2d(at.astype(np.float64))[..., None] * frequencies
    cos, sin = factors * np.cos(angles), factors * np.sin(angles)
    # One row serves every sequence; a row of its own for each of them stands beside the axes between B and T.
    shape = (T, dims // 2) if len(cos) == 1 else (len(cos), *(1,) * (array.ndim - 3), T, dims // 2)
    return rotate(array, cos.reshape(shape), sin.reshape(shape), traditional=traditional)


def rope_parameters(
    dims: int, base: float = 10000.0, scaling: Mapping[str, Any] | None = None, *, length: int | None = None
) -> tuple[Float64, float]:
    """Radians per position of each pair [dims / 2], and the attention factor.

    ``scaling`` holds ``kind`` and what its recipe needs: ``factor``, ``original_max_positions``, ``low_freq_factor``,
    ``high_freq_factor``, ``beta_fast``, ``beta_slow``, ``attention_factor``, ``mscale``, ``mscale_all_dim``,
    ``truncate``, ``short_factor``, ``long_factor``; an entry of ``None`` counts as absent. ``length`` (none: M) is
    used by ``dynamic`` and ``longrope``.
    """
    if dims % 2 or dims < 0:
        raise ValueError(f"[rope_parameters] dims must be even and >= 0; got {dims}")
    if scaling is None:
        return rope_frequencies(dims, base), 1.0
    given = {name: value for name, value in scaling.items() if value is not None}
    kind = given.get("kind")
    if kind not in KINDS:
        raise ValueError(f"[rope_parameters] scaling.kind must be one of {', '.join(KINDS)}; got {kind!r}")
    plain = rope_frequencies(dims, base)
    if kind == "linear":
        return plain / _need(given, "factor"), 1.0
    if kind == "ntk":
        return rope_frequencies(dims, base * _ntk_stretch(_need(given, "factor"), dims)), 1.0
    if kind == "dynamic":
        s, M = _need(given, "factor"), _need(given, "original_max_positions")
        L = max(M, M if length is None else length)
        return rope_frequencies(dims, base * _ntk_stretch(s * L / M - (s - 1), dims)), 1.0
    if kind == "yarn":
        return _yarn(plain, dims, base, given)
    if kind == "llama3":
        return _llama3(plain, given), 1.0
    return _longrope(plain, given, length)


def _need(given: Mapping[str, Any], name: str) -> Any:
    if name not in given:
        raise ValueError(f"[rope_parameters] scaling.{name} must be given for kind {given['kind']!r}; got None")
    return given[name]


def _ntk_stretch(factor: float, dims: int) -> float:
    """By how much the base grows so that the slowest pair is stretched by ``factor`` and the fastest not at all."""
    # With one pair, the fastest, there is nothing to stretch: its frequency is 1 with any base.
    return float(factor ** (dims / (dims - 2))) if dims > 2 else 1.0


def _yarn(plain: Float64, dims: int, base: float, given: Mapping[str, Any]) -> tuple[Float64, float]:
    s, M = _need(given, "factor"), _need(given, "original_max_positions")

    def pair_that_turns(times: float) -> float:
        """The pair, a real number, that turns ``times`` times over M positions: M base^(-2 r / d) = 2 pi times."""
        return dims * math.log(M / (2 * math.pi * times)) / (2 * math.log(base))

    low, high = pair_that_turns(given.get("beta_fast", 32.0)), pair_that_turns(given.get("beta_slow", 1.0))
    if given.get("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, dims - 1)
    if low == high:
        high += 0.001
    ramp = np.clip((np.arange(dims // 2) - low) / (high - low), 0.0, 1.0)
    return ramp * plain / s + (1 - ramp) * plain, _yarn_attention_factor(s, given)


def _yarn_attention_factor(s: float, given: Mapping[str, Any]) -> float:
    """As given; else the ratio of the factors of ``mscale`` and ``mscale_all_dim`` where both are set; else plain."""
    if "attention_factor" in given:
        return float(given["attention_factor"])

    def of(mscale: float) -> float:
        return 0.1 * mscale * math.log(s) + 1.0 if s > 1 else 1.0

    if given.get("mscale") and given.get("mscale_all_dim"):
        return of(given["mscale"]) / of(given["mscale_all_dim"])
    return of(1.0)


def _llama3(plain: Float64, given: Mapping[str, Any]) -> Float64:
    s, M = _need(given, "factor"), _need(given, "original_max_positions")
    low, high = _need(given, "low_freq_factor"), _need(given, "high_freq_factor")
    # How often a pair turns over M positions: above `high` it is left alone, below `low` slowed by s.
    turns = M * plain / (2 * math.pi)
    keep = np.clip((turns - low) / (high - low), 0.0, 1.0)
    return keep * plain + (1 - keep) * plain / s


def _longrope(plain: Float64, given: Mapping[str, Any], length: int | None) -> tuple[Float64, float]:
    M = _need(given, "original_max_positions")
    name = "long_factor" if length is not None and length > M else "short_factor"
    stretch = np.asarray(_need(given, name), dtype=np.float64)
    if stretch.shape != plain.shape:
        raise ValueError(f"[rope_parameters] scaling.{name} must hold {len(plain)} numbers; got {stretch.shape}")
    if "attention_factor" in given:
        return plain / stretch, float(given["attention_factor"])
    s = _need(given, "factor")
    return plain / stretch, math.sqrt(1 + math.log(s) / math.log(M)) if s > 1 else 1.0
