"""Faults in the parts of models and in whole ones: norms, networks, tables, positions, blocks, stacks."""

from __future__ import annotations

from .mutant import Mutant

_NORMS = "mlx_tx.norms"
_MLP = "mlx_tx.mlp"
_EMBEDDINGS = "mlx_tx.embeddings"
_SINUSOIDAL = "mlx_tx.sinusoidal"
_ROTARY = "mlx_tx.rotary"
_RELATIVE = "mlx_tx.relative"
_BLOCKS = "mlx_tx.blocks"
_LAYERS = "mlx_tx.attention_layers"
_STACK = "mlx_tx.stack"
_MODELS = "mlx_tx.models"

_NORM_FAULTS = (
    Mutant(
        "eps-outside-the-root",
        _NORMS,
        "return x * mx.rsqrt(mx.mean(x * x, axis=-1, keepdims=True) + eps)",
        "return x / (mx.sqrt(mx.mean(x * x, axis=-1, keepdims=True)) + eps)",
        "NRM-1/eps-inside-the-root",
        about="eps is added to the root rather than to the mean square.",
    ),
    Mutant(
        "norm-squares-overflow",
        _NORMS,
        "_LARGE = 2.0**60",
        "_LARGE = 2.0**126",
        "NRM-1/huge-rows",
        about="Rows whose squares overflow float32 are squared as they are.",
    ),
    Mutant(
        "norm-statistics-in-half",
        _NORMS,
        "return x * mx.rsqrt(mx.mean(x * x, axis=-1, keepdims=True) + eps)",
        "half = x.astype(mx.float16)\n"
        "    return x * mx.rsqrt(mx.mean(half * half, axis=-1, keepdims=True).astype(mx.float32) + eps)",
        "NRM-1/rms-of-large-rows",
        about="Squares are taken and summed in half precision.",
    ),
    Mutant(
        "norm-offset-dropped",
        _NORMS,
        "y = y * (wide + offset if offset else wide)",
        "y = y * wide",
        "NRM-1/offset-of-the-weight",
        about="The weight counts without its offset.",
    ),
)

_MLP_FAULTS = (
    Mutant(
        "gelu-for-silu",
        _MLP,
        '"swiglu": silu,',
        '"swiglu": gelu,',
        "MLP-2/equals-oracle*swiglu*",
        about="SwiGLU gates with GELU.",
    ),
    Mutant(
        "tanh-gelu-for-exact",
        _MLP,
        '"geglu": gelu,',
        '"geglu": gelu_tanh,',
        "MLP-2/*geglu*",
        about="GeGLU takes the tanh approximation.",
    ),
    Mutant(
        "gate-and-up-swapped",
        _MLP,
        "return (act(gate.astype(mx.float32)) * up.astype(mx.float32)).astype(up.dtype)",
        "return (act(up.astype(mx.float32)) * gate.astype(mx.float32)).astype(up.dtype)",
        "MLP-2/equals-oracle*swiglu*",
        about="The activation is applied to the other of the two products.",
    ),
    Mutant(
        "activation-left-out",
        _MLP,
        "return act(up.astype(mx.float32)).astype(up.dtype)",
        "return up",
        "MLP-3",
        about="A plain network is linear.",
    ),
    Mutant(
        "top-k-one-less",
        _MLP,
        "chosen = order[..., :top_k]",
        "chosen = order[..., : max(1, top_k - 1)]",
        "MLP-2/mixture-equals-oracle",
        about="One expert less than configured.",
    ),
    Mutant(
        "shares-not-normalised",
        _MLP,
        "weights / mx.sum(weights, axis=-1, keepdims=True) if norm_topk else weights",
        "weights",
        "MLP-2/mixture-equals-oracle*norm_topk=true*",
        about="The shares of the chosen experts do not sum to one.",
    ),
    Mutant(
        "equal-logits-to-the-last",
        _MLP,
        "ids[None, :] < ids[:, None]",
        "ids[None, :] > ids[:, None]",
        "MLP-2/equal-logits-go-to-the-first",
        about="Of equal logits the last expert goes first.",
    ),
)

_POSITION_FAULTS = (
    Mutant(
        "foreign-rows",
        _EMBEDDINGS,
        'return mx.where(inside[..., None], found, mx.array(float("nan"), dtype=table.dtype))',
        "return found",
        "EMB-1/outside-is-nan",
        about="An id outside the vocabulary gives the row of token 0.",
    ),
    Mutant(
        "last-position-refused-late",
        _EMBEDDINGS,
        "    inside = ids < n\n",
        "    inside = ids <= n\n",
        "POS-2",
        about="The first position beyond the table is taken for one of it.",
    ),
    Mutant(
        "table-ends-one-late",
        _STACK,
        "if last >= size or",
        "if last > size or",
        "POS-2/a-model-says-so",
        about="A model lets a text run one token past its table of positions.",
    ),
    Mutant(
        "sine-and-cosine-swapped",
        _SINUSOIDAL,
        "mx.stack([mx.sin(turned), mx.cos(turned)], axis=-1)",
        "mx.stack([mx.cos(turned), mx.sin(turned)], axis=-1)",
        "POS-1/by-hand",
        about="Even channels hold cosines.",
    ),
    Mutant(
        "scale-of-zero-is-default",
        _SINUSOIDAL,
        "mx.array(scale, dtype=mx.float32)",
        "mx.array(scale or 1.0, dtype=mx.float32)",
        "POS-1/scale-of-zero-is-zero",
        about="A scale of 0 is taken for none.",
    ),
    Mutant(
        "yarn-always-truncated",
        _ROTARY,
        "    if scaling.truncate:",
        "    if scaling.truncate or True:",
        "POS-3/scaled-recipes*yarn-exact*",
        about="The ends of YaRN's ramp are rounded to whole pairs whatever was asked.",
    ),
    Mutant(
        "yarn-without-its-factor",
        _ROTARY,
        "return Turns(cos, sin) if factor == 1.0 else Turns(cos * factor, sin * factor)",
        "return Turns(cos, sin)",
        "POS-3/scaled-recipes*yarn*",
        about="Queries and keys are not multiplied by the attention factor.",
    ),
    Mutant(
        "dynamic-ignores-the-factor",
        _ROTARY,
        "_stretch(s * L / M - (s - 1), dims)",
        "_stretch(2.0 * L / M - 1.0, dims)",
        "POS-3/scaled-recipes*dynamic*",
        about="Dynamic NTK stretches by 2 whatever the factor is.",
    ),
    Mutant(
        "long-factors-for-short-texts",
        _ROTARY,
        "scaling.long_factor if length is not None and length > M else scaling.short_factor",
        "scaling.short_factor if length is not None and length > M else scaling.long_factor",
        "POS-3/scaled-recipes*longrope*",
        about="LongRoPE takes the factors of the other length.",
    ),
    Mutant(
        "llama3-slows-the-fast-pairs",
        _ROTARY,
        "[k * w + (1 - k) * w / s for k, w in zip(kept, plain, strict=True)]",
        "[(1 - k) * w + k * w / s for k, w in zip(kept, plain, strict=True)]",
        "POS-3/scaled-recipes*llama3*",
        about="Short waves are slowed and long ones kept.",
    ),
    Mutant(
        "rope-pairing-swapped",
        _LAYERS,
        'q = note(f"{at}q_rope", rotate(q, by, traditional=self._position.traditional))',
        'q = note(f"{at}q_rope", rotate(q, by, traditional=not self._position.traditional))',
        "BLK-1/every-position*rope-interleaved*",
        about="Queries turn in the other pairs of channels.",
    ),
    Mutant(
        "bucket-off-by-one",
        _RELATIVE,
        "away = mx.abs(distances) if bidirectional else mx.maximum(-distances, 0)",
        "away = mx.abs(distances) if bidirectional else mx.maximum(-distances - 1, 0)",
        "T5-1",
        about="A key one token back shares the bucket of the query itself.",
    ),
    Mutant(
        "own-position-counts-as-ahead",
        _RELATIVE,
        "mx.where(distances > 0, N, 0)",
        "mx.where(distances >= 0, N, 0)",
        "T5-1",
        about="The query's own position falls into the upper half of the buckets.",
    ),
)

_MODEL_FAULTS = (
    Mutant(
        "post-norm-for-pre-norm",
        _BLOCKS,
        "self._placement = config.block.placement",
        'self._placement = {"pre": "post"}.get(config.block.placement, config.block.placement)',
        "NRM-2/each-placement*placement=pre*",
        about="A pre-norm model normalises after the residual addition.",
    ),
    Mutant(
        "sandwich-without-its-lid",
        _BLOCKS,
        '        if self._placement == "sandwich":\n            y = note(',
        '        if self._placement == "sandwich" and name != "mlp":\n            y = note(',
        "NRM-2/each-placement*placement=sandwich*",
        about="The result of the MLP is added as it is.",
    ),
    Mutant(
        "residual-dropped",
        _BLOCKS,
        "x + self.dropout(y)",
        "self.dropout(y)",
        "RES-1/identity-with-zeroed-sub-layers",
        about="The sub-layer takes the place of the stream.",
    ),
    Mutant(
        "keys-not-normalised",
        _LAYERS,
        'note(f"{at}k_norm", self.k_norm(k))',
        'note(f"{at}k_norm", k)',
        "BLK-1/every-attention*qk-norm*",
        about="QK-norm normalises queries only.",
    ),
    Mutant(
        "cross-attention-asks-the-memory",
        _LAYERS,
        "q, k, v = self._project(x, None if held else memory, at)",
        "x = x if memory is None else mx.broadcast_to(mx.mean(memory, axis=1, keepdims=True), x.shape)\n"
        "        q, k, v = self._project(x, None if held else memory, at)",
        "DEC-1/queries-come-from-the-decoder",
        about="Queries of cross-attention come from the encoder's output.",
    ),
    Mutant(
        "heads-of-layers-interleaved",
        _LAYERS,
        "return x.reshape(B, T, heads, width // heads).swapaxes(1, 2)",
        "return x.reshape(B, T, width // heads, heads).transpose(0, 3, 1, 2)",
        "BLK-1/every-stage",
        about="A head takes every n-th channel.",
    ),
    Mutant(
        "tied-head-untied",
        _STACK,
        "model.embed_tokens.as_linear(x) if model.config.tie_embeddings",
        "nn.Linear(x.shape[-1], model.config.vocab_size, bias=False)(x) if model.config.tie_embeddings",
        "BLK-1/a-head-that-is-tied",
        about="The output head of a tied model has weights of its own.",
    ),
    Mutant(
        "logits-not-capped",
        _STACK,
        "    if cap is not None:",
        "    if cap is not None and cap > 1000:",
        "BLK-1/patterns-caps-and-scales",
        about="The soft-cap of the logits is left out.",
    ),
    Mutant(
        "embedding-not-scaled",
        _STACK,
        "        if config.embedding_scale is not None:",
        '        if config.embedding_scale is not None and config.embedding_scale != "sqrt":',
        "PRE-1/original",
        about="Rows of the table are not multiplied by the square root of d_model.",
    ),
    Mutant(
        "encoder-looks-back-only",
        _MODELS,
        "super().__init__(config, config.stack(), causal=config.causal, cross=False)",
        "super().__init__(config, config.stack(), causal=True, cross=False)",
        "ENC-1/every-token-sees-every-token",
        about="An encoder is causal.",
    ),
    Mutant(
        "padded-sources-are-seen",
        _MODELS,
        'given["lengths"] = per_row("EncoderDecoder", "memory_lengths", memory_lengths, B, S, check=check)',
        'given["lengths"] = None',
        "DEC-1/padded-sources",
        about="Cross-attention sees the padding of the source.",
    ),
    Mutant(
        "table-is-not-trained",
        _EMBEDDINGS,
        "found = table[mx.where(inside, ids, 0)]",
        "found = mx.stop_gradient(table)[mx.where(inside, ids, 0)]",
        "POS-5/used-rows-only",
        about="No gradient reaches the rows of a table.",
    ),
)

MUTANTS = _NORM_FAULTS + _MLP_FAULTS + _POSITION_FAULTS + _MODEL_FAULTS
