"""The position-wise networks: two layers, gated, and a mixture of experts (MLP-1, MLP-2).

.. code-block:: text

    plain   act(x W_up^T) W_down^T                              relu, gelu, gelu_tanh, silu
    gated   (act(x W_gate^T) * (x W_up^T)) W_down^T             swiglu, geglu, geglu_tanh
    moe     sum over the chosen experts e of g_e * expert_e(x)

Activations are computed in float32 and rounded once.

Sources: Vaswani et al. 2017, section 3.3; Hendrycks and Gimpel 2016 (GELU, SiLU); Shazeer 2020 (gated); Shazeer et al.
2017, section 2.1 (mixtures), with the softmax before the choice, as in Mixtral.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import mlx.core as mx
from mlx import nn

from mlx_tx.config import GATED_MLPS, MLPConfig
from mlx_tx.recorder import note


def relu(x: mx.array) -> mx.array:
    """max(x, 0)."""
    return mx.maximum(x, 0)


def gelu(x: mx.array) -> mx.array:
    """x Phi(x), with Phi the normal distribution function."""
    return 0.5 * x * (1 + mx.erf(x * math.sqrt(0.5)))


def gelu_tanh(x: mx.array) -> mx.array:
    """0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))), as the logistic function of twice that argument."""
    return x * mx.sigmoid(2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x))


def silu(x: mx.array) -> mx.array:
    """x / (1 + exp(-x))."""
    return x * mx.sigmoid(x)


ACTIVATIONS: dict[str, Callable[[mx.array], mx.array]] = {
    "relu": relu,
    "gelu": gelu,
    "gelu_tanh": gelu_tanh,
    "silu": silu,
    "swiglu": silu,
    "geglu": gelu,
    "geglu_tanh": gelu_tanh,
}


class MLP(nn.Module):
    """A plain or gated network: ``up_proj``, ``down_proj`` and, where gated, ``gate_proj``."""

    def __init__(self, d_model: int, config: MLPConfig) -> None:
        super().__init__()
        self._kind = config.kind
        if config.kind in GATED_MLPS:
            self.gate_proj = nn.Linear(d_model, config.d_ff, bias=config.bias)
        self.up_proj = nn.Linear(d_model, config.d_ff, bias=config.bias)
        self.down_proj = nn.Linear(config.d_ff, d_model, bias=config.bias)

    def __call__(self, x: mx.array, at: str = "mlp.") -> mx.array:
        """``x`` ``[..., d_model]``; same shape. ``at`` stands before the names of recorded stages."""
        gate = self.gate_proj(x) if "gate_proj" in self else None
        hidden = note(f"{at}hidden", activate(self._kind, gate, self.up_proj(x)))
        return note(f"{at}out", self.down_proj(hidden))


class Experts(nn.Module):
    """The networks of a mixture, each projection as one array with the experts first: ``[E, out, in]``."""

    def __init__(self, d_model: int, config: MLPConfig) -> None:
        super().__init__()
        self._kind = config.expert_kind
        E = config.num_experts
        if config.expert_kind in GATED_MLPS:
            self.gate_proj = ExpertLinear(E, d_model, config.d_ff, bias=config.bias)
        self.up_proj = ExpertLinear(E, d_model, config.d_ff, bias=config.bias)
        self.down_proj = ExpertLinear(E, config.d_ff, d_model, bias=config.bias)

    def __call__(self, x: mx.array, chosen: mx.array) -> mx.array:
        """``[..., k, d_model]``: what each of the experts ``chosen`` ``[..., k]`` makes of ``x`` ``[..., d_model]``."""
        x = x[..., None, None, :]
        gate = self.gate_proj(x, chosen) if "gate_proj" in self else None
        hidden = activate(self._kind, gate, self.up_proj(x, chosen))
        return self.down_proj(hidden, chosen).squeeze(-2)


class ExpertLinear(nn.Module):
    """A linear layer for each expert: ``weight`` ``[E, out, in]``, ``bias`` ``[E, out]``."""

    def __init__(self, num_experts: int, d_in: int, d_out: int, *, bias: bool) -> None:
        super().__init__()
        bound = d_in**-0.5
        self.weight = mx.random.uniform(-bound, bound, (num_experts, d_out, d_in))
        if bias:
            self.bias = mx.random.uniform(-bound, bound, (num_experts, d_out))

    def __call__(self, x: mx.array, chosen: mx.array) -> mx.array:
        """``x`` ``[..., 1 or k, 1, d_in]`` by the experts ``chosen`` ``[..., k]``: ``[..., k, 1, d_out]``."""
        if x.dtype != mx.float32 and mx.default_device() == mx.Device(mx.cpu):
            # The CPU multiplies gathered matrices in float32 only; elsewhere gathering them would cost memory.
            y = x @ self.weight[chosen].swapaxes(-1, -2)
        else:
            y = mx.gather_mm(x, self.weight.swapaxes(-1, -2), rhs_indices=chosen)
        return y + self.bias[chosen][..., None, :] if "bias" in self else y


class MoE(nn.Module):
    """A mixture of experts: ``router`` chooses ``top_k`` for every token. Only the chosen ones run.

    The weights g are the softmax over all experts at the chosen ones, divided by their sum with ``norm_topk``.
    """

    def __init__(self, d_model: int, config: MLPConfig) -> None:
        super().__init__()
        self._top_k = config.top_k
        self._norm_topk = config.norm_topk
        self.router = nn.Linear(d_model, config.num_experts, bias=False)
        self.experts = Experts(d_model, config)

    def __call__(self, x: mx.array, at: str = "mlp.") -> mx.array:
        """``x`` ``[..., d_model]``; same shape."""
        logits = note(f"{at}router", self.router(x))
        chosen, weights = route(logits, self._top_k, norm_topk=self._norm_topk)
        note(f"{at}routing", lambda: mx.put_along_axis(mx.zeros(logits.shape), chosen, weights, axis=-1))
        each = self.experts(x, chosen).astype(mx.float32)
        return note(f"{at}out", mx.sum(each * weights[..., None], axis=-2).astype(x.dtype))


def route(logits: mx.array, top_k: int, *, norm_topk: bool = True) -> tuple[mx.array, mx.array]:
    """The ``top_k`` experts of each row of ``logits`` ``[..., E]``, best first, and their weights in float32.

    Of equal logits the lower index goes first, on every device. Both results are ``[..., top_k]``.
    """
    E = logits.shape[-1]
    if not 1 <= top_k <= E:
        raise ValueError(f"[route] top_k must be in 1..{E}; got {top_k}")
    scores = mx.stop_gradient(logits.astype(mx.float32))
    ids = mx.arange(E)
    # The rank of an expert is the number of experts that go before it; sorts need not be stable on every device.
    mine, theirs = scores[..., :, None], scores[..., None, :]
    before = mx.logical_or(theirs > mine, mx.logical_and(theirs == mine, ids[None, :] < ids[:, None]))
    rank = mx.sum(before, axis=-1).astype(mx.int32)
    order = mx.put_along_axis(mx.zeros(rank.shape, dtype=mx.int32), rank, mx.broadcast_to(ids, rank.shape), axis=-1)
    chosen = order[..., :top_k]
    weights = mx.take_along_axis(mx.softmax(logits.astype(mx.float32), axis=-1), chosen, axis=-1)
    return chosen, weights / mx.sum(weights, axis=-1, keepdims=True) if norm_topk else weights


def activate(kind: str, gate: mx.array | None, up: mx.array) -> mx.array:
    """act(up), or act(gate) * up where there is a gate; float32 inside, in the dtype of ``up``."""
    act = ACTIVATIONS[kind]
    if gate is None:
        return act(up.astype(mx.float32)).astype(up.dtype)
    return (act(gate.astype(mx.float32)) * up.astype(mx.float32)).astype(up.dtype)


def make_mlp(d_model: int, config: MLPConfig) -> MLP | MoE:
    """The network of a configuration."""
    return MoE(d_model, config) if config.kind == "moe" else MLP(d_model, config)
