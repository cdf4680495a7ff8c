"""The arguments of the attention function: checked before any work, then kept in one plain form.

:func:`normalise` turns what a caller wrote into two frozen records. :class:`AttentionSpec` holds what the host
knows (shapes, the scale, the visible band, Python offsets and lengths), so that a path can plan with it;
:class:`AttentionArrays` holds the arrays, each with the axes of the scores ``[B, N_q, T_q, T_kv]`` in front of it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any

import mlx.core as mx
import numpy as np

from mlx_tx import positions
from mlx_tx.values import (
    ANY_FLOATING,
    FARTHEST_OFFSET,
    FLOATING,
    FUNCTION,
    INTEGERS,
    UNBOUNDED,
    ArrayTypeError,
    array,
    as_int32,
    dtype_name,
    flag,
    integer,
    integer_array,
    integers,
    read,
    single,
)


@dataclass(frozen=True)
class AttentionSpec:
    """What is known on the host about one call.

    ``left`` and ``right`` are the visible band: query i sees key j only if ``i' - left <= j <= i' + right``, where
    ``i' = i + offset`` (``None`` is unbounded). ``offsets`` and ``lengths`` hold one integer, or one for each batch
    row, where the host knows them; otherwise they are ``None`` and the array of the same name decides. The flags at
    the end record how the call was written, for paths that do not take every form.
    """

    B: int
    N_q: int
    N_kv: int
    T_q: int
    T_kv: int
    D: int
    D_v: int
    dtype: mx.Dtype
    scale: float
    softcap: float | None = None
    left: int | None = None
    right: int | None = None
    offsets: tuple[int, ...] | None = (0,)
    lengths: tuple[int, ...] | None = None
    causal: bool = False
    windowed: bool = False
    learned_slopes: bool = False
    shared_segments: bool = False
    default_offset: bool = True
    narrow_sinks: bool = True
    return_lse: bool = False

    @property
    def wide(self) -> mx.Dtype:
        """The dtype of scores and sums: float32, or float64 where the inputs are."""
        return mx.float64 if self.dtype == mx.float64 else mx.float32

    @property
    def unusual(self) -> str | None:
        """Why only the composed path takes the call, or ``None``."""
        if self.dtype == mx.float64:
            return "inputs of float64"
        return "a head size of 0" if 0 in (self.D, self.D_v) else None

    @property
    def group(self) -> int:
        """How many query heads share one key/value head."""
        return self.N_q // self.N_kv

    @property
    def score_bytes(self) -> int:
        """Bytes of the scores, were they all stored in float32."""
        return 4 * self.B * self.N_q * self.T_q * self.T_kv


@dataclass(frozen=True)
class AttentionArrays:
    """The arrays of one call; absent ones are ``None``.

    ``mask`` and ``bias`` have four axes that broadcast to ``[B, N_q, T_q, T_kv]``; ``sinks`` and ``slopes`` are
    float32 ``[1 or B, N_q]``; ``kv_lengths`` is ``[B]``, ``q_offset`` ``[1 or B]``, segments ``[B, T]``, all integer.
    """

    q: mx.array
    k: mx.array
    v: mx.array
    mask: mx.array | None = None
    bias: mx.array | None = None
    sinks: mx.array | None = None
    slopes: mx.array | None = None
    kv_lengths: mx.array | None = None
    q_segments: mx.array | None = None
    kv_segments: mx.array | None = None
    q_offset: mx.array | None = None

    def present(self) -> Iterator[tuple[str, mx.array]]:
        """Name and array of every argument that was given."""
        for item in fields(self):
            array = getattr(self, item.name)
            if array is not None:
                yield item.name, array

    @property
    def additive_mask(self) -> mx.array | None:
        """The mask where it is a floating one."""
        return None if self.mask is None or self.mask.dtype == mx.bool_ else self.mask


def normalise(
    q: Any,
    k: Any,
    v: Any,
    *,
    scale: Any,
    mask: Any,
    causal: Any,
    bias: Any,
    sinks: Any,
    window: Any,
    alibi: Any,
    softcap: Any,
    kv_lengths: Any,
    segments: Any,
    q_offset: Any,
    return_lse: Any,
    check: Any,
) -> tuple[AttentionSpec, AttentionArrays]:
    """Checks every argument of the attention function and returns the call in its plain form.

    Raises ``ValueError`` for a bad value or shape, ``TypeError`` for a wrong type, and :class:`ArrayTypeError` for an
    array of a wrong dtype; each message names the argument, what it got and what it takes.
    """
    B, N_q, T_q, D, N_kv, T_kv, D_v = _shapes(q, k, v)
    heads_shape = (B, N_q, T_q, T_kv)
    flag("causal", causal)
    if isinstance(mask, str):
        if mask != "causal":
            raise ValueError(f'{FUNCTION} mask given as a string must be "causal"; got {mask!r}')
        mask, causal = None, True
    left, right = _window(window)
    if causal:
        right = 0  # no side is negative, so causality is the nearer one
    slopes, learned = _slopes(alibi, B, N_q)
    sink_logits = _sinks(sinks, N_q)
    lengths, length_array = _lengths(kv_lengths, B, T_kv, flag("check", check))

    placed = left is not None or right is not None or slopes is not None
    if length_array is not None and placed and q_offset is None:
        raise ValueError(
            f"{FUNCTION} q_offset must be given together with kv_lengths and causal, window or alibi "
            "(kv_lengths - T_q places the last query on the last key); got None"
        )
    offsets, offset_array = _offsets(q_offset, B, T_kv - T_q)
    q_segments, kv_segments = _segments(segments, B, T_q, T_kv)

    spec = AttentionSpec(
        B=B,
        N_q=N_q,
        N_kv=N_kv,
        T_q=T_q,
        T_kv=T_kv,
        D=D,
        D_v=D_v,
        dtype=_result_dtype(q, k, v),
        scale=single("scale", scale, 1.0 / math.sqrt(D) if D else None),
        softcap=_softcap(softcap),
        left=left,
        right=right,
        offsets=offsets,
        lengths=lengths,
        causal=causal,
        windowed=window is not None and (left is not None or right is not None),
        learned_slopes=learned,
        shared_segments=q_segments is not None and q_segments is kv_segments,
        default_offset=q_offset is None,
        narrow_sinks=sinks is None or mx.result_type(sinks, q) == q.dtype,
        return_lse=flag("return_lse", return_lse),
    )
    q, k, v = (x if x.dtype in ANY_FLOATING else x.astype(spec.dtype) for x in (q, k, v))
    return spec, AttentionArrays(
        q=q,
        k=k,
        v=v,
        mask=_scores_like("mask", mask, heads_shape, booleans=True),
        bias=_scores_like("bias", bias, heads_shape, booleans=False),
        sinks=sink_logits,
        slopes=slopes,
        kv_lengths=length_array,
        q_segments=q_segments,
        kv_segments=kv_segments,
        q_offset=offset_array if placed else None,
    )


def _shapes(q: Any, k: Any, v: Any) -> tuple[int, int, int, int, int, int, int]:
    for name, x, axes in (("q", q, "N_q, T_q, D"), ("k", k, "N_kv, T_kv, D"), ("v", v, "N_kv, T_kv, D_v")):
        array(name, x)
        if x.dtype not in (*ANY_FLOATING, *INTEGERS):
            raise ArrayTypeError(f"{FUNCTION} {name} must be float32, float16 or bfloat16; got {dtype_name(x)}")
        if x.ndim != 4:
            raise ValueError(f"{FUNCTION} {name} must have rank 4, [B, {axes}]; got shape {x.shape}")
    B, N_q, T_q, D = q.shape
    N_kv, T_kv = k.shape[1:3]
    D_v = v.shape[3]
    for name, x in (("k", k), ("v", v)):
        if x.shape[0] != B:
            raise ValueError(f"{FUNCTION} {name} must have the batch size of q, {B}; got shape {x.shape}")
    if k.shape[3] != D:
        raise ValueError(f"{FUNCTION} k must have the head size of q, {D}; got shape {k.shape}")
    if v.shape[1:3] != k.shape[1:3]:
        raise ValueError(f"{FUNCTION} v must have the heads and length of k, {k.shape[1:3]}; got shape {v.shape}")
    if N_kv < 1 or N_q < 1 or N_q % N_kv:
        raise ValueError(f"{FUNCTION} the heads of q must be a multiple of those of k; got N_q={N_q}, N_kv={N_kv}")
    return B, N_q, T_q, D, N_kv, T_kv, D_v


def _result_dtype(q: mx.array, k: mx.array, v: mx.array) -> mx.Dtype:
    # Mixed inputs promote as in mx.fast (integers beside floats too); alike ones keep their dtype.
    dtype = mx.result_type(q, k, v)
    if dtype not in ANY_FLOATING:
        names = ", ".join(dtype_name(x) for x in (q, k, v))
        raise ArrayTypeError(f"{FUNCTION} q, k and v must be float32, float16 or bfloat16 together; got {names}")
    return dtype


def _window(window: Any) -> tuple[int | None, int | None]:
    if window is None:
        return None, None
    if isinstance(window, tuple | list):
        if len(window) != 2:
            raise ValueError(f"{FUNCTION} window as a pair must be (left, right); got {window!r}")
        left, right = (None if side is None else integer("window", side, minimum=0) for side in window)
        return _side(left), _side(right)
    # W keys that end with the query itself: i' - j in 0..W-1.
    return _side(integer("window", window, minimum=1) - 1), 0


def _side(side: int | None) -> int | None:
    """A side that no distance reaches is open: people write huge windows for none, and int32 would wrap."""
    return None if side is None or side >= UNBOUNDED else side


def _softcap(softcap: Any) -> float | None:
    if softcap is None:
        return None
    value = single("softcap", softcap, None)
    if value <= 0:
        raise ValueError(f"{FUNCTION} softcap must be > 0; got {softcap!r}")
    return value


def _slopes(alibi: Any, B: int, N_q: int) -> tuple[mx.array | None, bool]:
    if alibi is None or alibi is False:
        return None, False
    if alibi is True:
        return positions.alibi_slopes(N_q)[None], False
    learned = isinstance(alibi, mx.array)
    if isinstance(alibi, list | tuple | np.ndarray):
        values = np.asarray(alibi, dtype=np.float32)
        if not np.isfinite(values).all():
            raise ValueError(f"{FUNCTION} alibi slopes must be finite; got {alibi!r}")
        alibi = mx.array(values)
    array("alibi", alibi)
    if alibi.dtype not in FLOATING:
        raise ArrayTypeError(f"{FUNCTION} alibi slopes must be floating; got {dtype_name(alibi)}")
    if alibi.shape not in ((N_q,), (B, N_q)):
        raise ValueError(f"{FUNCTION} alibi must have shape [N_q]=({N_q},) or [B, N_q]; got {alibi.shape}")
    return alibi.astype(mx.float32).reshape(-1, N_q), learned


def _sinks(sinks: Any, N_q: int) -> mx.array | None:
    if sinks is None:
        return None
    array("sinks", sinks)
    if sinks.dtype not in (*ANY_FLOATING, *INTEGERS):
        raise ArrayTypeError(f"{FUNCTION} sinks must be numbers of at most 32 bits; got {dtype_name(sinks)}")
    if sinks.shape != (N_q,):
        raise ValueError(f"{FUNCTION} sinks must have shape [N_q]=({N_q},); got {sinks.shape}")
    return (sinks if sinks.dtype == mx.float64 else sinks.astype(mx.float32))[None]


def _scores_like(name: str, x: Any, shape: tuple[int, ...], *, booleans: bool) -> mx.array | None:
    if x is None:
        return None
    array(name, x)
    if x.dtype not in ANY_FLOATING and not (booleans and x.dtype == mx.bool_):
        kinds = "boolean (True = may see) or floating (added)" if booleans else "floating"
        raise ArrayTypeError(f"{FUNCTION} {name} must be {kinds}; got {dtype_name(x)}")
    if x.ndim > 4:
        raise ValueError(f"{FUNCTION} {name} must have at most 4 axes; got shape {x.shape}")
    full = (1,) * (4 - x.ndim) + tuple(x.shape)
    if any(have not in (1, want) for have, want in zip(full, shape, strict=True)):
        raise ValueError(f"{FUNCTION} {name} must broadcast to [B, N_q, T_q, T_kv]={shape}; got shape {x.shape}")
    return x.reshape(full)


def _lengths(lengths: Any, B: int, T_kv: int, check: bool) -> tuple[tuple[int, ...] | None, mx.array | None]:
    if lengths is None:
        return None, None
    if isinstance(lengths, mx.array):
        integer_array("kv_lengths", lengths, ((B,),))
        if not check:
            return None, as_int32(lengths, 0, T_kv)
        lengths = read("kv_lengths", lengths)
    known = integers("kv_lengths", lengths, B)
    for length in known:
        if not 0 <= length <= T_kv:
            raise ValueError(f"{FUNCTION} kv_lengths must be in 0..T_kv={T_kv}; got {length}")
    return known, mx.array(known, dtype=mx.int32)


def _offsets(offset: Any, B: int, default: int) -> tuple[tuple[int, ...] | None, mx.array]:
    if isinstance(offset, mx.array):
        integer_array("q_offset", offset, ((), (1,), (B,)))
        return None, as_int32(offset, -FARTHEST_OFFSET, FARTHEST_OFFSET).reshape(-1)
    if offset is None:
        known: tuple[int, ...] = (default,)
    elif isinstance(offset, Sequence | np.ndarray) and not isinstance(offset, str):
        known = integers("q_offset", offset, B)
    else:
        known = (integer("q_offset", offset),)
    for value in known:
        if abs(value) > FARTHEST_OFFSET:
            raise ValueError(f"{FUNCTION} q_offset must be within 2**29 of zero; got {value}")
    if len(set(known)) == 1:
        known = known[:1]
    return known, mx.array(known, dtype=mx.int32)


def _segments(segments: Any, B: int, T_q: int, T_kv: int) -> tuple[mx.array | None, mx.array | None]:
    if segments is None:
        return None, None
    if isinstance(segments, tuple | list):
        if len(segments) != 2:
            raise ValueError(f"{FUNCTION} segments as a pair must be (q_segments, kv_segments); got {len(segments)}")
        pair = [mx.array(x) if isinstance(x, np.ndarray) else x for x in segments]
    else:
        if T_q != T_kv:
            raise ValueError(
                f"{FUNCTION} segments must be a pair where T_q and T_kv differ; got one array with T_q={T_q}, "
                f"T_kv={T_kv}"
            )
        pair = [mx.array(segments) if isinstance(segments, np.ndarray) else segments] * 2
    for x, T in zip(pair, (T_q, T_kv), strict=True):
        integer_array("segments", x, ((B, T),))
    if mx.result_type(*pair) not in INTEGERS:
        # No integer type holds both, and compared as floats different ids would be equal.
        names = " and ".join(dtype_name(x) for x in pair)
        raise ArrayTypeError(f"{FUNCTION} segments must be of dtypes that one integer type holds; got {names}")
    return pair[0], pair[1]
