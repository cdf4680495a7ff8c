"""Attention by the fused Metal kernels: every feature in any combination, no stored scores.

The kernels run on Metal, or on the executor in force. A call of few queries against a long cache is split over the
keys. Gradients come from the blockwise backward, from the output and the log-sum-exp that the kernels saved; what it
does not have is refused by an error that names the path that has it. ``vmap`` folds its axis into B.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import mlx.core as mx

from mlx_tx.arguments import AttentionArrays, AttentionSpec
from mlx_tx.kernels import limits
from mlx_tx.kernels.decode import decode, is_decode
from mlx_tx.kernels.forward import forward_work
from mlx_tx.kernels.trust import TRUST
from mlx_tx.paths import blockwise, composed
from mlx_tx.paths.transforms import Arrays, UnsupportedTransformError, fold_axis
from mlx_tx.values import FUNCTION


def refuses(spec: AttentionSpec, arrays: AttentionArrays, stream: Any = None) -> str | None:
    """Why the kernels cannot take the call here, or ``None``. On Metal the first call of a kind tries its kernels."""
    reason = limits.refusal(spec, stream)
    if reason is not None or 0 in (spec.B, spec.T_q, spec.T_kv):
        return reason
    with blockwise.on(stream):
        return TRUST.distrust(spec, arrays, composed.run, stream)


def run(spec: AttentionSpec, arrays: AttentionArrays, stream: Any = None) -> tuple[mx.array, mx.array]:
    """Output ``[B, N_q, T_q, D_v]`` in the dtype of the call, log-sum-exp float32 ``[B, N_q, T_q]``; SEM-1."""
    names, values = zip(*arrays.present(), strict=True)
    out, lse = _attend(spec, names, stream)(*values)
    return out, lse


def launch(spec: AttentionSpec, arrays: AttentionArrays, stream: Any = None) -> Arrays:
    """Runs the kernels of a call: output and log-sum-exp, without derivatives."""
    with blockwise.on(stream):
        if is_decode(spec):
            return tuple(decode(spec, arrays, stream))
        return tuple(forward_work(spec, arrays).run(stream))


def _attend(spec: AttentionSpec, names: Sequence[str], stream: Any) -> Callable[..., Arrays]:
    """The kernels as a function of the present arrays, with its derivative and its vmap rule."""

    @mx.custom_function
    def attend(*values: mx.array) -> Arrays:
        return launch(spec, AttentionArrays(**dict(zip(names, values, strict=True))), stream)

    @attend.vjp
    def vjp(values: Arrays, cotangents: Arrays, outputs: Arrays) -> Arrays:
        (out, lse), (d_out, d_lse) = outputs, cotangents
        saved = (out.astype(mx.float32), lse, d_out.astype(mx.float32), d_lse)
        return blockwise.gradients(spec, names, stream, values, saved)

    @attend.jvp
    def jvp(_values: Arrays, _tangents: Arrays) -> Arrays:
        raise UnsupportedTransformError(f'{FUNCTION} path="fused" has no jvp; use path="composed"')

    @attend.vmap
    def vmap(values: Arrays, axes: tuple[int | None, ...]) -> tuple[Arrays, tuple[int, ...]]:
        return fold_axis(lambda wide: _attend(wide, names, stream), spec, values, axes, outputs=(None, None))

    return cast(Callable[..., Arrays], attend)
