"""The composed path: every transformation of MLX, to any order."""

import mlx.core as mx
import numpy as np
import pytest

import mlx_tx
from tests.mlx_tx import reference
from tests.mlx_tx.problems import normal
from tests.mlx_tx.reference import assert_close, to_numpy

attend = mlx_tx.scaled_dot_product_attention

OPTIONS = {
    "plain": {},
    "causal": {"causal": True},
    "empty-rows": {"causal": True, "q_offset": -2},
    "softcap": {"softcap": 2.0},
    "mask": {"mask": mx.array(np.random.default_rng(0).random((5, 7)) < 0.6)},
    "sinks": {"sinks": mx.array([0.3, -1.0])},
    "lengths": {"kv_lengths": [4]},
    "alibi": {"alibi": True},
}


def problem(form):
    rng = np.random.default_rng(1)
    q, k, v = normal(rng, 1, 2, 5, 4), normal(rng, 1, 1, 7, 4), normal(rng, 1, 1, 7, 4)
    weights = normal(rng, 1, 2, 5, 4)
    return lambda q: (attend(q, k, v, path="composed", **OPTIONS[form]) * weights).sum(), q, (k, v, weights)


@pytest.mark.parametrize("form", OPTIONS)
def test_second_derivative_equals_differences_of_the_reference(form):
    loss, q, (k, v, weights) = problem(form)
    rng = np.random.default_rng(2)
    first, second = rng.normal(size=q.shape), rng.normal(size=q.shape)
    along = mx.array(first.astype(np.float32))
    got = mx.grad(lambda q: (mx.grad(loss)(q) * along).sum())(q)
    assert np.isfinite(to_numpy(got)).all()

    w = to_numpy(weights).astype(np.float64)
    exact = {name: to_numpy(x).astype(np.float64) for name, x in (("q", q), ("k", k), ("v", v))}

    def value(q):
        return (reference.attention(q, exact["k"], exact["v"], **OPTIONS[form])[0] * w).sum()

    step = 1e-3
    corners = [a * b * value(exact["q"] + step * (a * first + b * second)) for a in (1, -1) for b in (1, -1)]
    assert abs((to_numpy(got) * second).sum() - sum(corners) / (4 * step**2)) < 1e-3


@pytest.mark.parametrize("form", OPTIONS)
def test_jvp_agrees_with_the_gradient(form):
    loss, q, _ = problem(form)
    tangent = normal(np.random.default_rng(3), *q.shape)
    (slope,) = mx.jvp(loss, [q], [tangent])[1]
    assert_close(slope, (mx.grad(loss)(q) * tangent).sum(), 1e-5)


@pytest.mark.parametrize("form", OPTIONS)
def test_vmap_equals_a_loop(form):
    loss, q, _ = problem(form)
    many = normal(np.random.default_rng(4), 3, *q.shape)
    got = mx.vmap(mx.grad(loss))(many)
    for a in range(3):
        assert_close(got[a], mx.grad(loss)(many[a]), 1e-5)
