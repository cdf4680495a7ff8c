"""What all layers of a stack share while a model runs over some tokens: where the tokens stand and which exist."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import mlx.core as mx

from mlx_tx.angles import token_positions
from mlx_tx.cache.view import View, hide
from mlx_tx.config import AttentionConfig, PositionConfig
from mlx_tx.positions import alibi_slopes
from mlx_tx.relative import RelativeBias
from mlx_tx.rotary import Turns, turns


@dataclass
class Step:
    """One run over tokens ``[B, T]``.

    ``positions`` int64 ``[1 or B, T]`` and ``length`` (L of the rotary recipes) are for position encodings; ``padded``
    tells that negative positions are padding. ``exists`` ``[B, 1, 1, T]``, ``lengths`` and ``mask`` say what may be
    seen besides what the model and its caches decide; ``lengths`` and ``segments`` only without a cache.
    ``bias`` is the stack's T5 table; a checkpointed layer passes no gradient to it, as it is none of its arguments.
    """

    B: int
    T: int
    positions: mx.array
    causal: bool
    length: Any = None
    padded: bool = False
    lengths: Any = None
    exists: mx.array | None = None
    mask: mx.array | None = None
    segments: Any = None
    check: bool = False
    bias: RelativeBias | None = None
    _turns: dict[PositionConfig, Turns] = field(default_factory=dict)

    @staticmethod
    def plain(B: int, T: int, *, causal: bool = False) -> Step:
        """Tokens from position 0 on, all of which exist."""
        return Step(B=B, T=T, positions=mx.arange(T)[None], causal=causal, length=T)

    def turns(self, position: PositionConfig, head_dim: int) -> Turns:
        """The rotation of every token, computed once for all layers that share it."""
        if position not in self._turns:
            dims = head_dim if position.dims is None else position.dims
            self._turns[position] = turns(self.positions, dims, position.base, position.scaling, self.length)
        return self._turns[position]

    def options(self, attention: AttentionConfig, position: PositionConfig, view: View) -> dict[str, Any]:
        """What self-attention is given to see the keys of ``view`` by the rules of model, cache and caller."""
        given = view.options(attention.window, causal=self.causal)
        given["mask"] = hide(self.mask, given.get("mask"))
        if self.lengths is not None:
            given["kv_lengths"] = self.lengths
        if self.segments is not None:
            given["segments"] = self.segments
        if position.kind == "alibi" and view.start is not None:
            given["alibi"] = True
        elif position.kind == "alibi":
            # Keys out of order: the distances of the slots stand in for those of the indices.
            slopes = alibi_slopes(attention.num_heads)[:, None, None]
            given["bias"] = -slopes * mx.abs(view.distances())[:, None].astype(mx.float32)
        if position.kind == "t5":
            assert self.bias is not None
            two_sided = not self.causal if position.bidirectional is None else position.bidirectional
            given["bias"] = self.bias(view.distances(), bidirectional=two_sided, max_distance=position.max_distance)
        return given


def begin(
    name: str,
    B: int,
    T: int,
    *,
    causal: bool,
    start: Any = None,
    offset: Any = None,
    positions: Any = None,
    lengths: Any = None,
    left_padding: Any = None,
    segments: Any = None,
    mask: mx.array | None = None,
    rope_length: Any = None,
    check: bool = False,
) -> Step:
    """The step of a model's call, after a check of its arguments. ``start``: the offset of the caches, if any."""
    cached = start is not None
    for argument, value in (("offset", offset), ("positions", positions), ("left_padding", left_padding),
                            ("segments", segments)):  # fmt: skip
        if cached and value is not None:
            raise ValueError(f"[{name}] {argument} must be absent with a cache, which knows it; got {value!r}")
    if positions is not None and (offset is not None or left_padding is not None):
        raise ValueError(f"[{name}] positions must come without offset and left_padding, which they contain")
    lengths = per_row(name, "lengths", lengths, B, T, check=check)
    pads = per_row(name, "left_padding", left_padding, B, T, check=check)
    first: Any = start if cached else 0 if offset is None else offset
    if positions is not None:
        at = _given_positions(name, positions, B, T)
    else:
        at = token_positions(name, first, B, T)
        if pads is not None:
            at = at - mx.array(pads)[:, None]
    exists = None if pads is None else (mx.arange(T) >= mx.array(pads)[:, None])[:, None, None, :]
    return Step(
        B=B,
        T=T,
        positions=at,
        causal=causal,
        length=_length(name, B, T, first, at, lengths, pads, positions, rope_length),
        padded=pads is not None or (cached and isinstance(start, mx.array)),
        lengths=None if cached else lengths,
        exists=exists,
        mask=hide(mask, exists),
        segments=segments,
        check=check,
    )


def per_row(name: str, argument: str, values: Any, B: int, T: int, *, check: bool) -> Any:
    """One count in 0..T for each row: Python numbers are checked, an array is with ``check``, which reads it."""
    if values is None:
        return None
    if isinstance(values, mx.array):
        if not mx.issubdtype(values.dtype, mx.integer) or values.shape != (B,):
            got = f"{values.dtype} of shape {values.shape}"
            raise ValueError(f"[{name}] {argument} must be integers of shape [B]=({B},); got {got}")
        if not check:
            return values
        values = values.tolist()
    known = list(values)
    if len(known) != B or any(isinstance(v, bool) or not hasattr(v, "__index__") for v in known):
        raise ValueError(f"[{name}] {argument} must be one integer for each of the B={B} rows; got {values!r}")
    known = [operator.index(v) for v in known]
    for value in known:
        if not 0 <= value <= T:
            raise ValueError(f"[{name}] {argument} must be in 0..T={T}; got {value}")
    return known


def _given_positions(name: str, positions: Any, B: int, T: int) -> mx.array:
    at = positions if isinstance(positions, mx.array) else mx.array(positions)
    if not mx.issubdtype(at.dtype, mx.integer) or at.shape not in ((T,), (1, T), (B, T)):
        raise ValueError(f"[{name}] positions must be integers [T] or [B, T]; got {at.dtype} of shape {at.shape}")
    return at.reshape(-1, T).astype(mx.int64)


def _length(
    name: str, B: int, T: int, first: Any, at: mx.array, lengths: Any, pads: Any, positions: Any, given: Any
) -> Any:
    """One more than the last position of a token that exists, of each row: on the host where all of it is known."""
    if given is not None:
        if isinstance(given, bool) or not isinstance(given, int) or given < 1:
            raise ValueError(f"[{name}] rope_length must be an integer >= 1; got {given!r}")
        return given
    known = positions is None and not any(isinstance(x, mx.array) for x in (first, lengths, pads))
    if known:
        starts = list(first) if isinstance(first, Sequence) else [operator.index(first)] * B
        starts = starts * B if len(starts) == 1 else starts
        ends = lengths or [T] * B
        before = pads or [0] * B
        # A row of no token has no length; its result means nothing.
        return [s + e - p if e else 0 for s, e, p in zip(starts, ends, before, strict=True)]
    if lengths is None:
        return mx.max(at, axis=1) + 1
    exists = mx.arange(T) < mx.array(lengths)[:, None]
    return mx.max(mx.where(exists, at, -1), axis=1) + 1
