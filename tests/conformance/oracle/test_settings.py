"""Reading a configuration: defaults, overrides by layer, and what is refused."""

from __future__ import annotations

import math

import pytest

from mlx_tx_conformance.oracle.settings import MLP, Norm, Position, read

SMALL = {
    "kind": "decoder",
    "vocab_size": 11,
    "d_model": 12,
    "num_layers": 3,
    "attention": {"num_heads": 4},
    "mlp": {"kind": "swiglu", "d_ff": 20},
}


def test_defaults():
    model = read(SMALL)
    a = model.attention
    assert (a.num_heads, a.num_kv_heads, a.head_dim, a.value_dim) == (4, 4, 3, 3)
    assert (a.bias, a.out_bias, a.scale, a.softcap, a.qk_norm, a.sinks, a.window) == (
        False,
        False,
        *[None] * 2,
        *[False] * 2,
        None,
    )
    assert model.position == Position(kind="none")
    assert model.norm == Norm(kind="rms", eps=1e-5, bias=False, offset=0.0)
    assert model.mlp == MLP(kind="swiglu", d_ff=20)
    assert (model.placement, model.final_norm, model.causal, model.tie_embeddings) == ("pre", True, True, False)
    assert (model.embedding_scale, model.final_softcap, model.num_encoder_layers) == (1.0, None, 3)


def test_defaults_that_depend_on_other_fields():
    assert read({**SMALL, "kind": "encoder"}).causal is False
    assert read({**SMALL, "kind": "encoder_decoder"}).causal is True
    assert read({**SMALL, "block": {"placement": "post"}}).final_norm is False
    assert read({**SMALL, "block": {"placement": "post"}, "final_norm": True}).final_norm is True
    assert read({**SMALL, "block": {"placement": "sandwich"}}).final_norm is True
    assert read({**SMALL, "norm": {"kind": "layer"}}).norm.bias is True
    assert read({**SMALL, "norm": {"kind": "layer", "bias": False}}).norm.bias is False
    assert read({**SMALL, "embedding_scale": "sqrt"}).embedding_scale == math.sqrt(12)
    wide = read({**SMALL, "attention": {"num_heads": 4, "num_kv_heads": 2, "head_dim": 8}}).attention
    assert (wide.num_kv_heads, wide.head_dim, wide.value_dim) == (2, 8, 8)


def test_none_is_absent():
    absent = {"causal": None, "final_norm": None, "position": None, "norm": None, "num_encoder_layers": None}
    full = {**SMALL, **absent, "attention": {"num_heads": 4, "head_dim": None, "window": None}}
    assert read(full) == read(SMALL)


def test_layers_follow_the_pattern():
    local = {"window": 4, "position": {"kind": "rope", "base": 100.0}}
    pattern = [local, {}, {"mlp": {"kind": "relu", "d_ff": 5}}]
    model = read({**SMALL, "position": {"kind": "rope"}, "layers": pattern})
    layers = model.layers(5)
    assert [layer.attention.window for layer in layers] == [4, None, None, 4, None]
    assert [layer.position.base for layer in layers] == [100.0, 10000.0, 10000.0, 100.0, 10000.0]
    assert [layer.mlp.d_ff for layer in layers] == [20, 20, 5, 20, 20]
    assert all(layer.attention.num_heads == 4 for layer in layers)
    assert read(SMALL).layers(2)[0] == read(SMALL).layers(2)[1]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kind": "decoders"}, "kind must be one of decoder, encoder, encoder_decoder; got 'decoders'"),
        ({"kind": None}, "kind must be one of decoder, encoder, encoder_decoder; got None"),
        ({"windw": 3}, "windw is not a field; known: attention, block, causal"),
        ({"attention": {"num_heads": 4, "heads": 2}}, "attention.heads is not a field"),
        ({"position": {"kind": "rotary"}}, "position.kind must be one of none, sinusoidal, .*; got 'rotary'"),
        ({"norm": {"kind": "batch"}}, "norm.kind must be one of rms, layer; got 'batch'"),
        ({"mlp": {"kind": "tanh", "d_ff": 3}}, "mlp.kind must be one of relu, .*moe; got 'tanh'"),
        ({"mlp": {"kind": "moe", "d_ff": 3, "expert_kind": "moe"}}, "mlp.expert_kind must be one of"),
        ({"position": {"kind": "learned"}}, "position.max_positions must be given for kind 'learned'; got None"),
        ({"mlp": {"kind": "moe", "d_ff": 3, "num_experts": 4}}, "mlp.top_k must lie in 1..num_experts = 4; got 0"),
        ({"mlp": {"kind": "moe", "d_ff": 3, "num_experts": 4, "top_k": 5}}, "mlp.top_k must lie in 1..num_experts"),
        ({"mlp": {"kind": "moe", "d_ff": 3, "top_k": 1}}, "mlp.top_k must lie in 1..num_experts = 0; got 1"),
        ({"block": {"placement": "middle"}}, "block.placement must be one of pre, post, sandwich; got 'middle'"),
        ({"block": {"place": "pre"}}, "block.place is not a field"),
        ({"layers": [{"windows": 3}]}, "layers.windows is not a field"),
        ({"layers": [{"position": {"kind": "learned"}}]}, "layers.position.kind must be one of none, rope, alibi, t5"),
    ],
    ids=str,
)
def test_refuses(change, message):
    with pytest.raises(ValueError, match=rf"\[oracle\] {message}"):
        read({**SMALL, **change})
