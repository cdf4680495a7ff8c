"""Whole models from one configuration: :class:`Encoder`, :class:`Decoder` and :class:`EncoderDecoder`.

.. code-block:: python

    config = ModelConfig.modern(vocab_size=256, d_model=128, num_layers=2)
    model = Decoder(config)
    logits = model(tokens)                      # [B, T, vocab]
    cache = model.make_cache()
    logits = model(tokens, cache)               # fill it, in steps of any size
    logits = model(next_token, cache)

Parameters have the names of Hugging Face checkpoints (``layers.0.self_attn.q_proj.weight``).

Layers may be wrapped in ``nn.utils.checkpoint``, but for one parameter: T5's table (``relative_bias.weight``) belongs
to the stack and reaches the layers beside their arguments, in the :class:`~mlx_tx.step.Step`. No gradient passes to it
through a checkpointed layer: it is zero, without an error. Train position kind ``t5`` without layer-wise checkpointing,
or with the table frozen.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import mlx.core as mx
from mlx import nn
from mlx.utils import tree_flatten

from mlx_tx.attention_layers import exists_of
from mlx_tx.blocks import Block
from mlx_tx.cache import CacheList, CrossKVCache
from mlx_tx.cache.make import make_caches
from mlx_tx.config import ModelConfig
from mlx_tx.embeddings import Embedding
from mlx_tx.recorder import Stages, record_stages
from mlx_tx.stack import Stack, check_table, check_tokens, finalize, head, prepare
from mlx_tx.step import per_row


class _SingleStack(Stack):
    """A stack with embedding and output head of its own."""

    def __init__(self, config: ModelConfig) -> None:
        kind = type(self).__name__.lower()
        if not isinstance(config, ModelConfig):
            raise TypeError(f"[{type(self).__name__}] config must be a ModelConfig; got {type(config).__name__}")
        if config.kind != kind:
            raise ValueError(f"[{type(self).__name__}] config.kind must be {kind!r}; got {config.kind!r}")
        assert config.causal is not None
        super().__init__(config, config.stack(), causal=config.causal, cross=False)
        self.embed_tokens = Embedding(config.vocab_size, config.d_model)
        if not config.tie_embeddings:
            self.lm_head = nn.Linear(config.d_model, config.vocab_size, bias=False)

    def __call__(self, tokens: mx.array, cache: Any = None, **options: Any) -> mx.array:
        """Logits ``[B, T, vocab]``; arguments as for :meth:`hidden`."""
        return head(self, self.hidden(tokens, cache, **options), "")

    def hidden(
        self,
        tokens: mx.array,
        cache: Any = None,
        *,
        input_embeddings: mx.array | None = None,
        offset: Any = None,
        positions: Any = None,
        lengths: Any = None,
        left_padding: Any = None,
        segments: Any = None,
        mask: mx.array | None = None,
        rope_length: int | None = None,
        check: bool = False,
    ) -> mx.array:
        """The result of the last layer, normalised where the model has a final norm: ``[B, T, d_model]``.

        Args:
            tokens (array): Integers ``[B, T]``, B and T at least 1. An id outside the vocabulary gives NaN (EMB-1).
            cache (list, optional): One cache for each layer, of :meth:`make_cache` or of mlx-lm; the tokens then
              follow those fed before.
            input_embeddings (array, optional): ``[B, T, d_model]`` in place of the rows of the tokens.
            offset (int, list or array, optional): Position of the first token, for position encodings.
            positions (list or array, optional): Position of every token, ``[T]`` or ``[B, T]``, in place of ``offset``.
            lengths (list or array, optional): ``[B]``: tokens from there on are padding. With a batched cache they
              are moved out of the way.
            left_padding (list or array, optional): ``[B]``: tokens before are padding, and positions count from there.
            segments (array, optional): ``[B, T]``: several texts in a row, each seeing itself only.
            mask (array, optional): Boolean or additive, besides the model's own rules.
            rope_length (int, optional): The length that scalings ``dynamic`` and ``longrope`` plan for. Default: that
              of the text so far. A text read in steps with one ``rope_length`` is the text read at once.
            check (bool): Also check the values inside arrays, which reads them.

        What stands in padding reaches no other token; the rows of padding themselves mean nothing.
        """
        name = type(self).__name__
        check_tokens(name, "tokens", tokens)
        cache, right = self._with_cache(name, tokens, cache, lengths, check)
        step = self._begin(
            name, tokens, cache, offset=offset, positions=positions, lengths=lengths, left_padding=left_padding,
            segments=segments, mask=mask, rope_length=rope_length, check=check,
        )  # fmt: skip
        check_table(name, self.config, tokens.shape[1], None if cache is None else cache[0].offset, offset, positions)
        rows = self.embed_tokens(tokens, check=check) if input_embeddings is None else input_embeddings
        x = self._embedded(rows, step, "")
        prepare(cache, right)
        x = self._run(x, step, cache, "")
        finalize(cache, right)
        return x

    def stages(self, tokens: mx.array, cache: Any = None, *, weights: bool = False, **options: Any) -> Stages:
        """Every intermediate array by name, in the order of the computation; ``weights`` adds attention weights."""
        with record_stages(weights=weights) as stages:
            self(tokens, cache, **options)
        return stages

    def make_cache(self, **options: Any) -> list[Any]:
        """An empty cache for each layer; :func:`mlx_tx.cache.make.make_caches` has the keywords."""
        return make_caches(self.config.stack(), **options)


class Decoder(_SingleStack):
    """A decoder-only model: causal self-attention and no other (DEC-2)."""


class Encoder(_SingleStack):
    """An encoder: every token sees every token, unless the configuration says otherwise (ENC-1)."""


class EncoderDecoder(nn.Module):
    """An encoder, and a decoder that attends to its output (DEC-1). One table embeds the tokens of both."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        if not isinstance(config, ModelConfig):
            raise TypeError(f"[EncoderDecoder] config must be a ModelConfig; got {type(config).__name__}")
        if config.kind != "encoder_decoder":
            raise ValueError(f"[EncoderDecoder] config.kind must be 'encoder_decoder'; got {config.kind!r}")
        assert config.causal is not None
        self.config = config
        self.embed_tokens = Embedding(config.vocab_size, config.d_model)
        self.encoder = Stack(config, config.stack(encoder=True), causal=False, cross=False)
        self.decoder = Stack(config, config.stack(), causal=config.causal, cross=True)
        if not config.tie_embeddings:
            self.lm_head = nn.Linear(config.d_model, config.vocab_size, bias=False)

    def __call__(
        self,
        source: mx.array,
        target: mx.array,
        cache: Any = None,
        *,
        source_lengths: Any = None,
        source_left_padding: Any = None,
        **options: Any,
    ) -> mx.array:
        """Logits ``[B, T, vocab]`` of ``target`` ``[B, T]`` given ``source`` ``[B, S]``.

        Padding of the source is hidden from the encoder and from cross-attention. ``options``: those of
        :meth:`decode`.
        """
        check = options.get("check", False)
        memory = self.encode(source, lengths=source_lengths, left_padding=source_left_padding, check=check)
        return self.decode(
            target, memory, cache, memory_lengths=source_lengths, memory_left_padding=source_left_padding, **options
        )

    def encode(
        self,
        source: mx.array,
        *,
        lengths: Any = None,
        left_padding: Any = None,
        rope_length: int | None = None,
        check: bool = False,
    ) -> mx.array:
        """The encoder's output for ``source`` ``[B, S]``: ``[B, S, d_model]``."""
        check_tokens("EncoderDecoder", "source", source)
        stack = self.encoder
        step = stack._begin(
            "EncoderDecoder", source, None, lengths=lengths, left_padding=left_padding, rope_length=rope_length,
            check=check,
        )  # fmt: skip
        check_table("EncoderDecoder", self.config, source.shape[1], None, None, None)
        rows = self.embed_tokens(source, check=check)
        return stack._run(stack._embedded(rows, step, "encoder."), step, None, "encoder.")

    def decode(
        self,
        target: mx.array,
        memory: mx.array | None,
        cache: Any = None,
        *,
        memory_lengths: Any = None,
        memory_left_padding: Any = None,
        offset: Any = None,
        positions: Any = None,
        lengths: Any = None,
        left_padding: Any = None,
        segments: Any = None,
        mask: mx.array | None = None,
        rope_length: int | None = None,
        check: bool = False,
    ) -> mx.array:
        """Logits ``[B, T, vocab]`` of ``target`` ``[B, T]`` given the encoder's output ``memory`` ``[B, S, d_model]``.

        A cache holds the memory's keys and values after the first step; ``memory`` may then be ``None``. The other
        arguments are those of :meth:`Decoder.hidden`, for the target.
        """
        check_tokens("EncoderDecoder", "target", target)
        stack = self.decoder
        cache, right = stack._with_cache("EncoderDecoder", target, cache, lengths, check)
        step = stack._begin(
            "EncoderDecoder", target, cache, offset=offset, positions=positions, lengths=lengths,
            left_padding=left_padding, segments=segments, mask=mask, rope_length=rope_length, check=check,
        )  # fmt: skip
        start = None if cache is None else cache[0].offset
        check_table("EncoderDecoder", self.config, target.shape[1], start, offset, positions)
        given: dict[str, Any] = {"memory": memory}
        if memory is None and (cache is None or any(isinstance(c, CacheList) and c[1].empty() for c in cache)):
            raise ValueError("[EncoderDecoder] memory must be given where no cache holds it; got None")
        if memory is not None:
            if memory.ndim != 3 or memory.size == 0:
                raise ValueError(f"[EncoderDecoder] memory must have shape [B, S, d_model], B and S at least 1; "
                                 f"got {memory.shape}")  # fmt: skip
            B, S = memory.shape[:2]
            given["lengths"] = per_row("EncoderDecoder", "memory_lengths", memory_lengths, B, S, check=check)
            pads = per_row("EncoderDecoder", "memory_left_padding", memory_left_padding, B, S, check=check)
            if pads is not None:
                within = (mx.arange(S) >= mx.array(pads)[:, None])[:, None, None, :]
                given.update(exists=exists_of(within, given["lengths"], S), lengths=None)
        x = stack._embedded(self.embed_tokens(target, check=check), step, "decoder.")
        prepare(cache, right)
        x = stack._run(x, step, cache, "decoder.", given)
        finalize(cache, right)
        return head(self, x, "decoder.")

    def stages(
        self, source: mx.array, target: mx.array, cache: Any = None, *, weights: bool = False, **options: Any
    ) -> Stages:
        """Every intermediate array by name, in the order of the computation; ``weights`` adds attention weights."""
        with record_stages(weights=weights) as stages:
            self(source, target, cache, **options)
        return stages

    @property
    def layers(self) -> list[Block]:
        """The layers of the decoder, one for each cache."""
        return self.decoder.layers

    def make_cache(self, **options: Any) -> list[CacheList]:
        """An empty cache of self-attention and one of cross-attention for each layer of the decoder."""
        return [CacheList(own, CrossKVCache()) for own in make_caches(self.config.stack(), **options)]


def make_model(config: ModelConfig) -> Decoder | Encoder | EncoderDecoder:
    """The model of a configuration, by its kind."""
    kinds: dict[str, Any] = {"decoder": Decoder, "encoder": Encoder, "encoder_decoder": EncoderDecoder}
    return kinds[config.kind](config)


def with_weights(model: Any, weights: Mapping[str, Any], *, dtype: mx.Dtype | None = None) -> Any:
    """``model`` after every parameter was set from ``weights``, arrays of MLX or NumPy by name; returns the model.

    Names and shapes must be exactly the model's. ``dtype`` converts what is floating.
    """
    own = dict(tree_flatten(model.parameters()))
    missing, unknown = [n for n in own if n not in weights], [n for n in weights if n not in own]
    if missing or unknown:
        raise ValueError(f"[with_weights] weights must be those of the model; missing {missing}, unknown {unknown}")
    arrays = []
    for name, array in own.items():
        given = weights[name] if isinstance(weights[name], mx.array) else mx.array(weights[name])
        if given.shape != array.shape:
            raise ValueError(f"[with_weights] {name} must have shape {array.shape}; got {given.shape}")
        arrays.append((name, given if dtype is None else given.astype(dtype)))
    model.load_weights(arrays)
    return model
