"""The recurrent baseline in MLX: what attention is measured against where the document compares the two."""

from __future__ import annotations

from typing import Any


def rnn(x: Any, w_x: Any, w_h: Any) -> Any:
    """h_t = tanh(W_h h_(t-1) + W_x x_t), every state: [B, T, H] for x [B, T, d], w_x [H, d], w_h [H, H]."""
    import mlx.core as mx

    driven = x @ w_x.T
    h = mx.zeros_like(driven[:, 0])
    states = []
    for t in range(x.shape[1]):
        h = mx.tanh(h @ w_h.T + driven[:, t])
        states.append(h)
    return mx.stack(states, axis=1)
