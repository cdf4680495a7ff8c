"""The recurrent baseline against loops and finite differences, and the law that it is there to show."""

from __future__ import annotations

import math

import numpy as np
import pytest

from mlx_tx_conformance.oracle.rnn import first_input_jacobian, rnn, rnn_input_gradient

B, D, H = 2, 3, 4


def network(T: int, gain: float = 1.0, bias: bool = True):
    rng = np.random.default_rng(8)
    w_x, b, w_h = rng.normal(size=(H, D)) / 2, rng.normal(size=H) / 4, np.linalg.qr(rng.normal(size=(H, H)))[0]
    return rng.normal(size=(B, T, D)), w_x, gain * w_h, b if bias else None


@pytest.mark.parametrize("bias", [True, False])
def test_states(bias):
    x, w_x, w_h, b = network(5, bias=bias)
    states = rnn(x, w_x, w_h, b)
    for row in range(B):
        h = [0.0] * H
        for t in range(5):
            h = [
                math.tanh(
                    sum(w_x[i, j] * x[row, t, j] for j in range(D))
                    + sum(w_h[i, j] * h[j] for j in range(H))
                    + (b[i] if bias else 0.0)
                )
                for i in range(H)
            ]
            np.testing.assert_allclose(states[row, t], h, rtol=1e-12)


def test_gradient_is_that_of_finite_differences():
    x, w_x, w_h, b = network(4)
    d_last = np.random.default_rng(9).normal(size=(B, H))
    gradient = rnn_input_gradient(x, w_x, w_h, d_last, b)
    for index in np.ndindex(x.shape):
        move = np.zeros_like(x)
        move[index] = 1e-5
        up, down = ((rnn(x + s * move, w_x, w_h, b)[:, -1] * d_last).sum() for s in (1, -1))
        assert gradient[index] == pytest.approx((up - down) / 2e-5, rel=1e-7, abs=1e-10)


def test_jacobian_is_a_product_of_the_steps():
    x, w_x, w_h, b = network(4)
    states, jacobian = rnn(x, w_x, w_h, b), first_input_jacobian(x, w_x, w_h, b)
    for row in range(B):
        steps = [np.diag(1 - states[row, t] ** 2) for t in range(4)]
        expected = steps[3] @ w_h @ steps[2] @ w_h @ steps[1] @ w_h @ steps[0] @ w_x
        np.testing.assert_allclose(jacobian[row], expected, rtol=1e-12)


def test_the_gradient_vanishes_with_length():
    """Even with an orthogonal recurrence, which loses nothing by itself: tanh does."""
    lengths = np.array([4, 8, 16, 32, 64])
    norms = [np.linalg.norm(first_input_jacobian(*network(T))[0]) for T in lengths]
    # Exponentially: the logarithm falls by about as much for each step at every length.
    loss_per_step = -np.diff(np.log(norms)) / np.diff(lengths)
    assert (loss_per_step > 0.15).all()
    assert norms[-1] < 1e-6 * norms[0]


def test_a_single_step_and_no_step():
    x, w_x, w_h, b = network(1)
    np.testing.assert_allclose(rnn(x, w_x, w_h, b)[:, 0], np.tanh(x[:, 0] @ w_x.T + b), rtol=1e-14)
    assert rnn(x[:, :0], w_x, w_h, b).shape == (B, 0, H)
