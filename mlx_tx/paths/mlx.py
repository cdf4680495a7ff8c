"""Delegation to ``mx.fast.scaled_dot_product_attention`` where that has a fused kernel for exactly what was asked.

Only calls on which both agree are handed over: an array mask may leave a row without a key, which ``mx.fast`` answers
with mean(V) or NaN and we with 0; it lets the leading rows of a causal T_q > T_kv see everything. Its backward keeps
the scores in the dtype of the inputs, so gradients come from the blockwise path instead (PRC-1).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import mlx.core as mx

from mlx_tx.arguments import AttentionArrays, AttentionSpec
from mlx_tx.paths import blockwise
from mlx_tx.paths.transforms import Arrays, UnsupportedTransformError, fold_axis
from mlx_tx.values import FUNCTION


def refuses(spec: AttentionSpec, arrays: AttentionArrays, stream: Any = None) -> str | None:
    """Why ``mx.fast`` cannot take the call, or ``None``."""
    extra = [
        name
        for name, given in (
            ("mask", arrays.mask is not None),
            ("bias", arrays.bias is not None),
            ("window", spec.windowed),
            ("alibi", arrays.slopes is not None),
            ("softcap", spec.softcap is not None),
            ("kv_lengths", arrays.kv_lengths is not None),
            ("segments", arrays.q_segments is not None),
            ("return_lse", spec.return_lse),
            ("sinks wider than q", not spec.narrow_sinks),
            ("q_offset", spec.causal and not spec.default_offset),
        )
        if given
    ]
    if extra:
        return f"mx.fast does not take {', '.join(extra)} in our meaning"
    if spec.causal and spec.T_q > spec.T_kv:
        return f"mx.fast lets the leading rows of a causal call with T_q={spec.T_q} > T_kv={spec.T_kv} see every key"
    if not on_metal(stream):
        return "mx.fast has no fused kernel on this device; it has them on Metal"
    try:
        fused(spec, arrays, stream)
    except ValueError as error:
        return str(error)
    return None


def fused(spec: AttentionSpec, arrays: AttentionArrays, stream: Any) -> mx.array:
    """The call to ``mx.fast``; ``ValueError`` where it has no fused kernel for it (asked without evaluating)."""
    return mx.fast.scaled_dot_product_attention(
        arrays.q,
        arrays.k,
        arrays.v,
        scale=spec.scale,
        mask="causal" if spec.causal else None,
        sinks=None if arrays.sinks is None else arrays.sinks[0].astype(arrays.q.dtype),
        force_fused=True,
        stream=stream,
    )


def run(spec: AttentionSpec, arrays: AttentionArrays, stream: Any = None) -> tuple[mx.array, None]:
    """Output ``[B, N_q, T_q, D_v]`` in the dtype of the call; no log-sum-exp."""
    names, values = zip(*arrays.present(), strict=True)
    return _attend(spec, names, stream)(*values), None


def _attend(spec: AttentionSpec, names: tuple[str, ...], stream: Any) -> Callable[..., mx.array]:
    @mx.custom_function
    def attend(*values: mx.array) -> mx.array:
        return fused(spec, AttentionArrays(**dict(zip(names, values, strict=True))), stream)

    @attend.vjp
    def vjp(values: Arrays, cotangent: mx.array, _output: mx.array) -> Arrays:
        def again(*values: mx.array) -> mx.array:
            arrays = AttentionArrays(**dict(zip(names, values, strict=True)))
            return blockwise.run(spec, arrays, stream)[0].astype(spec.dtype)

        return tuple(mx.vjp(again, list(values), [cotangent])[1])

    @attend.jvp
    def jvp(_values: Arrays, _tangents: Arrays) -> Arrays:
        raise UnsupportedTransformError(f'{FUNCTION} path="mlx" has no jvp; use path="composed"')

    @attend.vmap
    def vmap(values: Arrays, axes: tuple[int | None, ...]) -> tuple[Arrays, tuple[int, ...]]:
        return fold_axis(lambda wide: lambda *x: (_attend(wide, names, stream)(*x),), spec, values, axes, (None,))

    return cast(Callable[..., mx.array], attend)


def on_metal(stream: Any) -> bool:
    """Whether a call on ``stream`` runs on an Apple GPU."""
    if stream is None:
        device = mx.default_device()
    else:
        device = stream if isinstance(stream, mx.Device) else getattr(stream, "device", mx.Device(mx.cpu))
        device = mx.Device(stream) if isinstance(stream, mx.DeviceType) else device
    return device.type == mx.gpu and mx.metal.is_available()
