"""The layers of an encoder or a decoder, with what comes right before and after them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import mlx.core as mx
from mlx import nn

from mlx_tx.blocks import Block
from mlx_tx.cache import CacheList
from mlx_tx.config import LayerConfig, ModelConfig
from mlx_tx.embeddings import LearnedPositions
from mlx_tx.norms import Norm
from mlx_tx.recorder import note
from mlx_tx.relative import RelativeBias
from mlx_tx.sinusoidal import sinusoidal_positions
from mlx_tx.step import Step, begin, per_row


class Stack(nn.Module):
    """Embedding of positions, the layers, the final norm; ``cross``: the layers attend to a memory too."""

    def __init__(self, config: ModelConfig, layers: Sequence[LayerConfig], *, causal: bool, cross: bool) -> None:
        super().__init__()
        self.config = config
        self._causal = causal
        if config.position.kind == "learned":
            assert config.position.max_positions is not None
            self.position = LearnedPositions(config.position.max_positions, config.d_model)
        if config.kind == "encoder_decoder":
            # Each stack looks its own way.
            layers = [layer._replace(position=replace(layer.position, bidirectional=None)) for layer in layers]
        tables = [layer for layer in layers if layer.position.kind == "t5"]
        if tables:
            self.relative_bias = RelativeBias(tables[0].position.num_buckets, tables[0].attention.num_heads)
        self.layers = [Block(config, layer, cross=cross) for layer in layers]
        if config.final_norm:
            self.norm = Norm(config.d_model, config.norm)
        self.dropout = nn.Dropout(config.block.dropout)

    def _begin(self, name: str, tokens: mx.array, cache: Sequence[Any] | None, **given: Any) -> Step:
        B, T = tokens.shape[:2]
        step = begin(name, B, T, causal=self._causal, start=None if cache is None else cache[0].offset, **given)
        step.bias = self.relative_bias if "relative_bias" in self else None
        return step

    def _embedded(self, rows: mx.array, step: Step, at: str) -> mx.array:
        """Rows of the tokens, scaled, with what the position encoding adds (EMB-1, EMB-2)."""
        config = self.config
        x = rows.astype(mx.float32)
        if config.embedding_scale is not None:
            sqrt = config.embedding_scale == "sqrt"
            x = x * (math.sqrt(config.d_model) if sqrt else float(config.embedding_scale))
        if config.position.kind == "sinusoidal":
            x = x + sinusoidal_positions(step.positions, config.d_model, base=config.position.base)
        if config.position.kind == "learned":
            # Padding on the left stands before the first position; its rows mean nothing and borrow the first one.
            positions = mx.maximum(step.positions, 0) if step.padded else step.positions
            x = x + self.position(positions, check=step.check).astype(mx.float32)
        return self.dropout(note(f"{at}embed", x.astype(rows.dtype)))

    def _run(
        self, x: mx.array, step: Step, cache: Sequence[Any] | None, at: str, memory: dict[str, Any] | None = None
    ) -> mx.array:
        for n, layer in enumerate(self.layers):
            own = None if cache is None else cache[n]
            x = layer(x, step, own, memory=memory, at=f"{at}layers.{n}.")
        return note(f"{at}norm", self.norm(x)) if "norm" in self else x

    def _with_cache(
        self, name: str, tokens: mx.array, cache: Any, lengths: Any, check: bool
    ) -> tuple[Sequence[Any] | None, mx.array | None]:
        """The caches, and the padding on the right that the step's ``lengths`` tell of; :func:`prepare` tells them."""
        if cache is None or all(one is None for one in cache):
            return None, None
        if len(cache) != len(self.layers):
            raise ValueError(f"[{name}] cache must hold one for each of {len(self.layers)} layers; got {len(cache)}")
        if not self._causal:
            raise ValueError(f"[{name}] cache must be None where attention is not causal")
        if lengths is None:
            return cache, None
        B, T = tokens.shape[:2]
        known = per_row(name, "lengths", lengths, B, T, check=check)
        right = T - (known if isinstance(known, mx.array) else mx.array(known))
        for one in cache:
            own = one[0] if isinstance(one, CacheList) else one
            if not hasattr(own, "prepare"):
                kind = type(own).__name__
                raise ValueError(
                    f"[{name}] lengths need a batched cache (BatchKVCache, BatchRotatingKVCache); got {kind}"
                )
        return cache, right


def head(model: Any, x: mx.array, at: str) -> mx.array:
    """Logits of the last layer's result, by the tied table or ``lm_head``, soft-capped where configured."""
    logits = model.embed_tokens.as_linear(x) if model.config.tie_embeddings else model.lm_head(x)
    cap = model.config.final_softcap
    if cap is not None:
        logits = (cap * mx.tanh(logits.astype(mx.float32) / cap)).astype(logits.dtype)
    return note(f"{at}logits", logits)


def prepare(cache: Sequence[Any] | None, right: mx.array | None) -> None:
    """Tells batched caches of padding on the right of the next step, once all arguments are known to be good."""
    if cache is not None and right is not None:
        for one in cache:
            own: Any = one[0] if isinstance(one, CacheList) else one
            own.prepare(right_padding=right)


def finalize(cache: Sequence[Any] | None, right: mx.array | None) -> None:
    """Tells batched caches that a step with padding on the right is over."""
    if cache is not None and right is not None:
        for one in cache:
            own: Any = one[0] if isinstance(one, CacheList) else one
            own.finalize()


def check_tokens(name: str, argument: str, tokens: Any) -> None:
    """Refuses what is not an integer array ``[B, T]`` of at least one token."""
    if not isinstance(tokens, mx.array):
        raise TypeError(f"[{name}] {argument} must be an mlx array; got {type(tokens).__name__}")
    if not mx.issubdtype(tokens.dtype, mx.integer):
        raise TypeError(f"[{name}] {argument} must hold integers; got {tokens.dtype}")
    if tokens.ndim != 2:
        raise ValueError(f"[{name}] {argument} must have shape [B, T]; got {tokens.shape}")
    if tokens.size == 0:
        raise ValueError(f"[{name}] {argument} must have B >= 1 and T >= 1; got shape {tokens.shape}")


def check_table(name: str, config: ModelConfig, T: int, start: Any, offset: Any, positions: Any) -> None:
    """Refuses positions beyond a learned table where the host knows them (POS-2)."""
    first = start if start is not None else 0 if offset is None else offset
    if config.position.kind != "learned" or positions is not None or isinstance(first, mx.array):
        return
    size = config.position.max_positions
    assert size is not None
    last = (max(first) if isinstance(first, Sequence) else first) + T - 1
    if last >= size or (min(first) if isinstance(first, Sequence) else first) < 0:
        raise ValueError(f"[{name}] positions must lie in 0..max_positions - 1 = {size - 1}; got {last}")
