"""Attention derived a second time: one element after another, from the rules in words, in any arithmetic.

Deliberately naive and with nothing in common with the oracle: no broadcasting, no matrix product, no mask arrays, no
subtraction of -inf. The arithmetic is a parameter: floats, complex numbers (for complex-step derivatives) or mpmath.
"""

from __future__ import annotations

import cmath
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Arithmetic:
    """The functions that attention needs, over one kind of number."""

    number: Callable[[Any], Any]
    exp: Callable[[Any], Any]
    log: Callable[[Any], Any]
    tanh: Callable[[Any], Any]
    real: Callable[[Any], Any] = lambda x: x


FLOAT = Arithmetic(float, math.exp, math.log, math.tanh)
COMPLEX = Arithmetic(complex, cmath.exp, cmath.log, cmath.tanh, lambda x: x.real)


def entry(array: np.ndarray, *index: int) -> Any:
    """The entry of ``array`` at a full index, under the rules of broadcasting: right-aligned, 1 repeats."""
    index = index[len(index) - array.ndim :]
    return array[tuple(0 if size == 1 else at for size, at in zip(array.shape, index, strict=True))]


def may_see(b: int, h: int, i: int, j: int, T_q: int, T_kv: int, options: dict[str, Any]) -> bool:
    """Whether query i of head h of batch row b may see key j, rule by rule."""
    at = i + offset(b, T_q, T_kv, options)
    if options.get("causal") and j > at:
        return False
    window = options.get("window")
    if isinstance(window, int):
        if j > at or at - j >= window:
            return False
    elif window is not None:
        left, right = window
        if left is not None and j < at - left:
            return False
        if right is not None and j > at + right:
            return False
    if options.get("kv_lengths") is not None and j >= options["kv_lengths"][b]:
        return False
    segments = options.get("segments")
    if segments is not None:
        of_queries, of_keys = segments if isinstance(segments, tuple) else (segments, segments)
        if of_queries[b][i] != of_keys[b][j]:
            return False
    for name in ("mask", "bias"):
        array = options.get(name)
        if array is not None:
            value = entry(np.asarray(array), b, h, i, j)
            if not value if isinstance(value, np.bool_) else value == -math.inf:
                return False
    return True


def offset(b: int, T_q: int, T_kv: int, options: dict[str, Any]) -> int:
    """By how much query 0 of batch row b stands behind key 0; by default the last query stands at the last key."""
    given = options.get("q_offset")
    if given is None:
        return T_kv - T_q
    return int(given if np.ndim(given) == 0 else given[b])


def naive_attention(q: Any, k: Any, v: Any, numbers: Arithmetic = FLOAT, **options: Any) -> dict[str, np.ndarray]:
    """out, lse, weights and sink_weight, as object arrays of the given arithmetic. ``scale`` must be given."""
    q, k, v = (np.asarray(x) for x in (q, k, v))
    B, N_q, T_q = q.shape[:3]
    N_kv, T_kv, D_v = v.shape[1:]
    zero = numbers.number(0)
    out = np.full((B, N_q, T_q, D_v), zero, dtype=object)
    weights = np.full((B, N_q, T_q, T_kv), zero, dtype=object)
    sink_weight = np.full((B, N_q, T_q), zero, dtype=object)
    lse = np.full((B, N_q, T_q), -math.inf, dtype=object)
    for b in range(B):
        for h in range(N_q):
            # Consecutive query heads share: the first N_q/N_kv of them read head 0, the next ones head 1, ...
            g = [shared for shared in range(N_kv) for _ in range(N_q // N_kv)][h]
            for i in range(T_q):
                visible = [j for j in range(T_kv) if may_see(b, h, i, j, T_q, T_kv, options)]
                logits = [score(q[b, h, i], k[b, g, j], b, h, i, j, T_q, T_kv, numbers, options) for j in visible]
                if options.get("sinks") is not None:
                    logits.append(numbers.number(options["sinks"][h]))
                if not logits:
                    continue
                top = max(numbers.real(x) for x in logits)
                exps = [numbers.exp(x - top) for x in logits]
                total = sum(exps, zero)
                lse[b, h, i] = top + numbers.log(total)
                for j, e in zip(visible, exps, strict=False):
                    weights[b, h, i, j] = e / total
                    for d in range(D_v):
                        out[b, h, i, d] += e / total * numbers.number(v[b, g, j, d])
                if options.get("sinks") is not None:
                    sink_weight[b, h, i] = exps[-1] / total
    return {"out": out, "lse": lse, "weights": weights, "sink_weight": sink_weight}


def score(
    query: Any, key: Any, b: int, h: int, i: int, j: int, T_q: int, T_kv: int, numbers: Arithmetic, options: Any
) -> Any:
    """The score of one query and one key: scale, soft-cap, ALiBi, bias, additive mask."""
    s = numbers.number(0)
    for a, c in zip(query, key, strict=True):
        s += numbers.number(a) * numbers.number(c)
    s *= numbers.number(options["scale"])
    if options.get("softcap") is not None:
        cap = numbers.number(options["softcap"])
        s = cap * numbers.tanh(s / cap)
    slopes = options.get("alibi")
    if slopes is not None:
        slope = slopes[h] if np.ndim(slopes) == 1 else slopes[b][h]
        s -= numbers.number(slope) * abs(i + offset(b, T_q, T_kv, options) - j)
    for name in ("bias", "mask"):
        array = options.get(name)
        if array is not None and np.asarray(array).dtype != bool:
            s += numbers.number(entry(np.asarray(array), b, h, i, j))
    return s


def floats(array: np.ndarray) -> np.ndarray:
    """An object array of real numbers as float64."""
    return np.array([float(x) for x in array.ravel()], dtype=np.float64).reshape(array.shape)


def complex_step_gradients(
    arrays: dict[str, np.ndarray],
    d_out: np.ndarray,
    d_lse: np.ndarray,
    options: dict[str, Any],
    numbers: Arithmetic = COMPLEX,
) -> dict[str, np.ndarray]:
    """Derivatives of sum(out d_out) + sum(lse d_lse) with respect to every entry of ``arrays``.

    f'(x) = Im f(x + i e) / e holds to rounding for an analytic f, as nothing is subtracted (Squire and Trapp 1998).
    ``arrays`` holds q, k, v and what else is wanted of bias, mask and sinks; -inf entries are left at 0.
    """
    step = 1e-40
    gradients = {}
    for name, array in arrays.items():
        gradient = np.zeros(array.shape)
        for index in np.ndindex(array.shape):
            if np.isneginf(array[index]):
                continue
            moved = array.astype(object)
            moved[index] = complex(array[index], step)
            result = naive_attention(numbers=numbers, **{**options, **arrays, name: moved})
            total = numbers.number(0)
            for out, cotangent in zip(result["out"].ravel(), d_out.ravel(), strict=True):
                total += out * float(cotangent)
            for lse, cotangent in zip(result["lse"].ravel(), d_lse.ravel(), strict=True):
                if lse != -math.inf:
                    total += lse * float(cotangent)
            gradient[index] = float(total.imag / step)
        gradients[name] = gradient
    return gradients
