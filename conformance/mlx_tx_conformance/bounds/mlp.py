"""Bounds of the position-wise networks: products, activations, gates, and mixtures of experts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ..call import Call
from ..oracle import mlp
from ..oracle.softmax import softmax
from .bound import Bound, finish
from .problem import float64
from .product import product_errors
from .units import EXP_FLOOR, LAMBDA, U, gamma, unit

# Greatest slopes of the activations.
LIPSCHITZ: Mapping[str, float] = {"relu": 1.0, "silu": 1.1, "gelu": 1.13, "gelu_tanh": 1.13}
ACTIVATION: Mapping[str, str] = {"swiglu": "silu", "geglu": "gelu", "geglu_tanh": "gelu_tanh"}
# A step for slopes by central differences in float64, good to its square.
STEP = 2.0**-17


@dataclass(frozen=True)
class Errors:
    """A value and both forms of its error, arrays of one shape."""

    value: np.ndarray
    det: np.ndarray
    prob: np.ndarray

    def stored(self, dtype: str) -> Errors:
        """The same after it was rounded to a dtype. What is exact and fits the dtype stays exact."""
        kind, size = unit(dtype), np.abs(self.value)
        fits = self.value.astype(kind.dtype).astype(np.float64) == self.value
        det, prob = (
            np.where((error == 0) & fits, 0.0, error + kind.u * (size + error) + kind.tau)
            for error in (self.det, self.prob)
        )
        return Errors(self.value, det, prob)

    def bound(self, dtype: str) -> Bound:
        """The bound of the value as a result of that dtype."""
        return finish(self.value, self.det, self.prob, dtype)


def activation_error(kind: str, x: np.ndarray, dx: np.ndarray) -> np.ndarray:
    """How far act(x + dx) as computed in float32 may be from act(x).

    The slope at x, or what it may become within dx (slopes change by less than 1 per unit; a ReLU's jumps), and never
    more than the greatest; then the activation's own error. SiLU: x times a logistic function whose exponential errs by
    u (8 + 3 |x|), and the sum, quotient and product. GELU: 1 + erf or 1 + tanh is absolutely exact to 12 u only, which
    shows in the left tail.
    """
    name = ACTIVATION.get(kind, kind)
    act, size = mlp.PLAIN[name], np.abs(x)
    if name == "relu":
        return np.where(x + dx > 0, dx, 0.0)
    slope = np.abs(act(x + STEP) - act(x - STEP)) / (2.0 * STEP)
    moved = np.minimum(slope + dx, LIPSCHITZ[name]) * dx
    if name == "silu":
        return moved + np.abs(act(x)) * U * (14.0 + 3.0 * size) + size * EXP_FLOOR
    return moved + 6.0 * U * size + 4.0 * U * np.abs(act(x)) + size * EXP_FLOOR


def hidden_errors(kind: str, up: Errors, gate: Errors | None, dtype: str) -> Errors:
    """act(up), or act(gate) up, unrounded. Each of gate, up and act(gate) may have been rounded to the dtype."""
    up = up.stored(dtype)
    if gate is None:
        value = mlp.PLAIN[kind](up.value)
        return Errors(value, *(activation_error(kind, up.value, error) for error in (up.det, up.prob)))
    gate = gate.stored(dtype)
    act = mlp.GATED[kind](gate.value)
    activated = Errors(act, *(activation_error(kind, gate.value, e) for e in (gate.det, gate.prob))).stored(dtype)
    a, u = np.abs(act), np.abs(up.value)
    value = act * up.value
    det = a * up.det + u * activated.det + activated.det * up.det + U * np.abs(value)
    prob = np.hypot(a * up.prob, u * activated.prob) + activated.prob * up.prob + U * np.abs(value)
    return Errors(value, det, prob)


def linear_errors(x: Errors | np.ndarray, w: np.ndarray, bias: np.ndarray | None = None) -> Errors:
    """x w + bias, unrounded, with the error that x comes with."""
    if isinstance(x, Errors):
        _, det, _ = product_errors(x.value, w, bias=bias, x_error=x.det)
        value, _, prob = product_errors(x.value, w, bias=bias, x_error=x.prob)
        return Errors(value, det, prob)
    return Errors(*product_errors(x, w, bias=bias))


def network_errors(x: np.ndarray, weights: Mapping[str, np.ndarray], kind: str, dtype: str) -> tuple[Errors, Errors]:
    """(hidden, out) of a plain or gated network, unrounded; weights ``w_up`` [d_model, d_ff] and so on, ``b_up`` ..."""
    up = linear_errors(x, weights["w_up"], weights.get("b_up"))
    gate = linear_errors(x, weights["w_gate"], weights.get("b_gate")) if kind in mlp.GATED else None
    hidden = hidden_errors(kind, up, gate, dtype)
    return hidden, linear_errors(hidden.stored(dtype), weights["w_down"], weights.get("b_down"))


def mlp_bounds(call: Call) -> dict[str, Bound]:
    """Bounds of ``hidden`` [B, T_q, d_ff] and ``out`` [B, T_q, d_model]."""
    weights = {name: float64(array) for name, array in call.arrays.items() if name != "x"}
    hidden, out = network_errors(float64(call.arrays["x"]), weights, call.options["kind"], call.dtype)
    return {"hidden": hidden.bound(call.dtype), "out": out.bound(call.dtype)}


def routing_errors(logits: Errors, top_k: int, norm_topk: bool) -> tuple[Errors, np.ndarray]:
    """The weight of every expert [..., E], and for which tokens [..., 1] the choice is certain.

    The choice is certain where the last chosen logit and the first one left out are further apart than both may err.
    Equal exact logits are decided by the index. A weight errs by what its logits err, twice at
    most, and by the softmax.
    """
    _, value = mlp.route(logits.value, top_k, norm_topk=norm_topk)
    order = np.argsort(-logits.value, axis=-1, kind="stable")
    certain = np.ones((*logits.value.shape[:-1], 1), dtype=bool)
    E = logits.value.shape[-1]
    if top_k < E:
        edge = order[..., top_k - 1 : top_k + 1]
        at, error = (np.take_along_axis(part, edge, axis=-1) for part in (logits.value, logits.det))
        gap, blur = at[..., :1] - at[..., 1:], error.sum(axis=-1, keepdims=True)
        certain = (blur == 0) | (gap > blur)
    spread = np.max(logits.value, axis=-1, keepdims=True) - logits.value
    own = U * (12.0 + 3.0 * spread)
    p = softmax(logits.value)
    forms = []
    for error in (logits.det, logits.prob):
        e = np.expm1(error) + own
        mean = (p * e).sum(axis=-1, keepdims=True)
        forms.append(value * (e + mean + gamma(E + 2) + 4.0 * U) * (2.0 if norm_topk else 1.0))
    return Errors(value, forms[0], forms[1]), certain


def mixture_errors(x: np.ndarray, weights: Mapping[str, np.ndarray], shares: Errors, kind: str, dtype: str) -> Errors:
    """The experts' results, each rounded to the dtype, summed with ``shares`` [..., E] in float32."""
    E = shares.value.shape[-1]
    outs = []
    for e in range(E):
        one = {name: array[e] for name, array in weights.items()}
        outs.append(network_errors(x, one, kind, dtype)[1].stored(dtype))
    value = sum(shares.value[..., e, None] * out.value for e, out in enumerate(outs))
    parts = [shares.value[..., e, None] for e in range(E)]
    size = sum(p * np.abs(out.value) for p, out in zip(parts, outs, strict=True))
    det = gamma(E + 1) * size
    square = np.zeros_like(det)
    linear = np.zeros_like(det)
    for e, (p, out) in enumerate(zip(parts, outs, strict=True)):
        det = det + p * out.det + shares.det[..., e, None] * (np.abs(out.value) + out.det)
        square = square + (p * out.prob) ** 2
        linear = linear + shares.prob[..., e, None] * (np.abs(out.value) + out.prob)
    prob = LAMBDA * U * np.sqrt(E) * size + np.sqrt(square) + linear
    return Errors(np.asarray(value), det, prob)


def moe_bounds(call: Call) -> dict[str, Bound]:
    """Bound of ``out``; tokens whose choice of experts is not certain are not decidable."""
    x = float64(call.arrays["x"])
    router = linear_errors(x, float64(call.arrays["w_router"])).stored(call.dtype)
    shares, certain = routing_errors(router, int(call.options["top_k"]), bool(call.options["norm_topk"]))
    experts = {name: float64(call.arrays[name]) for name in ("w_up", "w_gate", "w_down")}
    out = mixture_errors(x, experts, shares, call.options["kind"], call.dtype)
    bound = out.bound(call.dtype)
    decidable = bound.decidable & certain
    return {"out": Bound(bound.value, bound.det, bound.prob, decidable, bound.dtype)}
