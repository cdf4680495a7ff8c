"""Rotary embedding with frequencies stretched to longer texts (POS-3).

With d the rotated channels, w_i = base^(-2 i / d) the frequency of pair i, s the factor, M the length that the model
was first trained on, and L the length of the text at hand:

| kind | frequency of pair i | attention factor |
|---|---|---|
| linear | w_i / s | 1 |
| ntk | w_i of base * s^(d / (d - 2)) | 1 |
| dynamic | w_i of base * (s L' / M - (s - 1))^(d / (d - 2)), L' = max(L, M) | 1 |
| yarn | a blend, over a ramp of pairs, of w_i (fast pairs) and w_i / s (slow ones) | 0.1 ln(s) + 1 |
| llama3 | w_i for short waves, w_i / s for long ones, a blend between | 1 |
| longrope | w_i / short_factor[i] for L <= M, w_i / long_factor[i] beyond | sqrt(1 + ln(s) / ln(M)) |

Queries and keys are both multiplied by the attention factor. ``dynamic`` and ``longrope`` depend on L, so that a text
read in steps is the text read at once only where L is fixed: the models take ``rope_length`` for that.

Sources: Chen et al. 2023, "Extending Context Window via Positional Interpolation", section 3.2 (linear); Peng et al.
2023, "YaRN", section 3 and appendix (ntk, dynamic, yarn; ``truncate`` is the rounding of the ramp's ends in the
released code); Llama Team 2024, released code (llama3); Ding et al. 2024, "LongRoPE", section 3, with the attention
factor of Phi-3 (longrope).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import mlx.core as mx

from mlx_tx.angles import angles, host_offsets, token_positions
from mlx_tx.config import RopeScaling

LENGTH_DEPENDENT = ("dynamic", "longrope")


class Turns(NamedTuple):
    """Cosines and sines ``[1 or B, T, R]`` of every position and pair, times the attention factor, in float32."""

    cos: mx.array
    sin: mx.array


def scaled_rope(
    x: mx.array,
    *,
    offset: int | Sequence[int] | mx.array = 0,
    base: float = 10000.0,
    dims: int | None = None,
    traditional: bool = False,
    scaling: RopeScaling | None = None,
    length: int | Sequence[int] | mx.array | None = None,
) -> mx.array:
    """:func:`mlx_tx.rope` with a scaling of the table above.

    Args:
        x (array): ``[B, ..., T, D]`` or ``[T, D]``, floating. It is not changed.
        offset (int, list or array): Position of the first token: one integer, or one for each row of the first axis.
        base (float): Base of the frequencies, > 0.
        dims (int, optional): How many leading channels turn; the others stay as they are. Default: ``D``.
        traditional (bool): Pairs are neighbours (2i, 2i + 1); otherwise (i, i + dims / 2).
        scaling (RopeScaling, optional): Default: ``None``, no scaling.
        length (int, list or array, optional): L, one integer or one for each row. Default: one more than the last
          position of each row.
    """
    if not isinstance(x, mx.array):
        raise TypeError(f"[scaled_rope] x must be an mlx array; got {type(x).__name__}")
    if not mx.issubdtype(x.dtype, mx.floating) or x.ndim < 2:
        raise ValueError(f"[scaled_rope] x must be floating with axes [..., T, D]; got {x.dtype} of shape {x.shape}")
    B, T, D = (x.shape[0] if x.ndim > 2 else 1), x.shape[-2], x.shape[-1]
    dims = D if dims is None else dims
    if not 2 <= dims <= D or dims % 2:
        raise ValueError(f"[scaled_rope] dims must be even and in 2..D={D}; got {dims}")
    if not math.isfinite(base) or base <= 0:
        raise ValueError(f"[scaled_rope] base must be finite and > 0; got {base!r}")
    if length is None:
        if isinstance(offset, mx.array):
            length = offset.reshape(-1) + T
        else:
            length = [start + T for start in host_offsets("scaled_rope", offset, B)]
    at = token_positions("scaled_rope", offset, B, T)
    return rotate(x, turns(at, dims, base, scaling, length), traditional=traditional)


def turns(positions: mx.array, dims: int, base: float, scaling: RopeScaling | None = None, length: Any = None) -> Turns:
    """The rotation of every position of ``positions`` ``[1 or B, T]``, for the whole batch or for each row."""
    if scaling is None or scaling.kind not in LENGTH_DEPENDENT:
        return _turns(positions, *rope_parameters(dims, base, scaling))
    if isinstance(length, mx.array) and scaling.kind == "longrope":
        # Both recipes, and a choice on the device: no length has to be read.
        M = scaling.original_max_positions
        assert M is not None
        short, long = (_turns(positions, *rope_parameters(dims, base, scaling, length=L)) for L in (M, M + 1))
        beyond = (length.reshape(-1) > M)[:, None, None]
        return Turns(mx.where(beyond, long.cos, short.cos), mx.where(beyond, long.sin, short.sin))
    if isinstance(length, mx.array):
        # The base of ``dynamic`` is a real number of each length; float32 on the device would not do.
        length = length.reshape(-1).tolist()
    lengths = list(length) if isinstance(length, Sequence) else [length]
    if len(set(lengths)) == 1:
        return _turns(positions, *rope_parameters(dims, base, scaling, length=lengths[0]))
    each = [rope_parameters(dims, base, scaling, length=L) for L in lengths]
    return _turns(positions, [frequencies for frequencies, _ in each], each[0][1])


def rotate(x: mx.array, by: Turns, *, traditional: bool = False) -> mx.array:
    """Turns the pairs of the first 2 R channels of ``x`` ``[B, ..., T, D]``; internals are float32."""
    dims = 2 * by.cos.shape[-1]
    shape = (by.cos.shape[0], *(1,) * (x.ndim - 3), *by.cos.shape[1:]) if x.ndim > 2 else by.cos.shape[1:]
    cos, sin = by.cos.reshape(shape), by.sin.reshape(shape)
    turned = x[..., :dims].astype(mx.float32)
    if traditional:
        first, second = turned[..., 0::2], turned[..., 1::2]
    else:
        first, second = turned[..., : dims // 2], turned[..., dims // 2 :]
    pair = [first * cos - second * sin, first * sin + second * cos]
    out = mx.stack(pair, axis=-1).reshape(turned.shape) if traditional else mx.concatenate(pair, axis=-1)
    out = out.astype(x.dtype)
    return mx.concatenate([out, x[..., dims:]], axis=-1) if dims < x.shape[-1] else out


def rope_parameters(
    dims: int, base: float = 10000.0, scaling: RopeScaling | None = None, *, length: int | None = None
) -> tuple[list[float], float]:
    """Radians per position of each of the ``dims / 2`` pairs, and the attention factor.

    ``length`` is L (default: M); only ``dynamic`` and ``longrope`` use it.
    """
    plain = _frequencies(dims, base)
    if scaling is None:
        return plain, 1.0
    s, M = scaling.factor or 1.0, scaling.original_max_positions or 1
    match scaling.kind:
        case "linear":
            return [w / s for w in plain], 1.0
        case "ntk":
            return _frequencies(dims, base * _stretch(s, dims)), 1.0
        case "dynamic":
            L = max(M if length is None else length, M)
            return _frequencies(dims, base * _stretch(s * L / M - (s - 1), dims)), 1.0
        case "yarn":
            return _yarn(plain, dims, base, scaling), _yarn_attention_factor(scaling)
        case "llama3":
            return _llama3(plain, scaling), 1.0
    factors = scaling.long_factor if length is not None and length > M else scaling.short_factor
    assert factors is not None
    attention = scaling.attention_factor
    if attention is None:
        attention = math.sqrt(1 + math.log(s) / math.log(M)) if s > 1 else 1.0
    return [w / factor for w, factor in zip(plain, factors, strict=True)], attention


def _turns(positions: mx.array, frequencies: Any, factor: float) -> Turns:
    turned = angles(positions, frequencies)
    cos, sin = mx.cos(turned), mx.sin(turned)
    return Turns(cos, sin) if factor == 1.0 else Turns(cos * factor, sin * factor)


def _frequencies(dims: int, base: float) -> list[float]:
    return [base ** (-2.0 * i / dims) for i in range(dims // 2)]


def _stretch(factor: float, dims: int) -> float:
    """What the base is multiplied by, so that the slowest pair slows by ``factor`` and the fastest does not."""
    # A single pair is the fastest; its frequency is 1 with any base.
    return factor ** (dims / (dims - 2)) if dims > 2 else 1.0


def _yarn(plain: list[float], dims: int, base: float, scaling: RopeScaling) -> list[float]:
    s, M = scaling.factor, scaling.original_max_positions
    assert s is not None
    assert M is not None

    def pair_of(rotations: float) -> float:
        """The pair, as a real number, that makes so many turns over M positions."""
        return dims * math.log(M / (2 * math.pi * rotations)) / (2 * math.log(base))

    first = pair_of(32.0 if scaling.beta_fast is None else scaling.beta_fast)
    last = pair_of(1.0 if scaling.beta_slow is None else scaling.beta_slow)
    if scaling.truncate:
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, dims - 1)
    if first == last:
        last += 0.001  # a step, not a division by zero
    ramp = [min(max((i - first) / (last - first), 0.0), 1.0) for i in range(dims // 2)]
    return [r * w / s + (1 - r) * w for r, w in zip(ramp, plain, strict=True)]


def _yarn_attention_factor(scaling: RopeScaling) -> float:
    if scaling.attention_factor is not None:
        return scaling.attention_factor
    s = scaling.factor
    assert s is not None

    def of(mscale: float) -> float:
        return 0.1 * mscale * math.log(s) + 1.0 if s > 1 else 1.0

    if scaling.mscale and scaling.mscale_all_dim:
        return of(scaling.mscale) / of(scaling.mscale_all_dim)
    return of(1.0)


def _llama3(plain: list[float], scaling: RopeScaling) -> list[float]:
    s, M = scaling.factor, scaling.original_max_positions
    low, high = scaling.low_freq_factor, scaling.high_freq_factor
    assert s is not None
    assert M is not None
    assert low is not None
    assert high is not None
    # How much of its own speed a pair keeps, by how many turns it makes over M positions.
    kept = [min(max((M * w / (2 * math.pi) - low) / (high - low), 0.0), 1.0) for w in plain]
    return [k * w + (1 - k) * w / s for k, w in zip(kept, plain, strict=True)]
