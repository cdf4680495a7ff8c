"""Activations, position-wise networks and expert routing against loops."""

from __future__ import annotations

import math

import numpy as np
import pytest

from mlx_tx_conformance.oracle.mlp import GATED, KINDS, gelu, gelu_tanh, mixture, mlp, moe, relu, route, silu

ACTIVATIONS = {
    "relu": lambda x: x if x > 0 else 0.0,
    "gelu": lambda x: x * (1 + math.erf(x / math.sqrt(2))) / 2,
    "gelu_tanh": lambda x: 0.5 * x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    "silu": lambda x: x / (1 + math.exp(-x)),
}
OF_KIND = {
    **{kind: kind for kind in ACTIVATIONS},
    "swiglu": "silu",
    "geglu": "gelu",
    "geglu_tanh": "gelu_tanh",
}

D, F, E = 3, 5, 4


def weights(kind: str, bias: bool = False, front: tuple[int, ...] = ()) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(3)
    shapes = {"up": (F, D), "down": (D, F)} | ({"gate": (F, D)} if kind in GATED else {})
    arrays = {f"{name}_proj.weight": rng.normal(size=(*front, *shape)) for name, shape in shapes.items()}
    if bias:
        arrays |= {f"{name}_proj.bias": rng.normal(size=(*front, shape[0])) for name, shape in shapes.items()}
    return arrays


def naive(x, arrays, kind):
    """One token: [D] to (hidden [F], out [D]), with sums written out."""

    def product(name, v):
        w, b = arrays[f"{name}_proj.weight"], arrays.get(f"{name}_proj.bias")
        return [
            sum(w[i, j] * v[j] for j in range(w.shape[1])) + (0.0 if b is None else b[i]) for i in range(w.shape[0])
        ]

    act, up = ACTIVATIONS[OF_KIND[kind]], product("up", x)
    gate = product("gate", x) if "gate_proj.weight" in arrays else None
    hidden = [act(u) for u in up] if gate is None else [act(g) * u for g, u in zip(gate, up, strict=True)]
    return hidden, product("down", hidden)


@pytest.mark.parametrize("name", list(ACTIVATIONS))
def test_activations(name):
    x = np.array([-3.0, -1.0, -0.5, 0.0, 1e-8, 0.5, 1.0, 3.0, 20.0])
    ours = {"relu": relu, "gelu": gelu, "gelu_tanh": gelu_tanh, "silu": silu}[name](x)
    np.testing.assert_allclose(ours, [ACTIVATIONS[name](v) for v in x.tolist()], rtol=1e-12, atol=1e-300)


def test_activations_by_hand():
    assert relu([-1.0, 2.0]).tolist() == [0, 2]
    assert gelu([1.0])[0] == pytest.approx(0.8413447460685429, rel=1e-14)
    assert silu([1.0])[0] == pytest.approx(0.7310585786300049, rel=1e-14)
    assert gelu_tanh([1.0])[0] == pytest.approx(0.8411919906082768, rel=1e-12)


def test_left_tails_are_accurate_and_nothing_overflows():
    # x Phi(x) at -8 is -8 * 6.22096e-16, where 1 + erf would have lost every digit.
    assert gelu([-8.0])[0] == pytest.approx(-8 * 6.220960574271785e-16, rel=1e-12)
    assert silu([-800.0, 800.0]).tolist() == [pytest.approx(-800 * math.exp(-800), abs=1e-300), 800]
    for activation in (gelu, gelu_tanh, silu):
        assert activation([-1e30, 1e30]).tolist() == [0, 1e30]


@pytest.mark.parametrize("bias", [False, True], ids=["no-bias", "bias"])
@pytest.mark.parametrize("kind", KINDS)
def test_mlp(kind, bias):
    x = np.random.default_rng(1).normal(size=(2, 4, D))
    arrays = weights(kind, bias)
    stages = mlp(x, arrays, kind)
    for b, t in np.ndindex(2, 4):
        hidden, out = naive(x[b, t], arrays, kind)
        np.testing.assert_allclose(stages["hidden"][b, t], hidden, rtol=1e-11, atol=1e-13)
        np.testing.assert_allclose(stages["out"][b, t], out, rtol=1e-11, atol=1e-13)


def test_kinds_differ():
    x, arrays = np.random.default_rng(1).normal(size=(4, D)), weights("swiglu")
    outs = [mlp(x, arrays, kind)["out"] for kind in KINDS]
    assert all(not np.allclose(a, b, atol=1e-6) for n, a in enumerate(outs) for b in outs[:n])


def test_mlp_refuses_unknown_kinds():
    with pytest.raises(ValueError, match=r"\[mlp\] kind must be one of relu, .*geglu_tanh; got 'tanh'"):
        mlp(np.zeros((1, D)), weights("relu"), "tanh")


def test_empty_batches():
    assert mlp(np.zeros((0, D)), weights("geglu"), "geglu")["out"].shape == (0, D)


class TestRouting:
    def test_by_hand(self):
        logits = np.log([[1.0, 4.0, 2.0, 3.0]])
        chosen, shares = route(logits, 2, norm_topk=False)
        assert chosen.tolist() == [[1, 3]]
        np.testing.assert_allclose(shares, [[0, 0.4, 0, 0.3]], rtol=1e-14)
        _, shares = route(logits, 2)
        np.testing.assert_allclose(shares, [[0, 4 / 7, 0, 3 / 7]], rtol=1e-14)

    def test_all_experts_are_the_softmax(self):
        logits = np.random.default_rng(0).normal(size=(5, E))
        expected = np.exp(logits) / np.exp(logits).sum(axis=-1, keepdims=True)
        for norm_topk in (True, False):
            np.testing.assert_allclose(route(logits, E, norm_topk=norm_topk)[1], expected, rtol=1e-13)

    def test_one_expert_with_renormalisation_takes_all(self):
        assert route([[0.0, 2.0, 1.0]], 1)[1].tolist() == [[0, 1, 0]]

    @pytest.mark.parametrize(
        ("logits", "expected"),
        [([1.0, 1.0, 1.0, 1.0], [0, 1]), ([0.0, 2.0, 1.0, 2.0], [1, 3]), ([3.0, 0.0, 1.0, 1.0], [0, 2])],
        ids=str,
    )
    def test_ties_go_to_the_lower_index(self, logits, expected):
        assert route(logits, 2)[0].tolist() == expected

    def test_ties_among_many_experts(self):
        logits = np.zeros(128)
        logits[100] = 1.0
        assert route(logits, 5)[0].tolist() == [100, 0, 1, 2, 3]

    @pytest.mark.parametrize("top_k", [0, E + 1])
    def test_refuses(self, top_k):
        with pytest.raises(ValueError, match=rf"\[route\] top_k must lie in 1..{E}; got {top_k}"):
            route(np.zeros(E), top_k)


@pytest.mark.parametrize("norm_topk", [True, False], ids=["renormalised", "as-they-are"])
@pytest.mark.parametrize("kind", ["swiglu", "relu"])
def test_moe(kind, norm_topk):
    x = np.random.default_rng(2).normal(size=(2, 3, D))
    experts = weights(kind, bias=True, front=(E,))
    router = np.random.default_rng(5).normal(size=(E, D))
    arrays = {"router.weight": router, **{f"experts.{name}": w for name, w in experts.items()}}
    stages = moe(x, arrays, top_k=2, norm_topk=norm_topk, expert_kind=kind)
    for b, t in np.ndindex(2, 3):
        scores = [sum(router[e] * x[b, t]) for e in range(E)]
        chances = [math.exp(s) / sum(map(math.exp, scores)) for s in scores]
        best = sorted(range(E), key=lambda e: -chances[e])[:2]
        total = sum(chances[e] for e in best) if norm_topk else 1.0
        expected = sum(
            chances[e] / total * np.array(naive(x[b, t], {n: w[e] for n, w in experts.items()}, kind)[1]) for e in best
        )
        np.testing.assert_allclose(stages["router"][b, t], scores, rtol=1e-12)
        np.testing.assert_allclose(stages["out"][b, t], expected, rtol=1e-11, atol=1e-13)
        assert sorted(np.flatnonzero(stages["routing"][b, t])) == sorted(best)


def test_an_expert_that_is_not_chosen_does_not_run():
    experts = weights("relu", front=(2,))
    experts["up_proj.weight"][1] = np.nan
    assert np.isfinite(mixture(np.ones((1, D)), experts, [[1.0, 0.0]], "relu")).all()
    assert np.isnan(mixture(np.ones((1, D)), experts, [[0.5, 0.5]], "relu")).all()
