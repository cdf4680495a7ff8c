"""Correct float32 computations of attention, in several orders: what a bound must accept.

They share the oracle's reading of the arguments (which keys are allowed, what is added to the scores) and none of its
arithmetic. Every step is a method, so that a planted fault changes one of them.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..call import DTYPES, Call
from ..oracle.arguments import Problem
from ..oracle.arguments import problem as oracle_problem
from .problem import oracle_arguments

Array = np.ndarray
F = np.float32
_LOG2_E = F(1.4426950408889634)
_LN_2 = F(0.6931471805599453)


class Plain:
    """All scores at once, then softmax, then the weighted sum.

    ``rounds_weights``: the weights are rounded to the dtype of the inputs (class ``P``). ``normalise_first``: they are
    divided by their sum before they multiply, not the sum after.
    """

    name = "plain"

    def __init__(self, rounds_weights: bool = False, normalise_first: bool = False) -> None:
        self.rounds_weights = rounds_weights
        self.normalise_first = normalise_first
        self.dtype: np.dtype = np.dtype(np.float32)

    def __call__(self, call: Call) -> dict[str, Array]:
        """``out`` in the dtype of the call and ``lse`` in float32."""
        given = oracle_problem(*(call.arrays[name] for name in ("q", "k", "v")), **oracle_arguments(call))
        self.dtype = DTYPES[call.dtype]
        with np.errstate(all="ignore"):
            out, lse = self.attend(given)
            return {"out": out.astype(self.dtype), "lse": lse.astype(F)}

    def attend(self, given: Problem) -> tuple[Array, Array]:
        """Output and log-sum-exp of a problem, in float32."""
        v = self.values(given)
        s = self.scores(given)
        m, e, total = self.exponentials(s, given)
        weights = self.weights(e / _or_one(total) if self.normalise_first else e)
        out = self.mix(weights, v)
        if not self.normalise_first:
            out = out / _or_one(total)
        return out, self.log_sum_exp(m, total)[..., 0]

    def operands(self, given: Problem) -> tuple[Array, Array, float]:
        """q, k (one for each query head) and the scale."""
        return _finite(given.q), _finite(np.repeat(given.k, given.group, axis=1)), given.scale

    def values(self, given: Problem) -> Array:
        return _finite(np.repeat(given.v, given.group, axis=1))

    def scores(self, given: Problem) -> Array:
        """Scores with soft-cap, terms and masks applied; -inf where a key is not allowed."""
        s = self.product(*self.operands(given))
        if given.softcap is not None:
            s = self.cap(s, F(given.softcap))
        for term in given.terms:
            s = s + term.astype(F)
        return np.where(self.allowed(given), s, F(-np.inf))

    def allowed(self, given: Problem) -> Array:
        return given.allowed

    def product(self, q: Array, k: Array, scale: float) -> Array:
        return self.dot(q, np.swapaxes(k, -1, -2)) * F(scale)

    def dot(self, a: Array, b: Array) -> Array:
        return a @ b

    def cap(self, s: Array, c: np.float32) -> Array:
        return c * np.tanh(s / c)

    def exponentials(self, s: Array, given: Problem) -> tuple[Array, Array, Array]:
        """Row maximum, exp(s - maximum) and their sum, the sink included in the first and the last."""
        m = s.max(-1, keepdims=True, initial=-np.inf)
        sink = None
        if given.sinks is not None:
            sink = given.sinks.astype(F)[None, :, None, None]
            m = np.maximum(m, sink)
        m = np.where(np.isfinite(m), m, F(0))
        e = self.exp(s - m)
        total = self.total(e)
        if sink is not None:
            total = total + self.exp(sink - m)
        return m, e, total

    def exp(self, x: Array) -> Array:
        return np.exp(x)

    def total(self, e: Array) -> Array:
        return e.sum(-1, keepdims=True, dtype=F)

    def weights(self, p: Array) -> Array:
        return self.rounded(p) if self.rounds_weights else p

    def rounded(self, x: Array) -> Array:
        """``x`` as it is after a detour through the dtype of the inputs."""
        return x.astype(self.dtype).astype(F)

    def mix(self, weights: Array, v: Array) -> Array:
        return weights @ v

    def log_sum_exp(self, m: Array, total: Array) -> Array:
        return np.where(total > 0, m + np.log(_or_one(total)), F(-np.inf))


class Sequential(Plain):
    """As :class:`Plain`, with every sum taken one term after the other: the least accurate correct order."""

    name = "sequential"

    def dot(self, a: Array, b: Array) -> Array:
        return _one_by_one(a, b)

    def mix(self, weights: Array, v: Array) -> Array:
        return _one_by_one(weights, v)

    def total(self, e: Array) -> Array:
        if e.shape[-1] == 0:
            return np.zeros((*e.shape[:-1], 1), F)
        return np.cumsum(e, axis=-1, dtype=F)[..., -1:]


class Blockwise(Plain):
    """Online softmax over blocks of keys, in base 2, as FlashAttention computes it (Dao 2023, algorithm 1)."""

    name = "blockwise"

    def __init__(self, block: int, rounds_weights: bool = False) -> None:
        super().__init__(rounds_weights)
        self.block = block
        self.name = f"blockwise-{block}"

    def attend(self, given: Problem) -> tuple[Array, Array]:
        v = self.values(given)
        s = self.scores(given) * _LOG2_E
        rows = (*s.shape[:-1], 1)
        m, total = np.full(rows, -np.inf, F), np.zeros(rows, F)
        out = np.zeros((*s.shape[:-1], v.shape[-1]), F)
        if given.sinks is not None:
            m = np.broadcast_to(given.sinks.astype(F)[None, :, None, None] * _LOG2_E, rows)
            total = np.ones(rows, F)
        for start in range(0, s.shape[-1], self.block):
            keys = slice(start, start + self.block)
            new = np.maximum(m, s[..., keys].max(-1, keepdims=True))
            base = np.where(np.isfinite(new), new, F(0))
            factor = np.exp2(m - base)
            p = np.exp2(s[..., keys] - base)
            total = total * factor + self.total(p)
            out = out * factor + self.mix(self.weights(p), v[..., keys, :])
            m = new
        base = np.where(np.isfinite(m), m, F(0))
        lse = np.where(total > 0, (base + np.log2(_or_one(total))) * _LN_2, F(-np.inf))
        return out * (F(1) / _or_one(total)), lse[..., 0]


class SplitKeys(Plain):
    """Keys in parts whose normalised outputs are kept in the dtype of the inputs, then merged (class ``split``)."""

    name = "split"

    def __init__(self, parts: int, rounds_weights: bool = True) -> None:
        super().__init__(rounds_weights)
        self.parts = parts
        self.name = f"split in {parts}"

    def attend(self, given: Problem) -> tuple[Array, Array]:
        v = self.values(given)
        s = self.scores(given)
        rows = (*s.shape[:-1], 1)
        peaks, totals, outs = [np.full(rows, -np.inf, F)], [np.zeros(rows, F)], [np.zeros(rows, F)]
        if given.sinks is not None:
            peaks.append(np.broadcast_to(given.sinks.astype(F)[None, :, None, None], rows))
            totals.append(np.ones(rows, F))
            outs.append(np.zeros(rows, F))
        for keys in np.array_split(np.arange(s.shape[-1]), self.parts):
            peak = s[..., keys].max(-1, keepdims=True, initial=-np.inf)
            p = self.exp(s[..., keys] - np.where(np.isfinite(peak), peak, F(0)))
            total = self.total(p)
            peaks.append(peak)
            totals.append(total)
            outs.append(self.rounded(self.mix(self.weights(p), v[..., keys, :]) / _or_one(total)))
        m = np.maximum.reduce(peaks)
        m = np.where(np.isfinite(m), m, F(0))
        shares = [total * self.exp(peak - m) for peak, total in zip(peaks, totals, strict=True)]
        total = np.add.reduce(shares)
        out = np.zeros((*s.shape[:-1], v.shape[-1]), F)
        for share, part in zip(shares, outs, strict=True):
            out = out + share * part
        return out / _or_one(total), self.log_sum_exp(m, total)[..., 0]


def correct_implementations(dtype: str, precision: str) -> dict[str, Callable[[Call], dict[str, Array]]]:
    """Correct implementations by name, as they round in a precision class."""
    if precision == "split":
        return {f"split in {parts}": SplitKeys(parts) for parts in (2, 7, 32)}
    rounds = precision == "P" and dtype != "float32"
    return {
        "plain": Plain(rounds),
        "plain, normalised first": Plain(rounds, normalise_first=True),
        "sequential": Sequential(rounds),
        "sequential, normalised first": Sequential(rounds, normalise_first=True),
        "blockwise-8": Blockwise(8, rounds),
        "blockwise-32": Blockwise(32, rounds),
        "blockwise-128": Blockwise(128, rounds),
    }


def _one_by_one(a: Array, b: Array) -> Array:
    total = np.zeros((*a.shape[:-1], b.shape[-1]), F)
    for n in range(a.shape[-1]):
        total += a[..., n : n + 1] * b[..., n : n + 1, :]
    return total


def _or_one(total: Array) -> Array:
    return np.where(total == 0, F(1), total)


def _finite(array: Array) -> Array:
    """float32, with NaN and infinities (which only hidden entries may hold) as 0."""
    return np.nan_to_num(array.astype(F), nan=0.0, posinf=0.0, neginf=0.0)
