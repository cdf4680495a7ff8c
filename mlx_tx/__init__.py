"""mlx-tx: the full Transformer for MLX, with fused attention in which every feature composes.

Names are imported when first used, so that ``import mlx_tx`` itself does not import MLX.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOMES = {
    "scaled_dot_product_attention": "mlx_tx.attention",
    "record_paths": "mlx_tx.record",
    "PathRecord": "mlx_tx.record",
    "rope": "mlx_tx.positions",
    "alibi_slopes": "mlx_tx.positions",
    "MultiHeadAttention": "mlx_tx.layers",
    "softmax": "mlx_tx.probabilities",
    "AttentionConfig": "mlx_tx.config",
    "BlockConfig": "mlx_tx.config",
    "LayerOverride": "mlx_tx.config",
    "MLPConfig": "mlx_tx.config",
    "ModelConfig": "mlx_tx.config",
    "NormConfig": "mlx_tx.config",
    "PositionConfig": "mlx_tx.config",
    "RopeScaling": "mlx_tx.config",
    "Decoder": "mlx_tx.models",
    "Encoder": "mlx_tx.models",
    "EncoderDecoder": "mlx_tx.models",
    "make_model": "mlx_tx.models",
    "with_weights": "mlx_tx.models",
    "record_stages": "mlx_tx.recorder",
    "Stages": "mlx_tx.recorder",
    "scaled_rope": "mlx_tx.rotary",
    "sinusoidal_positions": "mlx_tx.sinusoidal",
    "relative_buckets": "mlx_tx.relative",
    "rms_norm": "mlx_tx.norms",
    "layer_norm": "mlx_tx.norms",
    "KVCache": "mlx_tx.cache",
    "RotatingKVCache": "mlx_tx.cache",
    "QuantizedKVCache": "mlx_tx.cache",
    "BatchKVCache": "mlx_tx.cache",
    "BatchRotatingKVCache": "mlx_tx.cache",
    "CrossKVCache": "mlx_tx.cache",
    "CacheList": "mlx_tx.cache",
    "save_cache": "mlx_tx.cache",
    "load_cache": "mlx_tx.cache",
}

__all__ = [
    "AttentionConfig",
    "BatchKVCache",
    "BatchRotatingKVCache",
    "BlockConfig",
    "CacheList",
    "CrossKVCache",
    "Decoder",
    "Encoder",
    "EncoderDecoder",
    "KVCache",
    "LayerOverride",
    "MLPConfig",
    "ModelConfig",
    "MultiHeadAttention",
    "NormConfig",
    "PathRecord",
    "PositionConfig",
    "QuantizedKVCache",
    "RopeScaling",
    "RotatingKVCache",
    "Stages",
    "alibi_slopes",
    "layer_norm",
    "load_cache",
    "make_model",
    "record_paths",
    "record_stages",
    "relative_buckets",
    "rms_norm",
    "rope",
    "save_cache",
    "scaled_dot_product_attention",
    "scaled_rope",
    "sinusoidal_positions",
    "softmax",
    "with_weights",
]

if TYPE_CHECKING:
    from mlx_tx import plugin as plugin
    from mlx_tx.attention import scaled_dot_product_attention
    from mlx_tx.cache import (
        BatchKVCache,
        BatchRotatingKVCache,
        CacheList,
        CrossKVCache,
        KVCache,
        QuantizedKVCache,
        RotatingKVCache,
        load_cache,
        save_cache,
    )
    from mlx_tx.config import (
        AttentionConfig,
        BlockConfig,
        LayerOverride,
        MLPConfig,
        ModelConfig,
        NormConfig,
        PositionConfig,
        RopeScaling,
    )
    from mlx_tx.layers import MultiHeadAttention
    from mlx_tx.models import Decoder, Encoder, EncoderDecoder, make_model, with_weights
    from mlx_tx.norms import layer_norm, rms_norm
    from mlx_tx.positions import alibi_slopes, rope
    from mlx_tx.probabilities import softmax
    from mlx_tx.record import PathRecord, record_paths
    from mlx_tx.recorder import Stages, record_stages
    from mlx_tx.relative import relative_buckets
    from mlx_tx.rotary import scaled_rope
    from mlx_tx.sinusoidal import sinusoidal_positions


def __getattr__(name: str) -> Any:
    if name == "plugin":  # imported before it was asked for, it is there
        return importlib.import_module("mlx_tx.plugin")
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
