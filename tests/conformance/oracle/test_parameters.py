"""The parameters of a configuration: names, shapes, and what has none."""

from __future__ import annotations

import numpy as np
import pytest

from mlx_tx_conformance.oracle.parameters import check_parameters, parameter_shapes

from .model_cases import CONFIGS, MODERN, ORIGINAL, model, weights_of


def test_modern():
    config = {**MODERN, "num_layers": 1, "tie_embeddings": False}
    assert parameter_shapes(config) == {
        "embed_tokens.weight": (13, 12),
        "layers.0.input_layernorm.weight": (12,),
        "layers.0.self_attn.q_proj.weight": (16, 12),
        "layers.0.self_attn.k_proj.weight": (8, 12),
        "layers.0.self_attn.v_proj.weight": (8, 12),
        "layers.0.self_attn.o_proj.weight": (12, 16),
        "layers.0.post_attention_layernorm.weight": (12,),
        "layers.0.mlp.gate_proj.weight": (10, 12),
        "layers.0.mlp.up_proj.weight": (10, 12),
        "layers.0.mlp.down_proj.weight": (12, 10),
        "norm.weight": (12,),
        "lm_head.weight": (13, 12),
    }


def test_original():
    shapes = parameter_shapes({**ORIGINAL, "num_layers": 1, "num_encoder_layers": 1})
    assert [name for name in shapes if name.startswith("encoder.layers.0.")] == [
        f"encoder.layers.0.{name}"
        for name in (
            "input_layernorm.weight",
            "input_layernorm.bias",
            *(f"self_attn.{x}_proj.weight" for x in "qkvo"),
            "post_attention_layernorm.weight",
            "post_attention_layernorm.bias",
            "mlp.up_proj.weight",
            "mlp.up_proj.bias",
            "mlp.down_proj.weight",
            "mlp.down_proj.bias",
        )
    ]
    encoder = {name.removeprefix("encoder.") for name in shapes if name.startswith("encoder.")}
    decoder = {name.removeprefix("decoder.") for name in shapes if name.startswith("decoder.")}
    cross = {name for name in decoder if "cross_attn" in name}
    assert decoder - cross == encoder
    assert {name.removeprefix("layers.0.") for name in cross} == {
        *(f"cross_attn.{x}_proj.weight" for x in "qkvo"),
        "cross_attn_layernorm.weight",
        "cross_attn_layernorm.bias",
    }
    assert [name for name in shapes if not name.startswith(("encoder.", "decoder."))] == ["embed_tokens.weight"]


@pytest.mark.parametrize("name", [n for n, c in CONFIGS.items() if c["kind"] != "encoder_decoder"])
def test_a_single_stack_has_no_cross_attention(name):
    assert not any("cross" in parameter for parameter in parameter_shapes(CONFIGS[name]))


@pytest.mark.parametrize("kind", ["sinusoidal", "rope", "alibi"])
def test_formulas_have_no_parameters(kind):
    assert parameter_shapes(model(position={"kind": kind})) == parameter_shapes(model())


def test_tables_of_positions():
    added = [
        {k: v for k, v in parameter_shapes(model(position=position)).items() if k not in parameter_shapes(model())}
        for position in ({"kind": "learned", "max_positions": 9}, {"kind": "t5", "num_buckets": 6})
    ]
    assert added == [{"position.weight": (9, 12)}, {"relative_bias.weight": (6, 4)}]


def test_every_option_of_attention_and_mlp():
    options = {"num_heads": 3, "head_dim": 2, "value_dim": 5, "bias": True, "out_bias": True}
    shapes = parameter_shapes(
        model(
            attention={**options, "qk_norm": True, "sinks": True},
            mlp={"kind": "moe", "d_ff": 6, "num_experts": 4, "top_k": 2, "bias": True},
            block={"placement": "sandwich"},
        )
    )
    expected = {
        "self_attn.q_proj.weight": (6, 12),
        "self_attn.q_proj.bias": (6,),
        "self_attn.v_proj.weight": (15, 12),
        "self_attn.o_proj.weight": (12, 15),
        "self_attn.o_proj.bias": (12,),
        "self_attn.q_norm.weight": (2,),
        "self_attn.k_norm.weight": (2,),
        "self_attn.sinks": (3,),
        "post_self_attn_norm.weight": (12,),
        "post_mlp_norm.weight": (12,),
        "mlp.router.weight": (4, 12),
        "mlp.experts.gate_proj.weight": (4, 6, 12),
        "mlp.experts.gate_proj.bias": (4, 6),
        "mlp.experts.down_proj.weight": (4, 12, 6),
        "mlp.experts.down_proj.bias": (4, 12),
    }
    assert {name: shapes.get(f"layers.1.{name}") for name in expected} == expected


def test_checks_names_and_shapes():
    weights = weights_of(MODERN)
    arrays = check_parameters(MODERN, {name: w.astype(np.float32) for name, w in weights.items()})
    assert list(arrays) == list(weights)
    assert all(array.dtype == np.float64 for array in arrays.values())
    del weights["norm.weight"]
    with pytest.raises(ValueError, match=r"\[oracle\] weights must .* missing \['norm.weight'\], unknown \[\]"):
        check_parameters(MODERN, weights)
    with pytest.raises(ValueError, match=r"\[oracle\] norm.weight must have shape \(12,\); got \(11,\)"):
        check_parameters(MODERN, {**weights, "norm.weight": np.ones(11)})
