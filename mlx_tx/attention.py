"""The public attention function: it checks its arguments, chooses a path, runs it and records which it was."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any, Literal, TypedDict, Unpack, overload

import mlx.core as mx

from mlx_tx.arguments import AttentionArrays, AttentionSpec, normalise
from mlx_tx.paths import PATHS, Path
from mlx_tx.record import PathRecord, note
from mlx_tx.values import FARTHEST_OFFSET, FUNCTION, flag

# Up to this many bytes of float32 scores a call on path "auto" stores them.
COMPOSED_SCORE_BYTES = 16 * 2**20

# path="auto" takes the first line that holds:
#
#   on Metal, and mx.fast has a fused kernel for exactly this call (plain or causal)        mlx
#   on Metal, or an executor of kernels is in force, and our kernels take and pass it       fused
#   float64 inputs (CPU), or a head size of 0                                 composed
#   the scores, in float32, fit in COMPOSED_SCORE_BYTES                                     composed
#   otherwise                                                                               blockwise


class AttentionOptions(TypedDict, total=False):
    """The keyword arguments of :func:`scaled_dot_product_attention` besides ``return_lse``, for type checkers."""

    scale: float | None
    mask: mx.array | str | None
    causal: bool
    bias: mx.array | None
    sinks: mx.array | None
    window: int | tuple[int | None, int | None] | None
    alibi: bool | Sequence[float] | mx.array | None
    softcap: float | None
    kv_lengths: Sequence[int] | mx.array | None
    segments: mx.array | tuple[mx.array, mx.array] | None
    q_offset: int | Sequence[int] | mx.array | None
    force_fused: bool
    path: str
    check: bool
    stream: mx.Stream | mx.Device | None


@overload
def scaled_dot_product_attention(
    q: mx.array, k: mx.array, v: mx.array, *, return_lse: Literal[False] = False, **options: Unpack[AttentionOptions]
) -> mx.array: ...


@overload
def scaled_dot_product_attention(
    q: mx.array, k: mx.array, v: mx.array, *, return_lse: Literal[True], **options: Unpack[AttentionOptions]
) -> tuple[mx.array, mx.array]: ...


def scaled_dot_product_attention(
    q: Any,
    k: Any,
    v: Any,
    *,
    scale: float | None = None,
    mask: mx.array | str | None = None,
    causal: bool = False,
    bias: mx.array | None = None,
    sinks: mx.array | None = None,
    window: Any = None,
    alibi: Any = None,
    softcap: float | None = None,
    kv_lengths: Any = None,
    segments: Any = None,
    q_offset: Any = None,
    return_lse: bool = False,
    force_fused: bool = False,
    path: str = "auto",
    check: bool = False,
    stream: Any = None,
) -> mx.array | tuple[mx.array, mx.array]:
    """Attention with every feature combined: ``O = softmax(s) V`` over the visible keys.

    .. code-block:: text

        s = softcap(scale * Q K^T) + ALiBi + bias + additive mask,   -inf where a key is hidden

    A superset of ``mx.fast.scaled_dot_product_attention``: code written for that one runs unchanged, except that
    integer masks are refused. Query i stands at position ``i' = i + q_offset``. Query head h reads key/value head
    ``h // (N_q // N_kv)`` (GQA-1). Scores, softmax and sums are float32 whatever the input dtype (PRC-1).

    Args:
        q (array): Queries ``[B, N_q, T_q, D]``, float32, float16 or bfloat16.
        k (array): Keys ``[B, N_kv, T_kv, D]``; N_q is a multiple of N_kv.
        v (array): Values ``[B, N_kv, T_kv, D_v]``.
        scale (float, optional): Factor of the scores, meant in float32. Default: ``1 / sqrt(D)``.
        mask (array or str, optional): Boolean (``True`` = may see) or floating (added; -inf hides), of any floating
          dtype, broadcastable to ``[B, N_q, T_q, T_kv]``; or ``"causal"``, the same as ``causal=True``.
        causal (bool): Query i sees keys ``j <= i'``; rows before the first key see nothing (MSK-1).
        bias (array, optional): Floating, added to the scores, broadcastable like ``mask``.
        sinks (array, optional): ``[N_q]``; one logit per head that joins the softmax and has no value.
        window (int or pair, optional): ``W``: ``0 <= i' - j < W``, the query itself included (SWA-1);
          ``(left, right)``: ``i' - left <= j <= i' + right``, ``None`` is unbounded.
        alibi (bool or array, optional): Adds ``-slope * abs(i' - j)``; ``True`` takes the slopes of the paper
          (POS-4), otherwise slopes ``[N_q]`` or ``[B, N_q]``.
        softcap (float, optional): ``c * tanh(score / c)`` with c > 0, before every bias and mask.
        kv_lengths (list or array, optional): ``[B]``; keys ``j >= kv_lengths[b]`` do not exist.
        segments (array or pair, optional): Integers ``[B, T]``, or ``([B, T_q], [B, T_kv])``: a query sees the keys
          of its own segment.
        q_offset (int, list or array, optional): One integer or ``[B]``. Default: ``T_kv - T_q`` (lower right); it
          must be given where ``kv_lengths`` meets ``causal``, ``window`` or ``alibi``.
        return_lse (bool): Also return the natural logarithm of the softmax sum, sinks included, float32
          ``[B, N_q, T_q]``.
        force_fused (bool): Only a fused kernel will do; raises with the reason where there is none.
        path (str): ``"auto"``, ``"composed"``, ``"blockwise"``, ``"mlx"`` or ``"fused"``; see ``attention.py`` for
          the rule of ``"auto"``. Only ``"composed"`` has ``jvp`` and second derivatives.
        check (bool): Also check the values inside ``kv_lengths`` given as an array, which reads it. Unchecked, a
          length outside ``0..T_kv`` makes its batch row NaN.
        stream (Stream or Device, optional): Where to run.

    Returns:
        array or (array, array): Output ``[B, N_q, T_q, D_v]`` in the dtype of q (of q, k and v promoted, where they
        differ), and the log-sum-exp when asked for. A row that sees no key gives 0, log-sum-exp -inf (the sink's
        own logit where there is one), and gradient 0 (SEM-1). What lies at keys that no query sees never leaks.

    Raises:
        ValueError: A bad value or shape, or a path that does not take the call.
        TypeError: An argument of a wrong type.

    Example:

    .. code-block:: python

        q = mx.random.normal((1, 8, 128, 64))
        k = v = mx.random.normal((1, 2, 128, 64))
        out = mlx_tx.scaled_dot_product_attention(q, k, v, causal=True, window=32)
    """
    spec, arrays = normalise(
        q,
        k,
        v,
        scale=scale,
        mask=mask,
        causal=causal,
        bias=bias,
        sinks=sinks,
        window=window,
        alibi=alibi,
        softcap=softcap,
        kv_lengths=kv_lengths,
        segments=segments,
        q_offset=q_offset,
        return_lse=return_lse,
        check=check,
    )
    chosen, reason = choose(spec, arrays, path=path, force_fused=flag("force_fused", force_fused), stream=stream)
    note(
        PathRecord(
            path=chosen.name,
            reason=reason,
            requested=path,
            q_shape=tuple(q.shape),
            k_shape=tuple(k.shape),
            v_shape=tuple(v.shape),
            dtype=str(spec.dtype).removeprefix("mlx.core."),
        )
    )
    run = _no_keys if 0 in (spec.B, spec.T_q, spec.T_kv) else chosen.run
    out, lse = _poisoned(spec, arrays, *run(spec, arrays, stream), stream)
    out = out.astype(spec.dtype, stream=stream)
    if not return_lse:
        return out
    assert lse is not None
    return out, lse


def choose(
    spec: AttentionSpec, arrays: AttentionArrays, *, path: str = "auto", force_fused: bool = False, stream: Any = None
) -> tuple[Path, str]:
    """The path that runs a call, and why. ``ValueError`` where the one that was asked for refuses it."""
    if path not in ("auto", *PATHS):
        names = ", ".join(f'"{name}"' for name in ("auto", *PATHS))
        raise ValueError(f"{FUNCTION} path must be one of {names}; got {path!r}")
    if path != "auto":
        chosen = PATHS[path]
        refusal = chosen.refuses(spec, arrays, stream)
        if refusal is None and force_fused and not chosen.is_fused:
            refusal = "force_fused=True, and it is not a fused path"
        if refusal is not None:
            raise ValueError(f'{FUNCTION} path="{path}" cannot take this call: {refusal}')
        return chosen, "asked for"
    refusals = []
    for chosen in PATHS.values():
        if chosen.is_fused:
            refusal = chosen.refuses(spec, arrays, stream)
            if refusal is None:
                return chosen, "it has a fused kernel for this call"
            refusals.append(f"{chosen.name}: {refusal}")
    if force_fused:
        raise ValueError(f"{FUNCTION} force_fused=True but no fused kernel is available: {'; '.join(refusals)}")
    if spec.unusual:
        return PATHS["composed"], f"it alone takes {spec.unusual}"
    if spec.score_bytes <= COMPOSED_SCORE_BYTES:
        return PATHS["composed"], f"the scores take {spec.score_bytes} bytes, at most {COMPOSED_SCORE_BYTES}"
    return PATHS["blockwise"], f"the scores would take {spec.score_bytes} bytes, more than {COMPOSED_SCORE_BYTES}"


def _no_keys(spec: AttentionSpec, arrays: AttentionArrays, _stream: Any) -> tuple[mx.array, mx.array | None]:
    """The result where an axis is empty: every row that exists sees no key."""
    rows = (spec.B, spec.N_q, spec.T_q)
    sinks = mx.full((1, spec.N_q), float("-inf"), dtype=mx.float32) if arrays.sinks is None else arrays.sinks
    return mx.zeros((*rows, spec.D_v), dtype=mx.float32), mx.broadcast_to(sinks[:, :, None], rows).astype(mx.float32)


def _poisoned(
    spec: AttentionSpec, arrays: AttentionArrays, out: mx.array, lse: mx.array | None, stream: Any
) -> tuple[mx.array, mx.array | None]:
    """NaN in the batch rows whose length or offset, unknown to the host, is out of range (SEM-13)."""
    with mx.stream(stream if stream is not None else mx.default_device()):
        rules = []
        if arrays.kv_lengths is not None and spec.lengths is None:
            rules.append(mx.logical_or(arrays.kv_lengths < 0, arrays.kv_lengths > spec.T_kv))
        if arrays.q_offset is not None and spec.offsets is None:
            rules.append(mx.abs(arrays.q_offset) > FARTHEST_OFFSET)
        if not rules:
            return out, lse
        bad = reduce(mx.logical_or, rules)
        factor = mx.where(bad, mx.array(float("nan"), dtype=mx.float32), mx.ones((), dtype=mx.float32))
        out = out * factor[:, None, None, None]
        return out, None if lse is None else lse * factor[:, None, None]
