"""A correct float32 backward pass of attention, in the forms that a bound must accept."""

from __future__ import annotations

import numpy as np

from ..call import DTYPES, Call
from ..oracle.arguments import Problem
from ..oracle.arguments import problem as oracle_problem
from ..oracle.gradients import sum_to_shape
from .problem import oracle_arguments
from .reference import Array, F, Plain


class Backward32:
    """Gradients as FlashAttention-2 computes them: from the output in the dtype and the float32 log-sum-exp.

    ``rounds_weights``: P and dS are rounded to the dtype before they multiply. ``from_lse``: p = exp(s - lse), and not
    the quotient that the forward pass has.
    """

    def __init__(self, rounds_weights: bool = False, from_lse: bool = True) -> None:
        self.rounds_weights = rounds_weights
        self.from_lse = from_lse

    def __call__(self, call: Call) -> dict[str, Array]:
        """Gradients by name, each in the dtype of its array."""
        arrays = call.arrays
        given = oracle_problem(*(arrays[name] for name in ("q", "k", "v")), **oracle_arguments(call))
        forward = Plain(self.rounds_weights)
        forward.dtype = DTYPES[call.dtype]
        with np.errstate(all="ignore"):
            return {name: x.astype(arrays[name].dtype) for name, x in self._gradients(given, forward, call).items()}

    def _gradients(self, given: Problem, forward: Plain, call: Call) -> dict[str, Array]:
        q, k, scale = forward.operands(given)
        v = forward.values(given)
        s = forward.scores(given)
        m, e, total = forward.exponentials(s, given)
        some = np.where(total == 0, F(1), total)
        lse = m + np.log(some)
        o = forward.rounded(forward.mix(forward.weights(e), v) / some)
        p = np.where(given.allowed, np.exp(s - lse) if self.from_lse else e / some, F(0))
        seen = given.allowed.any(-1, keepdims=True)
        dO = np.where(seen, call.arrays["d_out"].astype(F), F(0))
        dL = np.zeros_like(lse)
        if "d_lse" in call.arrays:
            dL = np.where(total > 0, call.arrays["d_lse"].astype(F)[..., None], F(0))

        dP = dO @ np.swapaxes(v, -1, -2)
        delta = (dO * o).sum(-1, keepdims=True, dtype=F) - dL
        dS = p * (dP - delta)
        dR = dS
        if given.softcap is not None:
            t = np.tanh(forward.product(q, k, scale) / F(given.softcap))
            dR = dS * (1 - t * t)
        rounded = forward.rounded(dR) if self.rounds_weights else dR
        result = {
            "q": F(scale) * (rounded @ k),
            "k": self._grouped(F(scale) * (np.swapaxes(rounded, -1, -2) @ q), given),
            "v": self._grouped(np.swapaxes(forward.weights(p), -1, -2) @ dO, given),
        }
        for name, shape in given.shapes.items():
            result[name] = sum_to_shape(dS, shape)
        if given.sinks is not None:
            weight = np.exp(given.sinks.astype(F)[None, :, None, None] - lse)
            result["sinks"] = -(weight * delta).sum((0, 2, 3), dtype=F)
        return result

    @staticmethod
    def _grouped(x: Array, given: Problem) -> Array:
        B, N_kv, T_kv = given.k.shape[:3]
        return x.reshape(B, N_kv, given.group, T_kv, x.shape[-1]).sum(2, dtype=F)
