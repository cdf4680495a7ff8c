"""Planted faults: computations of attention that are wrong in one step each. A bound must not accept them."""

from __future__ import annotations

import numpy as np

from ..call import Call
from ..oracle.arguments import Problem
from .reference import Array, F, Plain


class Fault(Plain):
    """A plain computation with one step done wrong; rounds its weights as the dtype's default class does."""

    name = "fault"

    def __call__(self, call: Call) -> dict[str, Array]:
        self.rounds_weights = call.dtype != "float32"
        return super().__call__(self.changed(call))

    def changed(self, call: Call) -> Call:
        """The call that is computed instead."""
        return call

    def half(self, x: Array) -> Array:
        """``x`` rounded to half precision: to the dtype of the inputs, to float16 where that is float32."""
        return x.astype(np.float16 if self.dtype == np.float32 else self.dtype).astype(F)


class LastKeyLost(Fault):
    """The tail of the keys is dropped."""

    name = "last key lost"

    def allowed(self, given: Problem) -> Array:
        allowed = given.allowed.copy()
        allowed[..., -1] = False
        return allowed


class HiddenKeySeen(Fault):
    """In one row one key that the mask hides is seen."""

    name = "one hidden key seen"

    def allowed(self, given: Problem) -> Array:
        allowed = given.allowed.copy()
        row = allowed[:, :, allowed.shape[2] // 2]
        hidden = np.argmin(row, axis=-1)[..., None]
        np.put_along_axis(row, hidden, True, axis=-1)
        return allowed


class SeenKeyHidden(Fault):
    """In one row one key that the mask shows is hidden."""

    name = "one seen key hidden"

    def allowed(self, given: Problem) -> Array:
        allowed = given.allowed.copy()
        row = allowed[:, :, allowed.shape[2] // 2]
        seen = np.argmax(row, axis=-1)[..., None]
        np.put_along_axis(row, seen, False, axis=-1)
        return allowed


class WindowWider(Fault):
    """The sliding window is one key too wide."""

    name = "window + 1"

    def changed(self, call: Call) -> Call:
        return call.with_options(window=int(call.options["window"]) + 1)


class WindowNarrower(Fault):
    """The sliding window is one key too narrow."""

    name = "window - 1"

    def changed(self, call: Call) -> Call:
        return call.with_options(window=int(call.options["window"]) - 1)


class ScaleOff(Fault):
    """The scale is off by one part in 256."""

    name = "scale (1 + 2^-8)"

    def changed(self, call: Call) -> Call:
        scale = call.options.get("scale", call.arrays["q"].shape[-1] ** -0.5)
        return call.with_options(scale=scale * (1 + 2.0**-8))


class ScaleOfNextSize(Fault):
    """1/sqrt(D + 1) in place of 1/sqrt(D)."""

    name = "scale 1/sqrt(D + 1)"

    def changed(self, call: Call) -> Call:
        return call.with_options(scale=(call.arrays["q"].shape[-1] + 1) ** -0.5)


class HalfScores(Fault):
    """Scores are kept in half precision."""

    name = "scores in half"

    def product(self, q: Array, k: Array, scale: float) -> Array:
        return self.half(super().product(q, k, scale))


class HalfScoreSums(Fault):
    """q.k is accumulated in half precision."""

    name = "q.k accumulated in half"

    def dot(self, a: Array, b: Array) -> Array:
        total = np.zeros((*a.shape[:-1], b.shape[-1]), F)
        for n in range(a.shape[-1]):
            total = self.half(total + a[..., n : n + 1] * b[..., n : n + 1, :])
        return total


class HalfOutputSums(Fault):
    """p v is accumulated in half precision, sixteen keys at a time."""

    name = "p v accumulated in half"

    def mix(self, weights: Array, v: Array) -> Array:
        total = np.zeros((*weights.shape[:-1], v.shape[-1]), F)
        for start in range(0, v.shape[-2], 16):
            keys = slice(start, start + 16)
            total = self.half(total + weights[..., keys] @ v[..., keys, :])
        return total


class HalfTotals(Fault):
    """The sum of exponentials is accumulated in half precision, 32 keys at a time."""

    name = "sum of exp in half"

    def total(self, e: Array) -> Array:
        total = np.zeros((*e.shape[:-1], 1), F)
        for start in range(0, e.shape[-1], 32):
            total = self.half(total + e[..., start : start + 32].sum(-1, keepdims=True))
        return total


class RationalCap(Fault):
    """The soft-cap's tanh is the rational approximation x (27 + x^2) / (27 + 9 x^2)."""

    name = "rational soft-cap"

    def cap(self, s: Array, c: np.float32) -> Array:
        x = s / c
        return c * np.clip(x * (27 + x * x) / (27 + 9 * x * x), F(-1), F(1))


class NarrowProducts(Fault):
    """q and k are rounded to 11 significant bits before they multiply, as TF32 units do."""

    name = "TF32 products"

    def operands(self, given: Problem) -> tuple[Array, Array, float]:
        q, k, scale = super().operands(given)
        return _eleven_bits(q), _eleven_bits(k), scale


class CoarseExp(Fault):
    """An exponential that is good to 2^-10 only."""

    name = "exp to 2^-10"

    def exp(self, x: Array) -> Array:
        ripple = np.sin(2 * np.pi * np.where(np.isfinite(x), x, F(0))).astype(F)
        return np.exp(x) * (1 + F(2.0**-10) * ripple)


def _eleven_bits(x: Array) -> Array:
    mantissa, exponent = np.frexp(x)
    return np.ldexp(np.round(mantissa * 2**11) / F(2**11), exponent).astype(F)


FAULTS: tuple[type[Fault], ...] = (
    LastKeyLost,
    HiddenKeySeen,
    SeenKeyHidden,
    WindowWider,
    WindowNarrower,
    ScaleOff,
    ScaleOfNextSize,
    HalfScores,
    HalfScoreSums,
    HalfOutputSums,
    HalfTotals,
    RationalCap,
    NarrowProducts,
    CoarseExp,
)
# Faults that only a float32 call must show: a half result cannot tell.
FLOAT32_FAULTS: tuple[type[Fault], ...] = (NarrowProducts, CoarseExp)
