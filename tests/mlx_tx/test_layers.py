"""The attention layer: projections, heads, and what goes on to the attention function."""

import mlx.core as mx
import numpy as np
import pytest
from mlx.utils import tree_flatten

import mlx_tx
from mlx_tx import MultiHeadAttention
from tests.mlx_tx import reference
from tests.mlx_tx.problems import normal
from tests.mlx_tx.reference import assert_close, to_numpy


def written_out(layer, x, memory=None, rope=None, **options):
    """The layer in float64, head by head, from its parameters."""
    p = {name: to_numpy(w).astype(np.float64) for name, w in tree_flatten(layer.parameters())}
    x = to_numpy(x).astype(np.float64)
    source = x if memory is None else to_numpy(memory).astype(np.float64)

    def projected(name, value, heads):
        y = value @ p[f"{name}.weight"].T + p.get(f"{name}.bias", 0.0)
        return np.stack(np.split(y, heads, axis=-1), axis=1)

    q = projected("q_proj", x, layer.num_heads)
    k = projected("k_proj", source, layer.num_kv_heads)
    v = projected("v_proj", source, layer.num_kv_heads)
    if rope is not None:
        q, k = rope(q), rope(k)
    out, _ = reference.attention(q, k, v, **options)
    return np.concatenate(list(out.swapaxes(0, 1)), axis=-1) @ p["o_proj.weight"].T + p.get("o_proj.bias", 0.0)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("kv_heads", [1, 2, 4])
def test_self_attention_equals_the_formula_head_by_head(bias, kv_heads):
    layer = MultiHeadAttention(16, 4, kv_heads, bias=bias)
    x = normal(np.random.default_rng(0), 2, 7, 16)
    assert_close(layer(x, causal=True), written_out(layer, x, causal=True))


def test_cross_attention_takes_keys_and_values_from_the_memory():
    layer = MultiHeadAttention(16, 4, 2, memory_dim=10, head_dim=6)
    rng = np.random.default_rng(0)
    x, memory = normal(rng, 2, 7, 16), normal(rng, 2, 5, 10)
    assert_close(layer(x, memory, kv_lengths=[5, 3]), written_out(layer, x, memory, kv_lengths=[5, 3]))


@pytest.mark.parametrize("traditional", [False, True])
def test_rope_turns_queries_and_keys_of_self_attention_only(traditional):
    layer = MultiHeadAttention(16, 4, 2, rope_base=100.0, rope_traditional=traditional)
    rng = np.random.default_rng(0)
    x, memory = normal(rng, 2, 7, 16), normal(rng, 2, 5, 16)

    def turned(y):
        return to_numpy(mlx_tx.rope(mx.array(y.astype(np.float32)), offset=3, base=100.0, traditional=traditional))

    assert_close(layer(x, offset=3, causal=True), written_out(layer, x, rope=turned, causal=True))
    assert_close(layer(x, memory), written_out(layer, x, memory))


def test_parameters_have_the_names_and_shapes_of_checkpoints():
    layer = MultiHeadAttention(16, 4, 2, bias=True, head_dim=8, rope_base=10000.0)
    assert {name: w.shape for name, w in tree_flatten(layer.parameters())} == {
        "q_proj.weight": (32, 16),
        "q_proj.bias": (32,),
        "k_proj.weight": (16, 16),
        "k_proj.bias": (16,),
        "v_proj.weight": (16, 16),
        "v_proj.bias": (16,),
        "o_proj.weight": (16, 32),
        "o_proj.bias": (16,),
    }
    assert not [name for name, _ in tree_flatten(MultiHeadAttention(16, 4).parameters()) if name.endswith("bias")]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((16, 4, 3), "num_heads must be a multiple of num_kv_heads; got 4 and 3"),
        ((16, 0), "num_heads must be a multiple of num_kv_heads; got 0 and 0"),
        ((16, 3), "d_model must be a multiple of num_heads where head_dim is not given; got 16 and 3"),
    ],
)
def test_sizes_that_do_not_divide_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        MultiHeadAttention(*arguments)
