"""Whole models in float64, stage by stage: encoder, decoder and encoder-decoder from one configuration.

Every function returns an ordered dict from the name of a stage to its array:

| stage | shape | |
|---|---|---|
| embed | [B, T, d_model] | token rows, scaled, with sinusoidal or learned positions |
| layers.{n}.input_norm | [B, T, d_model] | norm of the self-attention |
| layers.{n}.self_attn.q .k .v | [B, N, T, D] | projected and split into heads |
| layers.{n}.self_attn.q_norm .k_norm | [B, N, T, D] | with QK-norm |
| layers.{n}.self_attn.q_rope .k_rope | [B, N, T, D] | with rotary positions |
| layers.{n}.self_attn.k_cache .v_cache | [B, N_kv, T, D] | as a quantised cache gives them back |
| layers.{n}.self_attn.out | [B, N_q, T, D_v] | the attention |
| layers.{n}.self_attn.proj .residual | [B, T, d_model] | after W_o; added to the stream |
| layers.{n}.cross_attn_norm, .cross_attn.* | | likewise, in a decoder with an encoder |
| layers.{n}.mlp_norm | [B, T, d_model] | norm of the MLP |
| layers.{n}.mlp.hidden | [B, T, d_ff] | the input of the last product |
| layers.{n}.mlp.router .routing | [B, T, E] | in place of hidden, for a mixture of experts |
| layers.{n}.mlp.out .residual | [B, T, d_model] | |
| layers.{n}.post_self_attn_norm .post_cross_attn_norm .post_mlp_norm | [B, T, d_model] | sandwich norms |
| norm | [B, T, d_model] | the final norm, where there is one |
| logits | [B, T, vocab] | soft-capped where configured |

With post-norm a norm stands after its residual instead of before its sub-layer. The stages of an encoder-decoder carry
``encoder.`` or ``decoder.`` before their names.

Sources: Vaswani et al. 2017, section 3 and figure 1; decoder-only: Radford et al. 2018 and 2019; the modern decoder:
Touvron et al. 2023, "LLaMA", section 2.2.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from . import settings
from .blocks import Stack, Stream, block, normalise
from .embeddings import embed, learned_positions, output_head
from .parameters import check_parameters
from .record import Recorder
from .sinusoidal import sinusoidal_table

Float64 = NDArray[np.float64]
Int = NDArray[np.int64]


def decoder(
    config: Mapping[str, Any],
    weights: Mapping[str, ArrayLike],
    tokens: ArrayLike,
    *,
    offset: int | ArrayLike = 0,
    positions: ArrayLike | None = None,
    lengths: ArrayLike | None = None,
    left_padding: ArrayLike | None = None,
    segments: ArrayLike | None = None,
    mask: ArrayLike | None = None,
    kv_quantisation: Mapping[str, Any] | None = None,
    record: Recorder | None = None,
) -> dict[str, Float64]:
    """A decoder-only model on ``tokens`` [B, T] (BLK-1); its stages.

    ``config``: the plain dict of a configuration; ``weights``: every parameter by name, checked against it.

    - Padding: ``lengths`` [B] (tokens from there on do not exist) or ``left_padding`` [B] (tokens before do not exist,
      and positions count from the first that does). What stands in padding does not reach other tokens; the rows of
      padding themselves mean nothing.
    - ``positions`` [B, T], or ``offset``, an integer or [B], of the first token; for position encodings only.
    - ``segments`` [B, T] packs several texts in a row; ``mask`` goes to every self-attention, besides causality,
      windows and padding: boolean or additive, and broadcasting to [B, N_q, T, T].
    - ``kv_quantisation``: the keywords ``bits``, ``group_size`` and ``dtype`` of a quantised cache.
    - ``record``: collects how each stage came about, and replaces stages by given ones.
    """
    return _single(
        "decoder",
        config,
        weights,
        tokens,
        record,
        offset=offset,
        positions=positions,
        lengths=lengths,
        left_padding=left_padding,
        segments=segments,
        mask=mask,
        kv_quantisation=kv_quantisation,
    )


def encoder(
    config: Mapping[str, Any],
    weights: Mapping[str, ArrayLike],
    tokens: ArrayLike,
    *,
    offset: int | ArrayLike = 0,
    positions: ArrayLike | None = None,
    lengths: ArrayLike | None = None,
    left_padding: ArrayLike | None = None,
    segments: ArrayLike | None = None,
    mask: ArrayLike | None = None,
    record: Recorder | None = None,
) -> dict[str, Float64]:
    """An encoder on ``tokens`` [B, T]: every token sees every token (ENC-1). Arguments as for :func:`decoder`."""
    return _single(
        "encoder",
        config,
        weights,
        tokens,
        record,
        offset=offset,
        positions=positions,
        lengths=lengths,
        left_padding=left_padding,
        segments=segments,
        mask=mask,
    )


def encoder_decoder(
    config: Mapping[str, Any],
    weights: Mapping[str, ArrayLike],
    source: ArrayLike,
    target: ArrayLike,
    *,
    source_lengths: ArrayLike | None = None,
    source_left_padding: ArrayLike | None = None,
    record: Recorder | None = None,
    **options: Any,
) -> dict[str, Float64]:
    """An encoder on ``source`` [B, S] and a decoder on ``target`` [B, T] that attends to its output (DEC-1).

    Padding of the source is hidden from the encoder and from cross-attention. ``options``: those of :func:`decoder`,
    for the target.
    """
    model, arrays, record = _prepare("encoder_decoder", config, weights, record)
    S = np.asarray(source).shape[1]
    reading = _stack(
        model,
        arrays,
        record,
        "encoder.",
        source,
        causal=False,
        lengths=source_lengths,
        left_padding=source_left_padding,
    )
    memory = _run(reading, _embedded(reading, source), model.num_encoder_layers)
    hides = _hides(S, source_lengths, source_left_padding)
    writing = _stack(model, arrays, record, "decoder.", target, causal=model.causal, memory_hides=hides, **options)
    _head(writing, _run(writing, _embedded(writing, target), model.num_layers, memory))
    record.refuse_leftovers()
    return record.values


def _single(
    kind: str,
    config: Mapping[str, Any],
    weights: Mapping[str, ArrayLike],
    tokens: ArrayLike,
    record: Recorder | None,
    **options: Any,
) -> dict[str, Float64]:
    model, arrays, record = _prepare(kind, config, weights, record)
    stack = _stack(model, arrays, record, "", tokens, causal=model.causal, **options)
    _head(stack, _run(stack, _embedded(stack, tokens), model.num_layers))
    record.refuse_leftovers()
    return record.values


def _prepare(
    kind: str, config: Mapping[str, Any], weights: Mapping[str, ArrayLike], record: Recorder | None
) -> tuple[settings.Model, dict[str, Float64], Recorder]:
    model = settings.read(config)
    if model.kind != kind:
        raise ValueError(f"[{kind}] config.kind must be {kind!r}; got {model.kind!r}")
    return model, check_parameters(config, weights), Recorder() if record is None else record


def _stack(
    model: settings.Model,
    weights: Mapping[str, Float64],
    record: Recorder,
    prefix: str,
    tokens: ArrayLike,
    *,
    causal: bool,
    offset: int | ArrayLike = 0,
    positions: ArrayLike | None = None,
    lengths: ArrayLike | None = None,
    left_padding: ArrayLike | None = None,
    segments: ArrayLike | None = None,
    mask: ArrayLike | None = None,
    kv_quantisation: Mapping[str, Any] | None = None,
    memory_hides: Mapping[str, Any] | None = None,
) -> Stack:
    ids = np.asarray(tokens)
    if ids.ndim != 2:
        raise ValueError(f"[{model.kind}] tokens must have shape [B, T]; got {ids.shape}")
    B, T = ids.shape
    pads = np.zeros(B, dtype=np.int64) if left_padding is None else np.asarray(left_padding, dtype=np.int64)
    start = np.broadcast_to(np.asarray(offset, dtype=np.int64), (B,)) - pads
    at = start[:, None] + np.arange(T) if positions is None else np.asarray(positions, dtype=np.int64)
    if at.shape != (B, T):
        raise ValueError(f"[{model.kind}] positions must have shape {(B, T)}; got {at.shape}")
    exists = T if lengths is None else np.asarray(lengths, dtype=np.int64)[:, None]
    return Stack(
        model=model,
        weights=weights,
        record=record,
        prefix=prefix,
        causal=causal,
        positions=at,
        lengths=np.where(np.arange(T) < exists, at, -1).max(axis=1, initial=-1) + 1,
        hides=_hides(T, lengths, left_padding, mask) | {"segments": segments},
        memory_hides=memory_hides or {},
        kv_quantisation=kv_quantisation,
    )


def _hides(
    T: int, lengths: ArrayLike | None, left_padding: ArrayLike | None, mask: ArrayLike | None = None
) -> dict[str, Any]:
    """Which of T keys exist, as options of an attention; left padding joins the mask."""
    if left_padding is not None:
        exists = np.arange(T) >= np.asarray(left_padding)[:, None, None, None]
        given = np.asarray(True if mask is None else mask)
        mask = given & exists if given.dtype == np.bool_ else np.where(exists, given, -np.inf)
    return {"kv_lengths": lengths, "mask": mask}


def _embedded(stack: Stack, tokens: ArrayLike) -> Stream:
    """The rows of the tokens, scaled, with what the position encoding adds (EMB-1, EMB-2)."""
    model, position = stack.model, stack.model.position
    x = embed(tokens, stack.weights["embed_tokens.weight"], scale=model.embedding_scale)
    names = ["embed_tokens.weight"]
    if position.kind == "sinusoidal":
        x = x + sinusoidal_table(stack.positions, model.d_model, base=position.base)
    if position.kind == "learned":
        names.append(f"{stack.prefix}position.weight")
        # Padding on the left stands before the first position; its rows mean nothing and borrow the first row.
        x = x + learned_positions(np.maximum(stack.positions, 0), stack.weights[names[-1]])
    stage = f"{stack.prefix}embed"
    options: dict[str, Any] = {
        "ids": np.asarray(tokens),
        "positions": stack.positions,
        "scale": model.embedding_scale,
        "position": position.kind,
        "base": position.base,
    }
    return Stream(stage, stack.record(stage, x, "embedding", (), tuple(names), **options))


def _run(stack: Stack, x: Stream, number: int, memory: Stream | None = None) -> Stream:
    for n, layer in enumerate(stack.model.layers(number)):
        x = block(stack, layer, n, x, memory)
    if not stack.model.final_norm:
        return x
    return normalise(stack, f"{stack.prefix}norm", f"{stack.prefix}norm", x)


def _head(stack: Stack, x: Stream) -> Stream:
    name = "embed_tokens.weight" if stack.model.tie_embeddings else "lm_head.weight"
    cap = stack.model.final_softcap
    logits = output_head(x.value, stack.weights[name])
    if cap is not None:
        logits = cap * np.tanh(logits / cap)
    stage = f"{stack.prefix}logits"
    return Stream(stage, stack.record(stage, logits, "linear", (x.name,), (name,), softcap=cap))
