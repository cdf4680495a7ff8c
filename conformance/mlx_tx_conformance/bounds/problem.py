"""An attention call as a bound sees it: float64 arrays, the oracle's stages, and tiles of rows to work on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..call import Call
from ..oracle.arguments import problem as oracle_problem
from ..oracle.attention import AttentionStages, solve
from .alibi import SLOPE_ULPS

# Elements of one [heads, rows, T_kv] temporary: 2 MiB of float64, so that a tile's working set stays in cache.
_TILE_ELEMENTS = 1 << 18

_INPUTS = ("q", "k", "v")


@dataclass(frozen=True)
class Tile:
    """Some rows of some heads: ``batch`` and ``head`` index arrays of equal length, and a slice of rows."""

    batch: np.ndarray
    head: np.ndarray
    rows: slice

    def of(self, array: np.ndarray) -> np.ndarray:
        """``[heads, rows, ...]`` of an array ``[B, N_q, T_q, ...]``."""
        if len(self.head) == 1:
            return array[int(self.batch[0]), int(self.head[0]), self.rows][None]
        return array[self.batch, self.head][:, self.rows]


@dataclass(frozen=True)
class AttentionProblem:
    """Inputs (float64), the oracle's stages, and what the roundings of one attention call depend on besides.

    ``terms`` are the magnitudes of what is added to the capped scores (ALiBi, bias, additive mask), each a view of
    shape ``[B, N_q, T_q, T_kv]``; ``term_error`` is that of computing them, in units of u times the first term
    (ALiBi). ``input_error`` holds element-wise bounds of the errors that q, k, v (d_out) come with.
    """

    q: np.ndarray
    k: np.ndarray
    v: np.ndarray
    stages: AttentionStages
    dtype: str
    softcap: float | None
    sinks: np.ndarray | None
    terms: tuple[np.ndarray, ...]
    term_error: float
    input_error: Mapping[str, np.ndarray] = field(default_factory=dict)

    @property
    def group(self) -> int:
        """Query heads for each head of k and v."""
        return self.q.shape[1] // self.k.shape[1]

    def tiles(self) -> Iterator[Tile]:
        """Tiles that cover every row once, small enough to stay in cache."""
        B, N_q, T_q = self.q.shape[:3]
        T_kv = self.k.shape[2]
        if B * N_q * T_q == 0:
            return
        per_head = max(1, T_q * T_kv)
        heads = max(1, _TILE_ELEMENTS // per_head)
        step = T_q if heads > 1 else min(T_q, max(1, _TILE_ELEMENTS // max(1, T_kv)))
        for first in range(0, B * N_q, heads):
            flat = np.arange(first, min(first + heads, B * N_q))
            for row in range(0, T_q, step):
                yield Tile(flat // N_q, flat % N_q, slice(row, min(row + step, T_q)))

    def shared(self, array: np.ndarray, tile: Tile) -> np.ndarray:
        """``[heads, T_kv, ...]`` of an array ``[B, N_kv, T_kv, ...]`` for the query heads of a tile."""
        head = tile.head // self.group
        if len(head) == 1:
            return array[int(tile.batch[0]), int(head[0])][None]
        return array[tile.batch, head]


def float64(array: np.ndarray) -> np.ndarray:
    """Any array as float64."""
    return np.asarray(array).astype(np.float64)


def oracle_arguments(call: Call) -> dict[str, Any]:
    """The keyword arguments with which the oracle computes an attention call (q, k and v apart)."""
    arrays, options = call.arrays, call.options
    arguments: dict[str, Any] = {}
    for name in ("mask", "bias", "sinks", "kv_lengths", "alibi", "q_offset"):
        if name in arrays:
            arguments[name] = arrays[name]
    for name in ("scale", "causal", "mask", "window", "softcap", "q_offset", "alibi"):
        value = options.get(name)
        if value is not None and value is not False:
            arguments[name] = tuple(value) if isinstance(value, list) else value
    if "segments" in arrays:
        arguments["segments"] = arrays["segments"]
    if "q_segments" in arrays:
        arguments["segments"] = (arrays["q_segments"], arrays["kv_segments"])
    return arguments


def attention_problem(
    call: Call,
    input_error: Mapping[str, np.ndarray] | None = None,
    stages: AttentionStages | None = None,
    dtype: str | None = None,
) -> AttentionProblem:
    """Everything that the bounds of an attention call depend on; runs the oracle unless its stages are given.

    ``dtype`` names the dtype that q, k, v stand for where the call holds more exact numbers than that.
    """
    arguments = oracle_arguments(call)
    given = oracle_problem(*(call.arrays[name] for name in _INPUTS), **arguments)
    # Values under a mask may be NaN or infinite; the stages already leave them out.
    q, k, v = (_finite(array) for array in (given.q, given.k, given.v))
    shape = (*q.shape[:3], k.shape[2])
    return AttentionProblem(
        q=q,
        k=k,
        v=v,
        stages=solve(given) if stages is None else stages,
        dtype=call.dtype if dtype is None else dtype,
        softcap=given.softcap,
        sinks=given.sinks,
        terms=tuple(np.broadcast_to(np.abs(term), shape) for term in given.terms),
        # ALiBi, the first term: the product with the distance, and the slopes where they are computed.
        term_error=0.0 if "alibi" not in arguments else 1.0 + (SLOPE_ULPS if arguments["alibi"] is True else 0.0),
        input_error={name: float64(error) for name, error in (input_error or {}).items()},
    )


def _finite(array: np.ndarray) -> np.ndarray:
    if np.isfinite(array).all():
        return array
    return np.nan_to_num(array, nan=0.0, posinf=0.0, neginf=0.0)
