"""Arguments of an attention, checked and in one form: float64 arrays, the allowed set, the additive terms.

Bad arguments are refused before any work, with the name of the argument, its value and what is allowed (SEM-12).
"""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from . import masks, positions

Bool = NDArray[np.bool_]
Float64 = NDArray[np.float64]
Int = NDArray[np.int64]


@dataclass(frozen=True)
class Problem:
    """One attention, ready to compute.

    ``q`` [B, N_q, T_q, D], ``k`` [B, N_kv, T_kv, D], ``v`` [B, N_kv, T_kv, D_v]; ``scale`` and ``softcap`` as the
    float32 numbers that an implementation receives; ``allowed`` bool [B, N_q, T_q, T_kv]; ``terms`` the additive
    terms of the score in order (ALiBi, bias, mask), each broadcasting to [B, N_q, T_q, T_kv]; ``sinks`` [N_q].
    ``shapes`` keeps the shapes of ``bias`` and of an additive ``mask`` as given, for their gradients.
    """

    q: Float64
    k: Float64
    v: Float64
    scale: float
    softcap: float | None
    allowed: Bool
    terms: tuple[Float64, ...]
    sinks: Float64 | None
    shapes: dict[str, tuple[int, ...]]

    @property
    def group(self) -> int:
        """How many query heads share one key/value head: head h reads K and V of head h // group (GQA-1)."""
        return self.q.shape[1] // self.k.shape[1]


def problem(
    q: ArrayLike,
    k: ArrayLike,
    v: ArrayLike,
    *,
    scale: float | None = None,
    mask: ArrayLike | str | None = None,
    causal: bool = False,
    bias: ArrayLike | None = None,
    sinks: ArrayLike | None = None,
    window: Any = None,
    alibi: Any = None,
    softcap: float | None = None,
    kv_lengths: ArrayLike | None = None,
    segments: Any = None,
    q_offset: Any = None,
) -> Problem:
    """Check the arguments of :func:`~.attention.attention` and bring them into one form."""
    q64, k64, v64 = (_tensor(name, x) for name, x in (("q", q), ("k", k), ("v", v)))
    _agree(q64, k64, v64)
    (B, N_q, T_q, D), T_kv = q64.shape, k64.shape[2]
    full = (B, N_q, T_q, T_kv)
    if isinstance(mask, str):
        if mask != "causal":
            raise _bad("mask", repr(mask), 'must be an array or "causal"')
        mask, causal = None, True

    slopes = _slopes(alibi, B, N_q)
    sides = _window(window)
    if kv_lengths is not None and q_offset is None and (causal or sides is not None or slopes is not None):
        raise _bad("q_offset", None, "must be given with kv_lengths and causal, window or alibi")
    offset = None if q_offset is None else _integers("q_offset", q_offset, ((), (B,)))
    at = masks.query_positions(T_q, T_kv, offset)

    rules: list[Bool] = []
    terms: list[Float64] = []
    shapes: dict[str, tuple[int, ...]] = {}
    if causal:
        rules.append(masks.causal_rule(at, T_kv))
    if sides is not None:
        rules.append(masks.window_rule(at, T_kv, *sides))
    if kv_lengths is not None:
        lengths = _integers("kv_lengths", kv_lengths, ((B,),))
        if ((lengths < 0) | (lengths > T_kv)).any():
            raise _bad("kv_lengths", lengths.tolist(), f"must lie in 0..T_kv = {T_kv}")
        rules.append(masks.length_rule(lengths, T_kv))
    if segments is not None:
        rules.append(masks.segment_rule(*_segments(segments, B, T_q, T_kv)))
    if slopes is not None:
        terms.append(positions.alibi_bias(slopes, T_q, T_kv, offset))
    for name, array in (("bias", bias), ("mask", mask)):
        if array is None:
            continue
        given = np.asarray(array)
        _broadcasts(name, given, full)
        if given.dtype == np.bool_ and name == "mask":
            rules.append(given)
            continue
        if not is_floating(given.dtype):
            allowed_types = "boolean or floating" if name == "mask" else "floating"
            raise TypeError(f"[attention] {name} must be {allowed_types}; got {given.dtype}")
        rule, finite = masks.split_additive(given.astype(np.float64))
        rules.append(rule)
        terms.append(finite)
        shapes[name] = given.shape

    allowed = np.ones(full, dtype=bool)
    for rule in rules:
        allowed &= rule
    return Problem(
        q=q64,
        k=k64,
        v=v64,
        scale=_float32("scale", 1 / math.sqrt(D) if scale is None else scale),
        softcap=None if softcap is None else _softcap(softcap),
        allowed=allowed,
        terms=tuple(terms),
        sinks=None if sinks is None else _vector("sinks", sinks, ((N_q,),)),
        shapes=shapes,
    )


def is_floating(dtype: np.dtype) -> bool:
    """Whether a dtype is floating, bfloat16 of ml_dtypes included (NumPy files it under void)."""
    return dtype.kind == "f" or dtype.name.startswith(("bfloat", "float"))


def _bad(name: str, value: object, allowed: str) -> ValueError:
    return ValueError(f"[attention] {name} {allowed}; got {value}")


def _tensor(name: str, x: ArrayLike) -> Float64:
    array = np.asarray(x).astype(np.float64)
    if array.ndim != 4:
        raise _bad(name, f"shape {array.shape}", "must have the layout [B, N, T, D]")
    return array


def _agree(q: Float64, k: Float64, v: Float64) -> None:
    if k.shape[0] != q.shape[0] or k.shape[3] != q.shape[3]:
        raise _bad("k", f"k {k.shape} with q {q.shape}", "must have the batch and head size of q")
    if v.shape[:3] != k.shape[:3]:
        raise _bad("v", f"v {v.shape} with k {k.shape}", "must have the batch, heads and length of k")
    if q.shape[3] < 1:
        raise _bad("q", f"shape {q.shape}", "must have a head size of at least 1")
    if q.shape[1] < 1 or k.shape[1] < 1 or q.shape[1] % k.shape[1]:
        raise _bad("N_q", f"N_q = {q.shape[1]}, N_kv = {k.shape[1]}", "must be a multiple of N_kv")


def _float32(name: str, value: float) -> float:
    """The number that crosses into an implementation: the float32 nearest to ``value``."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        raise TypeError(f"[attention] {name} must be a number; got {value!r}")
    with np.errstate(over="ignore"):
        number = float(np.float32(float(value)))
    if not math.isfinite(number):
        raise _bad(name, value, "must be finite in float32")
    return number


def _softcap(value: float) -> float:
    number = _float32("softcap", value)
    if number <= 0:
        raise _bad("softcap", value, "must be > 0")
    return number


def _vector(name: str, x: ArrayLike, shapes: tuple[tuple[int, ...], ...]) -> Float64:
    array = np.asarray(x).astype(np.float64)
    if array.shape not in shapes:
        raise _bad(name, f"shape {array.shape}", f"must have shape {' or '.join(map(str, shapes))}")
    return array


def _integers(name: str, x: ArrayLike, shapes: tuple[tuple[int, ...], ...]) -> Int:
    array = np.asarray(x)
    if array.dtype.kind not in "iu":
        raise TypeError(f"[attention] {name} must hold integers; got {array.dtype}")
    if array.shape not in shapes:
        raise _bad(name, f"shape {array.shape}", f"must have shape {' or '.join(map(str, shapes))}")
    return array.astype(np.int64)


def _broadcasts(name: str, array: NDArray[Any], full: tuple[int, ...]) -> None:
    fits = 2 <= array.ndim <= 4 and all(
        have in (1, want) for have, want in zip(array.shape[::-1], full[::-1], strict=False)
    )
    if not fits:
        raise _bad(name, f"shape {array.shape}", f"must have 2 to 4 axes and broadcast to {full}")


def _slopes(alibi: Any, B: int, N_q: int) -> Float64 | None:
    if alibi is None or alibi is False:
        return None
    if alibi is True:
        # As for the scale, the numbers meant are the float32 ones an implementation holds.
        return positions.alibi_slopes(N_q).astype(np.float32).astype(np.float64)
    return _vector("alibi", alibi, ((N_q,), (B, N_q)))


def _window(window: Any) -> tuple[int | None, int | None] | None:
    if window is None:
        return None
    if isinstance(window, tuple | list):
        if len(window) != 2:
            raise _bad("window", window, "must be an integer or a pair (left, right)")
        left, right = (None if side is None else _count("window", side, 0) for side in window)
        return left, right
    return _count("window", window, 1) - 1, 0


def _count(name: str, value: Any, least: int) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        number = None
    if number is None or isinstance(value, bool | np.bool_):
        raise TypeError(f"[attention] {name} must be an integer or a pair (left, right); got {value!r}")
    if number < least:
        raise _bad(name, value, f"must be >= {least}")
    return number


def _segments(segments: Any, B: int, T_q: int, T_kv: int) -> tuple[Int, Int]:
    if isinstance(segments, tuple):
        if len(segments) != 2:
            raise _bad("segments", f"{len(segments)} arrays", "must be an array [B, T] or a pair of arrays")
        return (
            _integers("segments", segments[0], ((B, T_q),)),
            _integers("segments", segments[1], ((B, T_kv),)),
        )
    if T_q != T_kv:
        raise _bad("segments", f"one array with T_q = {T_q}, T_kv = {T_kv}", "must be a pair where T_q != T_kv")
    own = _integers("segments", segments, ((B, T_q),))
    return own, own
