"""The cache that keeps a window of tokens, and the first ones where asked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import mlx.core as mx
import numpy as np

from mlx_tx.cache.base import Cache, check_count, check_fed, check_state, grown, whole_numbers, written
from mlx_tx.cache.view import View


class RotatingKVCache(Cache):
    """At most ``max_size`` tokens: the first ``keep`` (sinks) and the last ones.

    The query at position p sees the keys j < ``keep`` and ``p - (max_size - keep) < j <= p``, however the text is cut
    into steps: a step of many tokens gets what its first query sees besides its own. Single tokens overwrite the
    oldest slot; nothing is moved.

    Source: Xiao et al. 2023, "Efficient Streaming Language Models with Attention Sinks", section 3.2; positions stay
    those of the text.
    """

    def __init__(self, max_size: int, keep: int = 0) -> None:
        for name, value in (("max_size", max_size), ("keep", keep)):
            if isinstance(value, bool) or not isinstance(value, int):
                raise TypeError(f"[{type(self).__name__}] {name} must be an integer; got {value!r}")
        if max_size < 1:
            raise ValueError(f"[{type(self).__name__}] max_size must be >= 1; got {max_size}")
        if not 0 <= keep < max_size:
            raise ValueError(f"[{type(self).__name__}] keep must be in 0..max_size - 1 = {max_size - 1}; got {keep}")
        self.max_size = max_size
        self.keep = keep
        self.keys: mx.array | None = None
        self.values: mx.array | None = None
        self._fed = 0
        self._idx = 0  # the slot of the buffer that comes after the newest token

    @property
    def offset(self) -> Any:
        return self._fed

    def fed(self) -> int:
        return self._fed

    def size(self) -> int:
        return min(self._fed, self.max_size)

    @property
    def nbytes(self) -> int:
        return sum(x.nbytes for x in (self.keys, self.values) if x is not None)

    def _held(self) -> np.ndarray:
        """The slot in the text of every slot of the buffer that is in use."""
        return held(self.max_size, self.keep, self._fed, self._idx)

    def _needed(self) -> np.ndarray:
        """The slots of the buffer that the next query sees, oldest token first."""
        held = self._held()
        oldest_first = np.argsort(held)
        seen = (held < self.keep) | (held > self._fed - (self.max_size - self.keep))
        return oldest_first[seen[oldest_first]]

    def _in_place(self, N: int) -> bool:
        """Whether N tokens go into the buffer as it is: there is room, or one of them takes the oldest one's slot."""
        return self._fed + N <= self.max_size or N == 1

    def view(self, N: int) -> View:
        end = self._fed + N
        if end <= self.max_size:
            return View(N=N, T=end, first=self._fed, exists=self._exists(lambda: np.arange(end)))
        rule = {"window": self.max_size - self.keep, "keep": self.keep}
        if self._in_place(N):
            # The slots once the token has taken the place of the oldest one, of the cache as it is now.
            turned = partial(held, self.max_size, self.keep, end, self._next() + 1)
            return View(
                N=N,
                T=self.max_size,
                first=self._fed,
                start=None,
                slots=turned,
                furthest=self._fed if self.keep else self.max_size - 1,
                exists=self._exists(turned),
                **rule,
            )
        slots = np.concatenate([self._held()[self._needed()], np.arange(self._fed, end)])
        # Sinks make a rule that no band expresses, even where no token has been forgotten yet.
        consecutive = self.keep == 0 and bool((np.diff(slots) == 1).all())
        return View(
            N=N,
            T=len(slots),
            first=self._fed,
            start=int(slots[0]) if consecutive else None,
            slots=None if consecutive else slots,
            exists=self._exists(lambda: slots),
            **rule,
        )

    def _exists(self, slots: Callable[[], np.ndarray]) -> mx.array | None:
        """Boolean ``[B, 1, 1, T]``, false at padding; ``None``: there is none."""
        del slots
        return None

    def _next(self) -> int:
        """The slot of the buffer that a single token overwrites."""
        return self.keep if self._idx == self.max_size else self._idx

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[Any, Any]:
        N = check_fed(type(self).__name__, keys, values, self.keys)
        end = self._fed + N
        if self._in_place(N):
            at = self._next()
            slots = min(end, self.max_size)
            self.keys = written(grown(self.keys, keys, slots, self.max_size), keys, at)
            self.values = written(grown(self.values, values, slots, self.max_size), values, at)
            self._idx = at + N
            self._fed = end
            return self.keys[:, :, :slots], self.values[:, :, :slots]
        needed = mx.array(self._needed())
        views = [
            new if old is None else mx.concatenate([mx.take(old, needed, axis=2), new], axis=2)
            for old, new in ((self.keys, keys), (self.values, values))
        ]
        self._fed = end
        self._store(*views)
        return views[0], views[1]

    def _store(self, keys: mx.array, values: mx.array) -> None:
        """Keeps of a view, oldest token first and longer than the cache, what later queries see."""
        buffers = []
        for held, view in ((self.keys, keys), (self.values, values)):
            # Written into the cache's own buffer: a slice would keep the memory of the whole view alive.
            buffer = written(grown(held, view, self.max_size, self.max_size), view[:, :, : self.keep], 0)
            buffers.append(written(buffer, view[:, :, view.shape[2] - (self.max_size - self.keep) :], self.keep))
        self.keys, self.values = buffers
        self._idx = self.max_size

    def is_trimmable(self) -> bool:
        return self._fed < self.max_size

    def can_trim(self, n: int) -> bool:
        return check_count(type(self).__name__, n) == 0 or self._fed <= self.max_size

    def trim(self, n: int) -> int:
        if not self.can_trim(n):
            raise self._refuse(
                f"trim is for at most max_size={self.max_size} fed tokens, since the cache has forgotten what earlier "
                f"queries saw; got n={n} after {self._fed}"
            )
        n = min(n, self._fed)
        self._fed -= n
        if n:
            self._idx = self._fed
        return n

    @property
    def state(self) -> tuple[Any, ...]:
        return self._pair()

    @state.setter
    def state(self, state: Sequence[Any]) -> None:
        self._set_pair(state)

    def _pair(self) -> tuple[mx.array, ...]:
        if self.keys is None or self.values is None or not self._fed:
            return ()
        size = self.size()
        return self.keys[:, :, :size], self.values[:, :, :size]

    def _ordered(self) -> tuple[mx.array, ...]:
        """The keys and values that are held, oldest token first."""
        order = mx.array(np.argsort(self._held()))
        return tuple(mx.take(x, order, axis=2) for x in self._pair())

    def _set_pair(self, state: Sequence[Any]) -> None:
        self.keys, self.values = None, None
        tokens = 0
        if len(state):
            self.keys, self.values = check_state(type(self).__name__, state)
            tokens = self.keys.shape[2]
        if tokens != self.size():
            raise self._refuse(f"state must hold {self.size()} tokens, as meta_state says; got {tokens}")

    @property
    def meta_state(self) -> tuple[str, ...]:
        return str(self.keep), str(self.max_size), str(self._fed), str(self._idx)

    @meta_state.setter
    def meta_state(self, meta: Sequence[str]) -> None:
        keep, max_size, fed, idx = whole_numbers(type(self).__name__, meta, "keep", "max_size", "offset", "index")
        self._restore(max_size, keep, fed, idx)

    def _restore(self, max_size: int, keep: int, fed: int, idx: int) -> None:
        RotatingKVCache.__init__(self, max_size, keep)
        if (fed <= max_size and idx != fed) or (fed > max_size and not keep < idx <= max_size):
            raise self._refuse(f"meta_state must have an index that fits offset {fed}; got {idx}")
        self._fed, self._idx = fed, idx


def held(max_size: int, keep: int, fed: int, idx: int) -> np.ndarray:
    """The slot in the text of every slot of a ring that was fed ``fed`` tokens, the last one before ``idx``."""
    if fed <= max_size:
        return np.arange(fed)
    ring = max_size - keep
    newest_first = (idx - 1 - keep - np.arange(ring)) % ring
    slots = np.empty(max_size, dtype=np.int64)
    slots[:keep] = np.arange(keep)
    slots[keep + newest_first] = fed - 1 - np.arange(ring)
    return slots
