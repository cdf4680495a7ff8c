"""Scaled dot-product attention in float64, with every stage kept.

For query head h of batch row b, query i at position i' = i + q_offset, key j, and K/V head g = h // (N_q / N_kv):

    scores  = scale * q[b,h,i] . k[b,g,j]                              scale = 1/sqrt(D) unless given (ATT-2)
    capped  = softcap * tanh(scores / softcap)                         without softcap: scores
    biased  = capped - slope[h] * abs(i' - j) + bias + additive mask   the finite part of the mask
    allowed = boolean mask, -inf of bias and mask, causal, window, lengths, segments together
    weights = exp(biased - lse) where allowed, 0 elsewhere
    lse     = ln( sum over allowed j of exp(biased) + exp(sink[h]) )   the sink only where given
    out     = sum_j weights * v[b,g,j]

That order is SEM-7. Sources: Vaswani et al. 2017, section 3.2; GQA: Ainslie et al. 2023, section 2.2; ALiBi: Press et
al. 2022, section 3; soft-cap: Gemma Team 2024, "Gemma 2", section 2; sinks: Xiao et al. 2023, section 3.2.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from . import masks
from .arguments import Problem, problem
from .softmax import normalise

Bool = NDArray[np.bool_]
Float64 = NDArray[np.float64]


@dataclass(frozen=True)
class AttentionStages:
    """Every stage of one attention, float64 and of shape [B, N_q, T_q, T_kv] unless said otherwise.

    ``scores``, ``capped``, ``biased`` hold the values under a mask too; ``allowed`` (bool) tells which of them count.
    ``sink_weight`` and ``lse`` are [B, N_q, T_q], ``out`` is [B, N_q, T_q, D_v], ``scale`` is the float32 number used.
    A stage that an option leaves unchanged is the same array as the stage before; treat all of them as read-only.
    """

    scores: Float64
    capped: Float64
    biased: Float64
    allowed: Bool
    weights: Float64
    sink_weight: Float64
    lse: Float64
    out: Float64
    scale: float

    def stages(self) -> Iterator[tuple[str, Float64]]:
        """(name, array) in the order of computation, to find the first stage from which another result departs."""
        for name in ("scores", "capped", "biased", "weights", "out"):
            yield name, getattr(self, name)


def attention(
    q: ArrayLike,
    k: ArrayLike,
    v: ArrayLike,
    *,
    scale: float | None = None,
    mask: ArrayLike | str | None = None,
    causal: bool = False,
    bias: ArrayLike | None = None,
    sinks: ArrayLike | None = None,
    window: int | tuple[int | None, int | None] | None = None,
    alibi: ArrayLike | bool | None = None,
    softcap: float | None = None,
    kv_lengths: ArrayLike | None = None,
    segments: ArrayLike | tuple[ArrayLike, ArrayLike] | None = None,
    q_offset: int | ArrayLike | None = None,
) -> AttentionStages:
    """Attention of ``q`` [B, N_q, T_q, D] to ``k`` [B, N_kv, T_kv, D], ``v`` [B, N_kv, T_kv, D_v].

    Options, all ``None`` or ``False`` by default:

    - ``scale``: a number; the float32 nearest to it (or to 1/sqrt(D)) is the number meant. ``softcap``: likewise, > 0.
    - ``mask``: boolean (True = may see) or floating additive (-inf = False), 2 to 4 axes, broadcasts to
      [B, N_q, T_q, T_kv]; ``"causal"`` is ``causal=True``. Integers are refused. ``bias``: floating, likewise.
    - ``causal``: j <= i'. ``window``: W keeps 0 <= i' - j < W, (left, right) keeps i' - left <= j <= i' + right,
      ``None`` in a slot leaves that side open.
    - ``kv_lengths`` [B]: keys j >= kv_lengths[b] do not exist. ``segments``: ids [B, T], or a tuple of ids
      ([B, T_q], [B, T_kv]): a query sees its own segment.
    - ``q_offset``: an integer or [B], T_kv - T_q by default; must be given with ``kv_lengths`` and ``causal``,
      ``window`` or ``alibi``.
    - ``alibi``: slopes [N_q] or [B, N_q], or ``True`` for the published ones. ``sinks`` [N_q].

    Edges: a row with no allowed key has out 0, weights 0 and lse -inf (SEM-1); with a sink, which is a logit though
    no key, its lse is the sink and its sink_weight 1. T_q = 0 and T_kv = 0 are fine. NaN and inf in keys and values
    that no query of their head sees, and in queries that see nothing, are taken as 0 (SEM-9); in keys that some
    queries see and others do not, they may reach both.

    Raises ``ValueError`` or ``TypeError`` for bad arguments, naming them.
    """
    return solve(
        problem(
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
        )
    )


def solve(p: Problem) -> AttentionStages:
    """The stages of a checked problem."""
    q, k, v = used_inputs(p)
    with np.errstate(invalid="ignore", over="ignore"):
        scores = p.scale * (q @ np.swapaxes(k, -1, -2))
        capped = scores if p.softcap is None else p.softcap * np.tanh(scores / p.softcap)
        biased = capped
        for term in p.terms:
            biased = biased + term
        logits = np.where(p.allowed, biased, -np.inf)
        sink = None if p.sinks is None else p.sinks[None, :, None]
        weights, sink_weight, lse = normalise(logits, sink)
        out = weights @ v
    return AttentionStages(scores, capped, biased, p.allowed, weights, sink_weight, lse, out, p.scale)


def used_inputs(p: Problem) -> tuple[Float64, Float64, Float64]:
    """q, k, v with one K/V head per query head, all [B, N_q, T, ...], and without NaN or inf that nobody sees."""
    seen = masks.seen_keys(p.allowed)
    return (
        masks.without_unused(p.q, masks.seeing_queries(p.allowed)),
        masks.without_unused(np.repeat(p.k, p.group, axis=1), seen),
        masks.without_unused(np.repeat(p.v, p.group, axis=1), seen),
    )
