"""Which keys a step gets from a cache, and which of them each of its queries may see.

Caches count in *slots*: every row of a batch is fed one slot per step and token, and left padding takes up slots too.
Distances between slots are distances between positions, so that causality, windows, ALiBi and T5's bias need nothing
else. Positions themselves (slot - padding) matter to rotary and learned positions only, and enter before the cache.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from typing import Any

import mlx.core as mx
import numpy as np

Window = int | tuple[int | None, int | None] | None


@dataclass(frozen=True)
class View:
    """``N`` queries at slots ``first``, ``first + 1``, ... and ``T`` keys.

    The keys are at consecutive slots from ``start``, or (``start`` is None) at ``slots`` ``[T]``. A cache that forgets
    gives its rule: a query sees the first ``keep`` slots and ``window`` slots that end with its own. ``exists``,
    boolean ``[B, 1, 1, T]``, is false at padding. Where ``furthest`` is given, a single query sees every key as far as
    the cache's rule goes, and none is further back; ``slots`` may then be a function, as few steps need them.
    """

    N: int
    T: int
    first: int
    start: int | None = 0
    slots: np.ndarray | Callable[[], np.ndarray] | None = None
    window: int | None = None
    keep: int = 0
    exists: mx.array | None = None
    furthest: int | None = None

    @staticmethod
    def whole(T: int, exists: mx.array | None = None) -> View:
        """T tokens without a cache."""
        return View(N=T, T=T, first=0, exists=exists)

    def key_slots(self) -> np.ndarray:
        """The slot of every key, ``[T]``."""
        if self.slots is not None:
            return self.slots() if callable(self.slots) else self.slots
        assert self.start is not None
        return np.arange(self.start, self.start + self.T)

    def distances(self) -> mx.array:
        """Key slot - query slot, int32 ``[1, N, T]``."""
        queries = mx.arange(self.first, self.first + self.N, dtype=mx.int32)
        return (mx.array(self.key_slots().astype(np.int32)) - queries[:, None])[None]

    def options(self, window: Window = None, *, causal: bool = True) -> dict[str, Any]:
        """Arguments of the attention function for a model's own ``window`` together with the rule of the cache."""
        if self.start is None:
            return {"mask": self.allowed(window)}
        band: Window = window
        if self.window is not None and self.window < self.T:
            left, right = _sides(window)
            band = (min(left, self.window - 1) if left is not None else self.window - 1, right)
        given = {"causal": causal, "window": band, "q_offset": self.first - self.start, "mask": self.exists}
        return {name: value for name, value in given.items() if value is not None}

    def allowed(self, window: Window = None) -> mx.array | None:
        """Boolean ``[1 or B, 1, N, T]``: causality, the cache's rule, ``window`` and padding. ``None``: all is seen."""
        left, right = _sides(window)
        right = 0 if right is None else min(right, 0)
        if self.furthest is not None and right == 0 and (left is None or left >= self.furthest):
            return self.exists
        slots = self.key_slots()
        if self.N == 1 and _seen_by_one(self, slots, left, right):
            return self.exists
        ahead = self.distances()[:, None]
        rules = [ahead <= right]
        if left is not None:
            rules.append(ahead >= -left)
        if self.window is not None:
            rules.append(mx.logical_or(ahead > -self.window, mx.array(slots < self.keep)))
        if self.exists is not None:
            rules.append(self.exists)
        return reduce(mx.logical_and, rules)

    def mlx_lm_mask(self, window: int | None, *, return_array: bool) -> mx.array | str | None:
        """What mlx-lm's models hand to their attention: nothing, ``"causal"`` or an array."""
        inside = window is None or window >= self.T
        bounded = self.window is not None and self.window < self.T
        if self.exists is None and self.start is not None and inside and not bounded:
            if self.N == 1:
                return None
            if not return_array:
                return "causal"
        return self.allowed(window)


def hide(mask: mx.array | None, exists: mx.array | None) -> mx.array | None:
    """A mask, boolean or additive, that also hides the keys where ``exists`` is false."""
    if mask is None or exists is None:
        return exists if mask is None else mask
    if mask.dtype == mx.bool_:
        return mx.logical_and(mask, exists)
    return mx.where(exists, mask, mx.array(float("-inf"), dtype=mask.dtype))


def _sides(window: Window) -> tuple[int | None, int | None]:
    if window is None:
        return None, None
    return (window - 1, 0) if isinstance(window, int) else (window[0], window[1])


def _seen_by_one(view: View, slots: np.ndarray, left: int | None, right: int) -> bool:
    """Whether a single query sees every key that exists, as the host knows."""
    back = view.first - slots
    seen = back >= -right
    if left is not None:
        seen &= back <= left
    if view.window is not None:
        seen &= (back < view.window) | (slots < view.keep)
    return bool(seen.all())
