"""Attention block by block: online softmax forward, recomputing backward, no stored scores, any device.

The forward and the backward are plain MLX graphs inside ``mx.custom_function``. Gradients exist for q, k, v, an
additive mask, the bias, the sinks and learned ALiBi slopes, and take the cotangents of both output and log-sum-exp.
What does not exist is refused: a second derivative or ``jvp`` raises :class:`UnsupportedTransformError`, which names
the path that has them. ``vmap`` folds its axis into B.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, cast

import mlx.core as mx

from mlx_tx.arguments import AttentionArrays, AttentionSpec
from mlx_tx.paths import blocks, recompute
from mlx_tx.paths.transforms import Arrays, UnsupportedTransformError, fold_axis
from mlx_tx.values import FUNCTION


def run(spec: AttentionSpec, arrays: AttentionArrays, stream: Any = None) -> tuple[mx.array, mx.array]:
    """Output float32 ``[B, N_q, T_q, D_v]`` and log-sum-exp float32 ``[B, N_q, T_q]``; empty rows as SEM-1."""
    names, values = zip(*arrays.present(), strict=True)
    out, lse = _attend(spec, names, stream)(*values)
    return out, lse


def on(stream: Any) -> AbstractContextManager:
    """The context in which operations run on ``stream``; without effect for ``None``."""
    return nullcontext() if stream is None else mx.stream(stream)


def _attend(spec: AttentionSpec, names: Sequence[str], stream: Any) -> Callable[..., Arrays]:
    """The forward as a function of the present arrays, with its derivative and its vmap rule."""

    @mx.custom_function
    def attend(*values: mx.array) -> Arrays:
        with on(stream):
            return blocks.forward(spec, AttentionArrays(**dict(zip(names, values, strict=True))))

    @attend.vjp
    def vjp(values: Arrays, cotangents: Arrays, outputs: Arrays) -> Arrays:
        return gradients(spec, names, stream, values, (*outputs, *cotangents))

    @attend.jvp
    def jvp(_values: Arrays, _tangents: Arrays) -> Arrays:
        raise UnsupportedTransformError(f'{FUNCTION} path="blockwise" has no jvp; use path="composed"')

    @attend.vmap
    def vmap(values: Arrays, axes: tuple[int | None, ...]) -> tuple[Arrays, tuple[int, ...]]:
        return fold_axis(lambda wide: _attend(wide, names, stream), spec, values, axes, outputs=(None, None))

    return cast(Callable[..., Arrays], attend)


def gradients(spec: AttentionSpec, names: Sequence[str], stream: Any, values: Arrays, saved: Arrays) -> Arrays:
    """One gradient for each of ``values``; zeros for integers, booleans and constants.

    Each family is a graph node of its own, so that the gradient of a mask that nobody asked for is never computed.
    """
    d_q, d_k, d_v = _final(recompute.inputs, spec, names, ("q", "k", "v"), stream)(*values, *saved)
    found = {"q": d_q, "k": d_k, "v": d_v}
    for name, value in zip(names, values, strict=True):
        if name in ("mask", "bias") and value.dtype != mx.bool_:

            def of_term(spec: AttentionSpec, arrays: AttentionArrays, saved: Any, name: str = name) -> Arrays:
                return (recompute.added(spec, arrays, saved, name),)

            found[name] = _final(of_term, spec, names, (name,), stream)(*values, *saved)[0]
        elif name == "sinks":
            found[name] = _final(_of_sinks, spec, names, (name,), stream)(*values, *saved)[0]
        elif name == "slopes" and spec.learned_slopes:
            found[name] = _final(_of_slopes, spec, names, (name,), stream)(*values, *saved)[0]
    pairs = zip(names, values, strict=True)
    return tuple(found[name] if name in found else mx.zeros_like(value) for name, value in pairs)


def _of_sinks(_spec: AttentionSpec, arrays: AttentionArrays, saved: recompute.Saved) -> Arrays:
    return (recompute.sinks(arrays, saved),)


def _of_slopes(spec: AttentionSpec, arrays: AttentionArrays, saved: recompute.Saved) -> Arrays:
    return (recompute.slopes(spec, arrays, saved),)


def _final(
    compute: Callable[[AttentionSpec, AttentionArrays, recompute.Saved], Arrays],
    spec: AttentionSpec,
    names: Sequence[str],
    outputs: tuple[str, ...],
    stream: Any,
) -> Callable[..., Arrays]:
    """A gradient as a function that refuses to be differentiated again."""

    @mx.custom_function
    def gradient(*values: mx.array) -> Arrays:
        arrays = AttentionArrays(**dict(zip(names, values, strict=False)))
        with on(stream):
            return compute(spec, arrays, recompute.Saved(*values[len(names) :]))

    @gradient.vjp
    def vjp(_values: Arrays, _cotangents: Arrays, _outputs: Arrays) -> Arrays:
        raise UnsupportedTransformError(f'{FUNCTION} path="blockwise" has no second derivative; use path="composed"')

    @gradient.jvp
    def jvp(_values: Arrays, _tangents: Arrays) -> Arrays:
        raise UnsupportedTransformError(f'{FUNCTION} path="blockwise" has no jvp of its gradient; use path="composed"')

    @gradient.vmap
    def vmap(values: Arrays, axes: tuple[int | None, ...]) -> tuple[Arrays, tuple[int, ...]]:
        places = tuple(names.index(name) for name in outputs)
        return fold_axis(lambda wide: _final(compute, wide, names, outputs, stream), spec, values, axes, places)

    return cast(Callable[..., Arrays], gradient)
