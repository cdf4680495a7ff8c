"""Two well-known models as configurations: the Transformer of 2017 and a modern decoder (PRE-1)."""

from __future__ import annotations

from mlx_tx.config import (
    AttentionConfig,
    BlockConfig,
    MLPConfig,
    ModelConfig,
    NormConfig,
    PositionConfig,
    RopeScaling,
)


def original(
    vocab_size: int,
    *,
    d_model: int = 512,
    num_layers: int = 6,
    num_heads: int = 8,
    d_ff: int = 2048,
    dropout: float = 0.1,
) -> ModelConfig:
    """The encoder-decoder of 2017: norms after the residual, sinusoidal positions, ReLU, multi-head attention.

    One table serves both embeddings and the output, and its rows are scaled by the square root of ``d_model``. The
    defaults are the paper's base model.

    Source: Vaswani et al. 2017, sections 3 and 5.4, table 3.
    """
    return ModelConfig(
        kind="encoder_decoder",
        vocab_size=vocab_size,
        d_model=d_model,
        num_layers=num_layers,
        attention=AttentionConfig(num_heads=num_heads),
        position=PositionConfig(kind="sinusoidal"),
        norm=NormConfig(kind="layer"),
        mlp=MLPConfig(kind="relu", d_ff=d_ff, bias=True),
        block=BlockConfig(placement="post", dropout=dropout),
        tie_embeddings=True,
        embedding_scale="sqrt",
    )


def modern(
    vocab_size: int,
    *,
    d_model: int = 512,
    num_layers: int = 8,
    num_heads: int = 8,
    num_kv_heads: int = 2,
    d_ff: int | None = None,
    rope_base: float = 10000.0,
    rope_scaling: RopeScaling | None = None,
    window: int | None = None,
    qk_norm: bool = False,
    tie_embeddings: bool = True,
    dropout: float = 0.0,
) -> ModelConfig:
    """A decoder as most language models of today: pre-norm RMSNorm, RoPE, SwiGLU, grouped-query attention.

    ``d_ff`` defaults to 8/3 of ``d_model``, rounded up to a multiple of 32: three matrices of that width have as many
    parameters as two of 4 ``d_model``.

    Source: Touvron et al. 2023, "LLaMA", section 2.2; Ainslie et al. 2023 for grouped heads.
    """
    return ModelConfig(
        kind="decoder",
        vocab_size=vocab_size,
        d_model=d_model,
        num_layers=num_layers,
        attention=AttentionConfig(num_heads=num_heads, num_kv_heads=num_kv_heads, window=window, qk_norm=qk_norm),
        position=PositionConfig(kind="rope", base=rope_base, scaling=rope_scaling),
        norm=NormConfig(kind="rms"),
        mlp=MLPConfig(kind="swiglu", d_ff=-(-8 * d_model // 96) * 32 if d_ff is None else d_ff),
        block=BlockConfig(placement="pre", dropout=dropout),
        tie_embeddings=tie_embeddings,
    )
