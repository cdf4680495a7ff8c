"""Whole models derived a second time: one token, one head and one channel at a time, in plain floats.

Deliberately naive and with nothing in common with the oracle but the names of weights and stages: no matrix product,
no batch, no mask. Positions turn complex numbers; every norm, activation and choice of experts is a loop.
"""

from __future__ import annotations

import cmath
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Vector = list[float]
Sees = Callable[[int, int], bool]


def product(w: np.ndarray, x: Vector, bias: np.ndarray | None = None) -> Vector:
    return [
        math.fsum(float(w[i, j]) * x[j] for j in range(len(x))) + (0.0 if bias is None else float(bias[i]))
        for i in range(len(w))
    ]


def plus(a: Vector, b: Vector) -> Vector:
    return [x + y for x, y in zip(a, b, strict=True)]


ACTIVATIONS: dict[str, Callable[[float], float]] = {
    "relu": lambda x: max(x, 0.0),
    "gelu": lambda x: x * (1 + math.erf(x / math.sqrt(2))) / 2,
    "gelu_tanh": lambda x: 0.5 * x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    "silu": lambda x: x / (1 + math.exp(-x)),
}
GATES = {"swiglu": "silu", "geglu": "gelu", "geglu_tanh": "gelu_tanh"}


@dataclass
class Naive:
    """One text through one stack. ``stages`` collects [T, ...] lists by the names of the oracle."""

    config: dict[str, Any]
    weights: dict[str, np.ndarray]
    prefix: str = ""
    causal: bool = True
    stages: dict[str, list[Any]] = field(default_factory=dict)

    def say(self, name: str, value: Any) -> None:
        self.stages.setdefault(self.prefix + name, []).append(value)

    def linear(self, name: str, x: Vector) -> Vector:
        name = self.prefix + name
        return product(self.weights[f"{name}.weight"], x, self.weights.get(f"{name}.bias"))

    def norm(self, name: str, x: Vector) -> Vector:
        settings = {"kind": "rms", "eps": 1e-5, "offset": 0.0, **self.config.get("norm", {})}
        name = self.prefix + name
        mean = math.fsum(x) / len(x) if settings["kind"] == "layer" else 0.0
        root = math.sqrt(math.fsum((v - mean) ** 2 for v in x) / len(x) + settings["eps"])
        y = [
            (v - mean) / root * (w + settings["offset"]) for v, w in zip(x, self.weights[f"{name}.weight"], strict=True)
        ]
        return plus(y, list(self.weights[f"{name}.bias"])) if f"{name}.bias" in self.weights else y

    def run(self, tokens: list[int], positions: list[int], exists: list[bool], memory: Any = None) -> list[Vector]:
        """The stream after the last layer and the final norm. ``memory`` = (vectors, exists) of an encoder."""
        xs = [self.embed(token, at) for token, at in zip(tokens, positions, strict=True)]
        count = self.config["num_layers"]
        if self.prefix == "encoder.":
            count = self.config.get("num_encoder_layers", count)
        for n in range(count):
            xs = self.layer(n, xs, positions, exists, memory)
        placement = self.config.get("block", {}).get("placement", "pre")
        if self.config.get("final_norm", placement != "post"):
            xs = [self.norm("norm", x) for x in xs]
            for x in xs:
                self.say("norm", x)
        return xs

    def embed(self, token: int, at: int) -> Vector:
        scale = self.config.get("embedding_scale", 1.0)
        width = self.config["d_model"]
        x = [
            float(v) * (math.sqrt(width) if scale == "sqrt" else scale)
            for v in self.weights["embed_tokens.weight"][token]
        ]
        position = self.config.get("position", {"kind": "none"})
        if position["kind"] == "sinusoidal":
            for c in range(width):
                angle = at / position.get("base", 10000.0) ** ((c - c % 2) / width)
                x[c] += math.cos(angle) if c % 2 else math.sin(angle)
        if position["kind"] == "learned":
            x = plus(x, list(self.weights[f"{self.prefix}position.weight"][at]))
        self.say("embed", x)
        return x

    def logits(self, x: Vector) -> Vector:
        table = self.weights["embed_tokens.weight" if self.config["tie_embeddings"] else "lm_head.weight"]
        y, cap = product(table, x), self.config.get("final_softcap")
        y = y if cap is None else [cap * math.tanh(v / cap) for v in y]
        self.say("logits", y)
        return y

    def layer(self, n: int, xs: list[Vector], positions: list[int], exists: list[bool], memory: Any) -> list[Vector]:
        own = {"attention": self.config["attention"], "position": self.config.get("position", {"kind": "none"})}
        own["mlp"] = self.config["mlp"]
        pattern = self.config.get("layers") or [{}]
        override = pattern[n % len(pattern)]
        attention = {**own["attention"], "window": override.get("window", own["attention"].get("window"))}
        position, mlp = override.get("position", own["position"]), override.get("mlp", own["mlp"])
        at = f"layers.{n}."

        def sees(i: int, j: int) -> bool:
            if not exists[j] or (self.causal and j > i):
                return False
            window = attention["window"]
            if isinstance(window, int):
                return 0 <= i - j < window
            return window is None or i - window[0] <= j <= i + window[1]

        xs = self.sublayer(
            f"{at}self_attn",
            ("input_norm", "input_layernorm", "post_self_attn_norm"),
            xs,
            lambda hs: self.attention(f"{at}self_attn.", attention, hs, hs, sees, position, positions),
        )
        if memory is not None:
            vectors, there = memory
            xs = self.sublayer(
                f"{at}cross_attn",
                ("cross_attn_norm", "cross_attn_layernorm", "post_cross_attn_norm"),
                xs,
                lambda hs: self.attention(f"{at}cross_attn.", attention, hs, vectors, lambda i, j: there[j]),
            )
        names = ("mlp_norm", "post_attention_layernorm", "post_mlp_norm")
        return self.sublayer(f"{at}mlp", names, xs, lambda hs: [self.mlp(f"{at}mlp.", mlp, h) for h in hs])

    def sublayer(
        self, at: str, names: tuple[str, str, str], xs: list[Vector], f: Callable[[list[Vector]], list[Vector]]
    ) -> list[Vector]:
        stage, weight, after = names
        layer = at[: at.rindex(".") + 1]
        placement = self.config.get("block", {}).get("placement", "pre")

        def normed(vectors: list[Vector], stage: str, weight: str) -> list[Vector]:
            out = [self.norm(layer + weight, v) for v in vectors]
            for y in out:
                self.say(layer + stage, y)
            return out

        ys = f(xs) if placement == "post" else f(normed(xs, stage, weight))
        if placement == "sandwich":
            ys = normed(ys, after, after)
        xs = [plus(x, y) for x, y in zip(xs, ys, strict=True)]
        for x in xs:
            self.say(f"{at}.residual", x)
        return normed(xs, stage, weight) if placement == "post" else xs

    def attention(
        self,
        at: str,
        settings: dict[str, Any],
        queries: list[Vector],
        sources: list[Vector],
        sees: Sees,
        position: dict[str, Any] | None = None,
        positions: list[int] | None = None,
    ) -> list[Vector]:
        heads = settings["num_heads"]
        shared = settings.get("num_kv_heads") or heads
        D = settings.get("head_dim") or self.config["d_model"] // heads
        kind = position["kind"] if position else "none"
        q, k, v = ({}, {}, {})
        for name, found, vectors, number in (
            ("q", q, queries, heads),
            ("k", k, sources, shared),
            ("v", v, sources, shared),
        ):
            for t, x in enumerate(vectors):
                y = self.linear(f"{at}{name}_proj", x)
                size = len(y) // number
                found[t] = [y[h * size : (h + 1) * size] for h in range(number)]
                self.say(at + name, found[t])
                if settings.get("qk_norm") and name != "v":
                    found[t] = [self.norm(f"{at}{name}_norm", head) for head in found[t]]
                    self.say(f"{at}{name}_norm", found[t])
                if kind == "rope" and name != "v":
                    found[t] = [turned(head, positions[t], position) for head in found[t]]
                    self.say(f"{at}{name}_rope", found[t])
        scale = float(np.float32(D**-0.5 if settings.get("scale") is None else settings["scale"]))
        outs = []
        for i in range(len(queries)):
            joined: list[Vector] = []
            for h in range(heads):
                g = h * shared // heads
                keys = [j for j in range(len(sources)) if sees(i, j)]
                scores = []
                for j in keys:
                    s = scale * math.fsum(a * b for a, b in zip(q[i][h], k[j][g], strict=True))
                    if settings.get("softcap"):
                        s = settings["softcap"] * math.tanh(s / settings["softcap"])
                    scores.append(s + self.bias(kind, position, h, heads, i, j))
                extra = [float(self.weights[f"{self.prefix}{at}sinks"][h])] if settings.get("sinks") else []
                top = max(scores + extra, default=0.0)
                total = math.fsum(math.exp(s - top) for s in scores + extra)
                size = len(v[0][0]) if v else 0
                joined.append(
                    [
                        math.fsum(math.exp(s - top) / total * v[j][g][d] for s, j in zip(scores, keys, strict=True))
                        for d in range(size)
                    ]
                )
            self.say(f"{at}out", joined)
            y = self.linear(f"{at}o_proj", [value for head in joined for value in head])
            self.say(f"{at}proj", y)
            outs.append(y)
        return outs

    def bias(self, kind: str, position: Any, h: int, heads: int, i: int, j: int) -> float:
        if kind == "alibi":
            # Powers of two only, which is what the cases have.
            return -(2.0 ** (-8 * (h + 1) / heads)) * abs(i - j)
        if kind == "t5":
            bucket = t5_bucket(j - i, not self.causal, position["num_buckets"], position["max_distance"])
            return float(self.weights[f"{self.prefix}relative_bias.weight"][bucket, h])
        return 0.0

    def mlp(self, at: str, settings: dict[str, Any], x: Vector) -> Vector:
        if settings["kind"] == "moe":
            return self.mixture(at, settings, x)
        hidden = self.hidden(settings["kind"], x, lambda name, v: self.linear(f"{at}{name}", v))
        self.say(f"{at}hidden", hidden)
        y = self.linear(f"{at}down_proj", hidden)
        self.say(f"{at}out", y)
        return y

    def hidden(self, kind: str, x: Vector, linear: Callable[[str, Vector], Vector]) -> Vector:
        up = linear("up_proj", x)
        if kind not in GATES:
            return [ACTIVATIONS[kind](u) for u in up]
        act = ACTIVATIONS[GATES[kind]]
        return [act(g) * u for g, u in zip(linear("gate_proj", x), up, strict=True)]

    def mixture(self, at: str, settings: dict[str, Any], x: Vector) -> Vector:
        scores = self.linear(f"{at}router", x)
        self.say(f"{at}router", scores)
        total = math.fsum(math.exp(s) for s in scores)
        best = sorted(range(len(scores)), key=lambda e: (-scores[e], e))[: settings["top_k"]]
        shares = {e: math.exp(scores[e]) / total for e in best}
        if settings.get("norm_topk", True):
            shares = {e: share / math.fsum(shares.values()) for e, share in shares.items()}
        self.say(f"{at}routing", [shares.get(e, 0.0) for e in range(len(scores))])
        out = [0.0] * len(x)
        for e in best:

            def expert(name: str, v: Vector, e: int = e) -> Vector:
                name = f"{self.prefix}{at}experts.{name}"
                bias = self.weights.get(f"{name}.bias")
                return product(self.weights[f"{name}.weight"][e], v, None if bias is None else bias[e])

            y = expert("down_proj", self.hidden(settings.get("expert_kind", "swiglu"), x, expert))
            out = plus(out, [shares[e] * v for v in y])
        self.say(f"{at}out", out)
        return out


def turned(x: Vector, at: int, position: dict[str, Any]) -> Vector:
    """Each pair of a head as a complex number, multiplied by exp(i angle)."""
    dims = position.get("dims") or len(x)
    out = list(x)
    for r in range(dims // 2):
        a, b = (2 * r, 2 * r + 1) if position.get("traditional") else (r, r + dims // 2)
        angle, grown = stretched(at / position.get("base", 10000.0) ** (2 * r / dims), r, dims, position)
        z = complex(x[a], x[b]) * cmath.rect(grown, angle)
        out[a], out[b] = z.real, z.imag
    return out


def stretched(angle: float, r: int, dims: int, position: dict[str, Any]) -> tuple[float, float]:
    """The angle and the growth of YaRN, the one recipe that the cases have."""
    scaling = position.get("scaling")
    if scaling is None:
        return angle, 1.0
    ends = [
        dims / 2 * math.log(scaling["original_max_positions"] / 2 / math.pi / turns, position.get("base", 10000.0))
        for turns in (scaling["beta_fast"], scaling["beta_slow"])
    ]
    low, high = max(math.floor(ends[0]), 0), min(math.ceil(ends[1]), dims - 1)
    share = min(max((r - low) / (high - low), 0.0), 1.0)
    return angle * (share / scaling["factor"] + 1 - share), 1 + math.log(scaling["factor"]) / 10


def t5_bucket(ahead: int, both_ways: bool, buckets: int, far: int) -> int:
    first = 0
    if both_ways:
        buckets //= 2
        first = buckets if ahead > 0 else 0
        n = abs(ahead)
    else:
        n = max(-ahead, 0)
    exact = buckets // 2
    if n < exact:
        return first + n
    grown = math.floor((buckets - exact) * math.log(n / exact) / math.log(far / exact) + 1e-9)
    return first + min(exact + grown, buckets - 1)
