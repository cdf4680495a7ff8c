"""Attention in NumPy for the tests of the checks, with a hook in every place where it may go wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from mlx_tx_conformance.call import Call, Result


def identity(x: Any) -> Any:
    return x


@dataclass
class Attention:
    """A target on NumPy arrays. Each field is a step that a test may replace by a wrong one."""

    name: str = "miniature"
    device: str = "cpu"
    path: str = "mini"
    scores: Callable[[np.ndarray], np.ndarray] = identity
    allowed: Callable[[np.ndarray], np.ndarray] = identity
    weights: Callable[[np.ndarray], np.ndarray] = identity
    values: Callable[[np.ndarray], np.ndarray] = identity
    out: Callable[[np.ndarray], np.ndarray] = identity
    lse: Callable[[np.ndarray], np.ndarray] = identity
    before: Callable[[Call], Call] = identity
    mutate: bool = False
    calls: int = 0

    def precision(self, dtype: str) -> str:
        return "f32-internal" if dtype == "float32" else "P"

    def supports(self, call: Call) -> str | None:
        return "no op" if call.op not in ("attention", "attention_gradients") else None

    def path_refusal(self, path: str) -> str | None:
        return None if path == self.path else f"no path {path}"

    def figure(self, call: Call, figure: str) -> float:
        T = call.arrays["k"].shape[2]
        return float(100 + T**2) if figure == "flops" else float(1000 + 3 * T)

    def run(self, call: Call) -> Result:
        self.calls += 1
        call = self.before(call)
        a, o = call.arrays, call.options
        if o.get("window") == 0:
            raise ValueError("[attention] window must be >= 1; got 0")
        group = a["q"].shape[1] // a["k"].shape[1]
        q = a["q"].astype(np.float32)
        k, v = (np.repeat(a[n].astype(np.float32), group, axis=1) for n in ("k", "v"))
        T_q, T_kv = q.shape[2], k.shape[2]
        scale = np.float32(o.get("scale", 1 / np.sqrt(q.shape[-1])))
        s = self.scores(q @ np.swapaxes(k, -1, -2) * scale)
        offset = o.get("q_offset", T_kv - T_q)
        i, j = np.arange(T_q)[:, None] + offset, np.arange(T_kv)[None, :]
        see = np.ones((1, 1, T_q, T_kv), bool)
        if o.get("causal"):
            see = see & (j <= i)
        if "mask" in a:
            see = see & a["mask"]
        if "bias" in a:
            s = s + a["bias"].astype(np.float32)
        see = self.allowed(see)
        s = np.where(see, s, -np.inf)
        m = np.max(s, axis=-1, keepdims=True, initial=-np.inf)
        shift = np.where(np.isfinite(m), m, 0)
        with np.errstate(divide="ignore"):
            e = self.weights(np.exp(s - shift))
            total = e.sum(-1, keepdims=True)
            p = e / np.where(total == 0, 1, total)
            lse = self.lse((shift + np.log(total))[..., 0].astype(np.float32))
        if self.mutate:
            a["q"][...] = 0
        outputs = {"out": self.out(p @ self.values(v)).astype(a["q"].dtype), "lse": lse}
        if call.op == "attention_gradients":
            d_out = a["d_out"].astype(np.float32)
            outputs |= {"v": (np.swapaxes(p, -1, -2) @ d_out).astype(a["q"].dtype)}
        return Result({name: outputs[name] for name in call.outputs}, path=self.path)
