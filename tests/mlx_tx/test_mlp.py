"""The position-wise networks and the mixture of experts (MLP-1, MLP-2)."""

import mlx.core as mx
import numpy as np
import pytest
from mlx.utils import tree_flatten

from mlx_tx.config import MLPConfig
from mlx_tx.mlp import ACTIVATIONS, MoE, make_mlp, route
from mlx_tx_conformance.oracle import mlp as oracle

PLAIN = {"kind": "relu", "d_ff": 24}
MIXED = {"kind": "moe", "d_ff": 24, "num_experts": 5, "top_k": 2}


def made(bias=False, **config):
    mx.random.seed(11)
    network = make_mlp(16, MLPConfig(**{**PLAIN, **config}, bias=bias))
    return network, {name: np.array(w) for name, w in tree_flatten(network.parameters())}


@pytest.mark.parametrize("kind", ["relu", "gelu", "gelu_tanh", "silu", "swiglu", "geglu", "geglu_tanh"])
@pytest.mark.parametrize("bias", [False, True])
def test_equals_the_oracle(kind, bias):
    network, weights = made(kind=kind, bias=bias)
    x = np.random.default_rng(0).normal(size=(2, 5, 16)).astype(np.float32) * 3
    expected = oracle.mlp(x, weights, kind)["out"]
    np.testing.assert_allclose(np.array(network(mx.array(x))), expected, rtol=0, atol=2e-6 * np.abs(expected).max())


@pytest.mark.parametrize("name", ["relu", "gelu", "gelu_tanh", "silu"])
def test_activations_equal_the_oracle_and_stay_finite(name):
    x = np.concatenate([np.linspace(-9, 9, 181), [-1e4, 1e4, -3e38, 3e38]]).astype(np.float32)
    got = np.array(ACTIVATIONS[name](mx.array(x)))[:-2]
    np.testing.assert_allclose(got, getattr(oracle, name)(x)[:-2], rtol=3e-7, atol=3e-7)
    assert np.isfinite(np.array(ACTIVATIONS[name](mx.array(x[:-2])))).all()


def test_exact_and_tanh_gelu_differ():
    x = mx.array([-2.0])
    assert abs((ACTIVATIONS["gelu"](x) - ACTIVATIONS["gelu_tanh"](x)).item()) > 5e-5


@pytest.mark.parametrize("dtype", [mx.float16, mx.bfloat16])
def test_the_activation_rounds_half_numbers_once(dtype):
    network, _ = made(kind="swiglu")
    network.set_dtype(dtype)
    x = mx.random.normal((3, 16)).astype(dtype)
    gate, up = network.gate_proj(x), network.up_proj(x)
    hidden = (ACTIVATIONS["silu"](gate.astype(mx.float32)) * up.astype(mx.float32)).astype(dtype)
    assert mx.array_equal(network(x), network.down_proj(hidden)).item()


@pytest.mark.parametrize("expert_kind", ["swiglu", "gelu"])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("norm_topk", [False, True])
@pytest.mark.parametrize("top_k", [1, 2, 5])
def test_a_mixture_equals_the_oracle(expert_kind, bias, norm_topk, top_k):
    network, weights = made(**{**MIXED, "expert_kind": expert_kind, "norm_topk": norm_topk, "top_k": top_k}, bias=bias)
    x = np.random.default_rng(1).normal(size=(2, 7, 16)).astype(np.float32)
    expected = oracle.moe(x, weights, top_k=top_k, norm_topk=norm_topk, expert_kind=expert_kind)["out"]
    np.testing.assert_allclose(np.array(network(mx.array(x))), expected, rtol=0, atol=2e-6 * np.abs(expected).max())


def test_of_equal_logits_the_lower_index_is_chosen():
    chosen, weights = route(mx.array([[1.0, 2, 2, 3, 2], [0, 0, 0, 0, 0]]), 3)
    assert chosen.tolist() == [[3, 1, 2], [0, 1, 2]]
    np.testing.assert_allclose(np.array(weights).sum(-1), 1, rtol=1e-6)


def test_routing_of_many_random_and_tied_rows_equals_the_oracle():
    logits = np.random.default_rng(2).integers(-2, 3, (200, 6)).astype(np.float32)
    chosen, weights = route(mx.array(logits), 4, norm_topk=False)
    expected, all_weights = oracle.route(logits, 4, norm_topk=False)
    np.testing.assert_array_equal(np.array(chosen), expected)
    np.testing.assert_allclose(np.array(weights), np.take_along_axis(all_weights, expected, -1), rtol=1e-5)


def test_experts_that_are_not_chosen_do_not_run():
    network, _ = made(**MIXED)
    x = mx.random.normal((1, 1, 16))
    clean = network(x)
    chosen = route(network.router(x), 2)[0].flatten().tolist()
    spoilt = mx.array([float("nan") if e not in chosen else 0.0 for e in range(5)])
    for linear in (network.experts.gate_proj, network.experts.up_proj, network.experts.down_proj):
        linear.weight = linear.weight + spoilt[:, None, None]
    assert mx.array_equal(network(x), clean).item()


def test_gradients_reach_the_router_and_the_chosen_experts_only():
    network, _ = made(**MIXED)
    x = mx.random.normal((1, 1, 16))
    chosen = set(route(network.router(x), 2)[0].flatten().tolist())
    gradients = dict(tree_flatten(mx.grad(lambda p: (network.update(p), network(x))[1].sum())(network.parameters())))
    assert mx.abs(gradients["router.weight"]).max().item() > 0
    touched = {e for e in range(5) if mx.abs(gradients["experts.up_proj.weight"][e]).max().item() > 0}
    assert touched == chosen


@pytest.mark.parametrize("config", [PLAIN, MIXED], ids=["plain", "mixture"])
def test_positions_do_not_see_one_another(config):
    network, _ = made(**config)
    x = mx.random.normal((1, 6, 16))
    order = mx.array([3, 0, 5, 1, 2, 4])
    np.testing.assert_allclose(np.array(network(x[:, order])), np.array(network(x)[:, order]), rtol=0, atol=1e-6)


def test_top_k_beyond_the_experts_is_refused():
    with pytest.raises(ValueError, match=r"top_k must be in 1\.\.3; got 4"):
        route(mx.zeros((1, 3)), 4)
    assert isinstance(made(**MIXED)[0], MoE)
