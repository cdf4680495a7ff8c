"""Small models that between them use every field of a configuration, with weights that depend on the name only.

Used by the tests of the oracle and by its evidence.
"""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np

from mlx_tx_conformance.oracle.parameters import parameter_shapes

Config = dict[str, Any]

ATTENTION = {"num_heads": 4, "num_kv_heads": 2, "head_dim": 4}
YARN = {"kind": "yarn", "factor": 4.0, "original_max_positions": 8, "beta_fast": 2.0, "beta_slow": 0.5}


def model(kind: str = "decoder", **fields: Any) -> Config:
    plain: Config = {
        "kind": kind,
        "vocab_size": 13,
        "d_model": 12,
        "num_layers": 2,
        "attention": ATTENTION,
        "mlp": {"kind": "swiglu", "d_ff": 10},
        "tie_embeddings": True,
    }
    return {**plain, **fields}


MODERN = model(position={"kind": "rope"}, norm={"kind": "rms", "eps": 1e-6})
ORIGINAL = model(
    "encoder_decoder",
    attention={"num_heads": 3},
    position={"kind": "sinusoidal"},
    norm={"kind": "layer"},
    mlp={"kind": "relu", "d_ff": 20, "bias": True},
    block={"placement": "post"},
    embedding_scale="sqrt",
)
MOE = {"kind": "moe", "d_ff": 6, "num_experts": 4, "top_k": 2}

CONFIGS: dict[str, Config] = {
    "modern": MODERN,
    "untied": {**MODERN, "tie_embeddings": False},
    "no-positions": model(),
    "rope-interleaved-partial": model(position={"kind": "rope", "dims": 2, "traditional": True, "base": 50.0}),
    "rope-yarn": model(position={"kind": "rope", "scaling": YARN}),
    "learned": model(position={"kind": "learned", "max_positions": 9}),
    "sinusoidal": model(position={"kind": "sinusoidal", "base": 100.0}, embedding_scale=0.5),
    "alibi": model(position={"kind": "alibi"}),
    "t5": model(position={"kind": "t5", "num_buckets": 6, "max_distance": 5}, attention={**ATTENTION, "scale": 1.0}),
    "mha-biases": model(attention={"num_heads": 3, "bias": True, "out_bias": True}),
    "mqa-wide-values": model(attention={"num_heads": 3, "num_kv_heads": 1, "head_dim": 2, "value_dim": 5}),
    "qk-norm": model(attention={**ATTENTION, "qk_norm": True}, position={"kind": "rope"}),
    "sinks-softcap": model(attention={**ATTENTION, "sinks": True, "softcap": 2.0}, final_softcap=3.0),
    "windows-by-layer": model(
        num_layers=3,
        position={"kind": "rope"},
        layers=[{"window": 2, "position": {"kind": "rope", "base": 7.0}}, {"position": {"kind": "none"}}],
    ),
    "mlp-by-layer": model(layers=[{}, {"mlp": {"kind": "gelu", "d_ff": 5, "bias": True}}]),
    "post-norm": model(norm={"kind": "layer"}, block={"placement": "post"}),
    "sandwich-offset": model(norm={"kind": "rms", "offset": 1.0}, block={"placement": "sandwich"}),
    "layer-norm-without-bias": model(norm={"kind": "layer", "bias": False, "eps": 0.1}, final_norm=False),
    "geglu": model(mlp={"kind": "geglu", "d_ff": 7, "bias": True}),
    "geglu-tanh": model(mlp={"kind": "geglu_tanh", "d_ff": 7}),
    "gelu": model(mlp={"kind": "gelu", "d_ff": 7}),
    "gelu-tanh": model(mlp={"kind": "gelu_tanh", "d_ff": 7}),
    "silu": model(mlp={"kind": "silu", "d_ff": 7}),
    "moe": model(mlp=MOE),
    "moe-as-they-are": model(mlp={**MOE, "norm_topk": False, "expert_kind": "relu", "bias": True, "top_k": 1}),
    "encoder": model("encoder", norm={"kind": "layer"}, position={"kind": "learned", "max_positions": 9}),
    "encoder-t5": model("encoder", position={"kind": "t5", "num_buckets": 8, "max_distance": 6}),
    "encoder-alibi-window": model("encoder", position={"kind": "alibi"}, attention={**ATTENTION, "window": [2, 1]}),
    "original": ORIGINAL,
    "original-untied": {**ORIGINAL, "tie_embeddings": False, "final_norm": True},
    "encoder-decoder-t5": model(
        "encoder_decoder",
        num_encoder_layers=1,
        attention={**ATTENTION, "scale": 1.0},
        position={"kind": "t5", "num_buckets": 8, "max_distance": 6},
        mlp={"kind": "geglu_tanh", "d_ff": 7},
    ),
    "encoder-decoder-rope": model(
        "encoder_decoder",
        attention={**ATTENTION, "qk_norm": True, "sinks": True, "window": 3},
        position={"kind": "rope"},
        block={"placement": "sandwich"},
    ),
    "encoder-decoder-learned": model("encoder_decoder", position={"kind": "learned", "max_positions": 9}),
}


def weights_of(config: Config, seed: int = 0) -> dict[str, np.ndarray]:
    """Weights that keep the stream of size one: matrices by their fan-in, norms near their neutral value."""
    found = {}
    neutral = 1.0 - config.get("norm", {}).get("offset", 0.0)
    for name, shape in parameter_shapes(config).items():
        rng = np.random.default_rng(zlib.crc32(name.encode()) + seed)
        array = rng.normal(size=shape)
        if "norm" in name:
            found[name] = array / 10 + (neutral if name.endswith("weight") else 0.0)
        elif "proj.weight" in name:
            found[name] = array / np.sqrt(shape[-1])
        else:
            found[name] = array / 2 if name.endswith("bias") else array
    return found


def tokens_of(config: Config, B: int = 2, T: int = 6, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, config["vocab_size"], size=(B, T))
