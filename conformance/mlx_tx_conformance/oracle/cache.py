"""What a key/value cache must remember, as the plain list of tokens that were fed and not taken back.

A cache is right when a step with it gives what the whole text would give at once. So the reference keeps no buffer, no
index and no ring: each row of the batch is a list of tokens, and one rule says which of them a query may see.

| kind | the query at position p sees the keys at |
|---|---|
| full | j <= p |
| rotating, ``max_size`` W, ``keep`` K | j < K (sinks), and p - (W - K) < j <= p: W keys at most, its own included |
| quantised | j <= p, each key and value as it comes back from :func:`~.quantise.quantise` |
| batched | as its kind, counted from the row's first token; left padding is no token and is never kept |
| cross | all of the memory, filled once |

The rule speaks of positions, not of calls: a text fed in one piece, in chunks or token by token sees the same.

Sources: rotating with sinks: Xiao et al. 2023, "Efficient Streaming Language Models with Attention Sinks", section
3.2 (positions stay those of the text here, as in mlx-lm); window: Jiang et al. 2023, "Mistral 7B", section 2.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .quantise import quantised_values

Bool = NDArray[np.bool_]
Float64 = NDArray[np.float64]
Int = NDArray[np.int64]


@dataclass(frozen=True)
class Rule:
    """Which keys a query sees: all up to its own (``max_size`` None), or sinks and a window."""

    max_size: int | None = None
    keep: int = 0

    def __post_init__(self) -> None:
        if self.max_size is not None and self.max_size < 1:
            raise ValueError(f"[Rule] max_size must be >= 1; got {self.max_size}")
        if self.keep and (self.max_size is None or not 0 <= self.keep < self.max_size):
            raise ValueError(f"[Rule] keep must lie in 0..max_size - 1; got {self.keep} of {self.max_size}")

    def sees(self, query: Any, key: Any) -> Any:
        """Whether the query at one position sees the key at another; integers, or arrays of them that broadcast."""
        seen = (key >= 0) & (key <= query)
        if self.max_size is None:
            return seen
        return seen & ((key < self.keep) | (key > query - (self.max_size - self.keep)))

    def mask(self, T: int, left_padding: ArrayLike | None = None) -> Bool:
        """The rule over a whole text of T slots, [1 or B, 1, T, T]: what a single pass has to be given."""
        pads = np.zeros(1, dtype=np.int64) if left_padding is None else np.asarray(left_padding)
        at = np.arange(T) - pads[:, None, None]
        return np.asarray(self.sees(at[..., None], at[..., None, :]))


@dataclass(frozen=True)
class Token:
    """The key [N_kv, D] and value [N_kv, D_v] of one token, as the cache gives them back."""

    key: Float64
    value: Float64


@dataclass
class Row:
    """One text of the batch: its tokens, the slots fed so far, and how many of the first slots are padding.

    ``held`` are the positions that a cache of no more than W tokens has not had to give up.
    """

    left_padding: int
    fed: int = 0
    tokens: list[Token] = field(default_factory=list)
    held: set[int] = field(default_factory=set)

    @property
    def offset(self) -> int:
        """The position of the next token; negative while padding is still to come."""
        return self.fed - self.left_padding


@dataclass(frozen=True)
class View:
    """What one step attends to: the tokens that any of its queries sees, oldest first, right-aligned over the rows.

    ``keys`` [B, N_kv, T, D], ``values`` [B, N_kv, T, D_v], ``allowed`` bool [B, 1, S, T], ``positions`` [B, S] of the
    queries, ``key_positions`` [B, T] with -1 where a row has no token. Padding sees nothing.
    """

    keys: Float64
    values: Float64
    allowed: Bool
    positions: Int
    key_positions: Int


class TokenCache:
    """The reference of full, rotating and quantised caches, for one text or a batch with left padding.

    ``left_padding`` holds one number a row (a single row of none by default); ``rule`` and ``quantisation`` (the
    keywords of :func:`~.quantise.quantised_values`) make the kind.
    """

    def __init__(
        self,
        left_padding: Sequence[int] = (0,),
        *,
        rule: Rule | None = None,
        quantisation: Mapping[str, Any] | None = None,
    ) -> None:
        self.rule = Rule() if rule is None else rule
        self.quantisation = quantisation
        self.rows = [Row(left_padding=pad) for pad in left_padding]

    @property
    def offsets(self) -> list[int]:
        """The position of the next token of each row."""
        return [row.offset for row in self.rows]

    def kept(self) -> list[list[int]]:
        """The positions of each row that a cache has to remember now: those that a later query can still see.

        The next query has position ``offset``; what it does not see, no later one does.
        """
        return [[j for j in range(len(row.tokens)) if self.rule.sees(row.offset, j)] for row in self.rows]

    def update(self, keys: ArrayLike, values: ArrayLike) -> View:
        """Feed ``keys`` [B, N_kv, S, D] and ``values`` [B, N_kv, S, D_v]; returns what their queries attend to."""
        k, v = self._stored(keys), self._stored(values)
        B, S = len(self.rows), k.shape[2]
        if k.shape[0] != B or v.shape[:3] != k.shape[:3]:
            raise ValueError(f"[TokenCache] keys and values must have batch {B}; got {k.shape} and {v.shape}")
        positions = np.array([[row.offset + i for i in range(S)] for row in self.rows], dtype=np.int64)
        for b, row in enumerate(self.rows):
            for i in range(S):
                if row.offset >= 0:
                    row.tokens.append(Token(k[b, :, i], v[b, :, i]))
                    row.held.add(row.offset)
                row.fed += 1
            # A cache may hold W tokens between calls: those that the query at the last position saw.
            row.held = {j for j in row.held if self.rule.sees(row.offset - 1, j)}
        return self._view(positions, k.shape[-1], v.shape[-1], k.shape[1])

    def _stored(self, x: ArrayLike) -> Float64:
        array = np.asarray(x).astype(np.float64)
        return array if self.quantisation is None else quantised_values(array, **self.quantisation)

    def _view(self, positions: Int, D: int, D_v: int, N: int) -> View:
        seen = [
            [j for j in range(len(row.tokens)) if any(self.rule.sees(p, j) for p in queries)]
            for row, queries in zip(self.rows, positions.tolist(), strict=True)
        ]
        (B, S), T = positions.shape, max((len(js) for js in seen), default=0)
        view = View(
            keys=np.zeros((B, N, T, D)),
            values=np.zeros((B, N, T, D_v)),
            allowed=np.zeros((B, 1, S, T), dtype=bool),
            positions=positions,
            key_positions=np.full((B, T), -1, dtype=np.int64),
        )
        for b, (row, js) in enumerate(zip(self.rows, seen, strict=True)):
            for slot, j in enumerate(js, start=T - len(js)):
                view.keys[b, :, slot] = row.tokens[j].key
                view.values[b, :, slot] = row.tokens[j].value
                view.key_positions[b, slot] = j
                view.allowed[b, 0, :, slot] = [self.rule.sees(p, j) for p in positions[b].tolist()]
        return view

    def trimmable(self) -> bool:
        """mlx-lm's ``is_trimmable``: a rotating cache no longer is once it is full."""
        return self.rule.max_size is None or max((row.fed for row in self.rows), default=0) < self.rule.max_size

    def can_trim(self, n: int) -> bool:
        """Whether what is left of a cache of W tokens after taking back ``n`` is as if they had never been fed."""
        after = [(row, row.offset - n) for row in self.rows]
        return all({j for j in range(max(offset, 0)) if self.rule.sees(offset, j)} <= row.held for row, offset in after)

    def trim(self, n: int) -> int:
        """Take back the last ``n`` slots of every row, at most all of them; returns how many."""
        n = min(n, *(row.fed for row in self.rows))
        for row in self.rows:
            row.fed -= n
            del row.tokens[max(row.offset, 0) :]
            row.held = {j for j in row.held if j < row.offset}
        return n

    def rewind(self, fed: int) -> int:
        """Take back everything after the first ``fed`` slots; returns how many were taken back."""
        return self.trim(max(0, max(row.fed for row in self.rows) - fed))

    def copy(self) -> TokenCache:
        """A cache of its own with the same tokens: what a saved and restored one has to be."""
        twin = TokenCache((), rule=self.rule, quantisation=self.quantisation)
        twin.rows = [replace(row, tokens=list(row.tokens), held=set(row.held)) for row in self.rows]
        return twin

    def filter(self, rows: Sequence[int]) -> None:
        """Keep these rows only, in this order."""
        chosen = self.copy().rows
        self.rows = [replace(chosen[b], tokens=list(chosen[b].tokens), held=set(chosen[b].held)) for b in rows]

    def extract(self, row: int) -> TokenCache:
        """The cache of one row alone, without its padding."""
        alone = self.copy()
        alone.filter([row])
        alone.rows[0] = replace(alone.rows[0], left_padding=0, fed=max(alone.rows[0].offset, 0))
        return alone

    @staticmethod
    def merge(caches: Sequence[TokenCache]) -> TokenCache:
        """The rows of several caches as one batch; shorter texts get padding on the left."""
        kinds = [(cache.rule, cache.quantisation) for cache in caches]
        if any(kind != kinds[0] for kind in kinds):
            raise ValueError(f"[TokenCache] caches must be of one kind; got {kinds}")
        merged = TokenCache((), rule=caches[0].rule, quantisation=caches[0].quantisation)
        merged.rows = [row for cache in caches for row in cache.copy().rows]
        longest = max((row.fed for row in merged.rows), default=0)
        for row in merged.rows:
            row.left_padding += longest - row.fed
            row.fed = longest
        return merged


class CrossCache:
    """Keys and values of an encoder's output, filled once: no query adds to it and no trim takes from it."""

    def __init__(self) -> None:
        self.view: View | None = None

    def fill(self, keys: ArrayLike, values: ArrayLike, lengths: ArrayLike | None = None) -> None:
        """``keys`` [B, N_kv, S, D] and ``values`` [B, N_kv, S, D_v] of a memory of ``lengths`` [B] (all of S)."""
        if self.view is not None:
            raise ValueError("[CrossCache] fill must be called once; got a second memory")
        k, v = np.asarray(keys).astype(np.float64), np.asarray(values).astype(np.float64)
        B, _, S, _ = k.shape
        exists = np.arange(S) < (np.full(B, S) if lengths is None else np.asarray(lengths))[:, None]
        at = np.where(exists, np.arange(S), -1)
        self.view = View(k, v, exists[:, None, None, :], np.zeros((B, 0), dtype=np.int64), at)

    def fetch(self) -> View:
        """All of the memory; ``allowed`` [B, 1, 1, S] holds for every query."""
        if self.view is None:
            raise ValueError("[CrossCache] fill must be called before fetch; got no memory")
        return self.view

    def trim(self, n: int) -> int:
        """Nothing: what the decoder takes back is not in here."""
        del n
        return 0
