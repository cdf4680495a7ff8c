"""Gradients through models: against complex steps and closed forms, and what they say about norms and length."""

from __future__ import annotations

import math

import numpy as np
import pytest

from mlx_tx_conformance.oracle.model_gradients import (
    cross_entropy,
    derivative,
    input_gradient,
    loss,
    weight_gradient,
)
from mlx_tx_conformance.oracle.models import decoder, encoder
from mlx_tx_conformance.oracle.record import Recorder

from .model_cases import MODERN, model, tokens_of, weights_of


def test_cross_entropy_by_hand():
    logits = np.log([[[1.0, 3.0], [2.0, 2.0]], [[1.0, 1.0], [9.0, 1.0]]])
    losses = [-math.log(3 / 4), -math.log(1 / 2), -math.log(1 / 2), -math.log(0.1)]
    targets = [[1, 0], [1, 1]]
    assert cross_entropy(logits, targets) == pytest.approx(sum(losses) / 4, rel=1e-14)
    counted = cross_entropy(logits, targets, [[True, False], [False, True]])
    assert counted == pytest.approx((losses[0] + losses[3]) / 2, rel=1e-14)


def test_the_stencil_is_exact_to_the_fourth_order():
    assert derivative(lambda h: 3 + 2 * h - 5 * h**2 + 7 * h**3 + h**4, 0.5) == pytest.approx(2, rel=1e-13)
    assert derivative(math.exp, 1e-3) == pytest.approx(1, rel=1e-11)


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def test_weight_gradient_of_an_untied_head_is_its_closed_form():
    """dL / dW = (softmax - onehot)^T x / number of tokens."""
    config = {**MODERN, "tie_embeddings": False}
    weights, tokens, targets = weights_of(config), tokens_of(config), tokens_of(config, seed=1)
    stages = decoder(config, weights, tokens)
    wrong = softmax(stages["logits"]) - np.eye(13)[targets]
    expected = np.einsum("btv,btd->vd", wrong, stages["norm"]) / tokens.size
    entries = [("lm_head.weight", (v, d)) for v, d in ((0, 0), (12, 11), (int(targets[0, 0]), 3), (5, 7))]
    found = weight_gradient(config, weights, tokens, targets, entries)
    np.testing.assert_allclose(found, [expected[index] for _, index in entries], rtol=1e-9, atol=1e-12)


def test_weight_gradients_add_up_to_the_change_of_the_loss():
    """Moving every weight along one direction changes the loss by the sum of the gradients' entries."""
    config = model(num_layers=1, d_model=4, vocab_size=5, attention={"num_heads": 2}, mlp={"kind": "gelu", "d_ff": 3})
    weights, tokens, targets = weights_of(config), tokens_of(config), tokens_of(config, seed=1)
    entries = [(name, index) for name, w in weights.items() for index in np.ndindex(w.shape)]
    gradient = weight_gradient(config, weights, tokens, targets, entries)
    rng = np.random.default_rng(2)
    moves = {name: rng.normal(size=w.shape) for name, w in weights.items()}
    along = derivative(lambda h: loss(config, {n: w + h * moves[n] for n, w in weights.items()}, tokens, targets), 1e-4)
    assert sum(g * moves[n][i] for g, (n, i) in zip(gradient, entries, strict=True)) == pytest.approx(along, rel=1e-7)


def test_weights_that_nothing_used_have_no_gradient():
    config = model(position={"kind": "learned", "max_positions": 9}, tie_embeddings=False)
    weights, tokens = weights_of(config), np.array([[1, 2, 3]])
    entries = [("embed_tokens.weight", (row, 0)) for row in (0, 1, 12)]
    entries += [("position.weight", (row, 0)) for row in (0, 2, 3, 8)]
    gradient = weight_gradient(config, weights, tokens, tokens, entries)
    assert [bool(g) for g in gradient] == [False, True, False, True, True, False, False]


@pytest.mark.parametrize("kind", ["decoder", "encoder"])
def test_input_gradient_is_each_directional_derivative(kind):
    config = {**MODERN, "kind": kind}
    rng = np.random.default_rng(4)
    x, cotangent = rng.normal(size=(2, 5, 12))
    gradient = input_gradient(config, weights_of(config), x, cotangent)
    assert gradient.shape == (5, 12)
    np.testing.assert_allclose(
        input_gradient(config, weights_of(config), x, cotangent, at=[4, 1]), gradient[[4, 1]], rtol=1e-8
    )
    run = {"decoder": decoder, "encoder": encoder}[kind]
    direction = rng.normal(size=(5, 12))

    def along(h: float) -> float:
        record = Recorder({"embed": (x + h * direction)[None]})
        return float((run(config, weights_of(config), np.zeros((1, 5), int), record=record)["norm"] * cotangent).sum())

    assert (gradient * direction).sum() == pytest.approx(derivative(along, 1e-4), rel=1e-8)


def test_causality_in_the_gradient():
    """An output of one position has no gradient to later ones, and has one to all before."""
    rng = np.random.default_rng(4)
    cotangent = np.zeros((5, 12))
    cotangent[2] = 1
    gradient = input_gradient(MODERN, weights_of(MODERN), rng.normal(size=(5, 12)), cotangent)
    assert not gradient[3:].any()
    assert (np.abs(gradient[:3]).max(axis=1) > 1e-6).all()


def depth_norms(placement: str, depths: tuple[int, ...]) -> list[float]:
    rng = np.random.default_rng(7)
    x, cotangent = rng.normal(size=(2, 3, 8))
    norms = []
    for depth in depths:
        config = model(
            num_layers=depth,
            d_model=8,
            attention={"num_heads": 2},
            mlp={"kind": "gelu", "d_ff": 16},
            norm={"kind": "layer"},
            block={"placement": placement},
            final_norm=False,
        )
        of = f"layers.{depth - 1}.{'mlp_norm' if placement == 'post' else 'mlp.residual'}"
        norms.append(float(np.linalg.norm(input_gradient(config, weights_of(config), x, cotangent, of=of))))
    return norms


def test_the_gradient_at_the_input_with_depth():
    """It stays near its size through pre-norm blocks and fades through post-norm ones."""
    pre, post = (depth_norms(placement, (1, 16, 32)) for placement in ("pre", "post"))
    assert max(pre) / min(pre) < 4
    assert post[2] < 0.2 * post[1] < 0.04 * post[0]


def test_the_gradient_to_the_first_token_does_not_vanish_with_length():
    """From the last output to the first input: attention is one step away at any length."""
    norms = []
    config = model(num_layers=1)
    for T in (4, 16, 64):
        x = np.random.default_rng(11).normal(size=(T, 12))
        cotangent = np.zeros((T, 12))
        cotangent[-1] = 1
        norms.append(np.linalg.norm(input_gradient(config, weights_of(config), x, cotangent, at=[0])) * T)
    # One of T tokens has about 1 / T of the weight.
    assert max(norms) / min(norms) < 8
