"""The recurrent network that attention replaced, in float64: a plain tanh RNN, and how its gradient fades.

    h_t = tanh(W_h h_{t-1} + W_x x_t + b)        h_0 = 0

The baseline of the clauses on long-range gradients (PAR-2) and on path length (CPX-3): the gradient from the last
output to the first input is a product of T - 1 Jacobians diag(1 - h_t^2) W_h.

Sources: Elman 1990; Bengio et al. 1994, "Learning Long-Term Dependencies with Gradient Descent is Difficult";
Pascanu et al. 2013, section 2.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

Float64 = NDArray[np.float64]


def rnn(x: ArrayLike, w_x: ArrayLike, w_h: ArrayLike, b: ArrayLike | None = None) -> Float64:
    """Every state of the network on ``x`` [B, T, d_in] with ``w_x`` [H, d_in], ``w_h`` [H, H], ``b`` [H]: [B, T, H]."""
    array, to_state, onward = (np.asarray(a).astype(np.float64) for a in (x, w_x, w_h))
    driven = array @ to_state.T + (0.0 if b is None else np.asarray(b).astype(np.float64))
    states = np.zeros_like(driven)
    h = np.zeros((array.shape[0], onward.shape[0]))
    for t in range(array.shape[1]):
        h = states[:, t] = np.tanh(h @ onward.T + driven[:, t])
    return states


def rnn_input_gradient(
    x: ArrayLike, w_x: ArrayLike, w_h: ArrayLike, d_last: ArrayLike, b: ArrayLike | None = None
) -> Float64:
    """Gradient of sum(h_T * d_last), ``d_last`` [B, H], to every input: [B, T, d_in]. Backpropagation through time."""
    states = rnn(x, w_x, w_h, b)
    to_state, onward = np.asarray(w_x).astype(np.float64), np.asarray(w_h).astype(np.float64)
    gradient = np.zeros((*states.shape[:2], to_state.shape[1]))
    d_h = np.asarray(d_last).astype(np.float64)
    for t in reversed(range(states.shape[1])):
        d_z = d_h * (1.0 - states[:, t] ** 2)
        gradient[:, t] = d_z @ to_state
        d_h = d_z @ onward
    return gradient


def first_input_jacobian(x: ArrayLike, w_x: ArrayLike, w_h: ArrayLike, b: ArrayLike | None = None) -> Float64:
    """The Jacobian of the last state to the first input, [B, H, d_in]; its Frobenius norm is what fades with T."""
    B, H = np.asarray(x).shape[0], np.asarray(w_h).shape[0]
    rows = [rnn_input_gradient(x, w_x, w_h, np.tile(np.eye(H)[i], (B, 1)), b)[:, 0] for i in range(H)]
    return np.stack(rows, axis=1)
