"""The two presets are the combinations that they claim to be (PRE-1)."""

from mlx_tx.config import ModelConfig, RopeScaling


def test_the_original_is_the_base_model_of_2017():
    config = ModelConfig.original(37000)
    assert (config.kind, config.d_model, config.num_layers, config.num_encoder_layers) == ("encoder_decoder", 512, 6, 6)
    assert (config.attention.num_heads, config.attention.num_kv_heads, config.attention.head_dim) == (8, 8, 64)
    assert (config.attention.bias, config.attention.out_bias, config.attention.scale) == (False, False, None)
    assert (config.mlp.kind, config.mlp.d_ff, config.mlp.bias) == ("relu", 2048, True)
    assert (config.norm.kind, config.norm.bias, config.block.placement) == ("layer", True, "post")
    assert (config.position.kind, config.position.base) == ("sinusoidal", 10000.0)
    assert (config.tie_embeddings, config.embedding_scale, config.block.dropout) == (True, "sqrt", 0.1)
    assert config.final_norm is False


def test_the_modern_one_is_pre_norm_rope_swiglu_and_grouped_heads():
    config = ModelConfig.modern(1000, d_model=256, num_heads=8, num_kv_heads=2, window=128)
    assert (config.kind, config.causal, config.block.placement, config.final_norm) == ("decoder", True, "pre", True)
    assert (config.norm.kind, config.norm.bias, config.position.kind, config.mlp.kind) == (
        "rms",
        False,
        "rope",
        "swiglu",
    )
    assert (config.attention.num_heads, config.attention.num_kv_heads, config.attention.window) == (8, 2, 128)
    assert config.mlp.d_ff == 704  # 8/3 of 256 is 682.67; the next multiple of 32
    assert ModelConfig.modern(10, d_model=96).mlp.d_ff == 256


def test_keywords_reach_their_fields():
    scaling = RopeScaling(kind="linear", factor=2.0)
    config = ModelConfig.modern(10, d_ff=99, rope_base=5e5, rope_scaling=scaling, qk_norm=True, tie_embeddings=False)
    assert (config.mlp.d_ff, config.position.base, config.position.scaling) == (99, 5e5, scaling)
    assert (config.attention.qk_norm, config.tie_embeddings) == (True, False)
