"""Small attention problems that between them use every option, alone and together.

Used by the tests of the oracle and by its evidence. The numbers of a case depend on its name only.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Options = Callable[[np.random.Generator, "Dims"], dict[str, Any]]


@dataclass(frozen=True)
class Dims:
    B: int = 2
    N_q: int = 2
    N_kv: int = 2
    T_q: int = 3
    T_kv: int = 4
    D: int = 2
    D_v: int = 3


@dataclass(frozen=True)
class Case:
    """Inputs and options of one problem. ``std`` spreads q and k: 30 makes rows with one key that takes all."""

    name: str
    dims: Dims
    options_of: Options = field(default=lambda rng, dims: {})
    std: float = 1.0

    def arrays(self) -> dict[str, np.ndarray]:
        rng = np.random.default_rng(zlib.crc32(self.name.encode()))
        d = self.dims
        shapes = {
            "q": (d.B, d.N_q, d.T_q, d.D),
            "k": (d.B, d.N_kv, d.T_kv, d.D),
            "v": (d.B, d.N_kv, d.T_kv, d.D_v),
            "d_out": (d.B, d.N_q, d.T_q, d.D_v),
            "d_lse": (d.B, d.N_q, d.T_q),
        }
        spread = {"q": self.std, "k": self.std}
        return {name: rng.normal(size=shape) * spread.get(name, 1.0) for name, shape in shapes.items()}

    def options(self) -> dict[str, Any]:
        """The options, with the scale written out as the float32 number that is meant."""
        rng = np.random.default_rng(zlib.crc32(self.name.encode()) + 1)
        options = self.options_of(rng, self.dims)
        scale = options.get("scale", 1 / np.sqrt(self.dims.D))
        return {**options, "scale": float(np.float32(scale))}


def with_infs(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """A floating mask with about a third of its entries -inf."""
    return np.where(rng.random(shape) < 0.35, -np.inf, rng.normal(size=shape))


def everything(rng: np.random.Generator, d: Dims) -> dict[str, Any]:
    return {
        "scale": 0.7,
        "softcap": 2.5,
        "mask": with_infs(rng, (d.T_q, d.T_kv)),
        "bias": rng.normal(size=(1, d.N_q, d.T_q, d.T_kv)),
        "sinks": rng.normal(size=d.N_q),
        "alibi": rng.random(d.N_q),
        "causal": True,
        "window": (3, 1),
        "kv_lengths": np.array([d.T_kv, d.T_kv - 1]),
        "segments": (rng.integers(0, 2, (d.B, d.T_q)), rng.integers(0, 2, (d.B, d.T_kv))),
        "q_offset": np.array([2, 1]),
    }


CASES = (
    Case("plain", Dims()),
    Case("given-scale", Dims(), lambda rng, d: {"scale": 0.3}),
    Case("negative-scale", Dims(), lambda rng, d: {"scale": -1.7}),
    Case("one-value-channel", Dims(D=5, D_v=1)),
    Case("gqa", Dims(N_q=4, N_kv=2)),
    Case("gqa-six-heads-on-three", Dims(B=1, N_q=6, N_kv=3)),
    Case("mqa", Dims(N_q=3, N_kv=1)),
    Case("large-scores", Dims(T_kv=6), std=12.0),
    Case("causal-square", Dims(T_q=4), lambda rng, d: {"causal": True}),
    Case("causal-more-keys", Dims(T_kv=6), lambda rng, d: {"causal": True}),
    Case("causal-more-queries", Dims(T_q=5, T_kv=3), lambda rng, d: {"causal": True}),
    Case("causal-offset", Dims(), lambda rng, d: {"causal": True, "q_offset": 0}),
    Case("causal-negative-offset", Dims(), lambda rng, d: {"causal": True, "q_offset": -1}),
    Case("causal-offset-of-each-row", Dims(), lambda rng, d: {"causal": True, "q_offset": np.array([2, 0])}),
    Case("window", Dims(T_q=5, T_kv=5), lambda rng, d: {"window": 2}),
    Case("window-one", Dims(T_q=4, T_kv=4), lambda rng, d: {"window": 1}),
    Case("window-causal", Dims(T_q=3, T_kv=6), lambda rng, d: {"window": 3, "causal": True}),
    Case("window-sides", Dims(T_q=5, T_kv=6), lambda rng, d: {"window": (2, 1)}),
    Case("window-open-left", Dims(T_q=4, T_kv=5), lambda rng, d: {"window": (None, 1)}),
    Case("window-open-right", Dims(T_q=4, T_kv=5), lambda rng, d: {"window": (0, None)}),
    Case("window-past-the-keys", Dims(), lambda rng, d: {"window": 2, "q_offset": np.array([1, 4])}),
    Case("lengths", Dims(), lambda rng, d: {"kv_lengths": np.array([1, 4])}),
    Case("length-zero", Dims(), lambda rng, d: {"kv_lengths": np.array([0, 2])}),
    Case(
        "lengths-causal",
        Dims(T_kv=6),
        lambda rng, d: {"kv_lengths": np.array([3, 6]), "causal": True, "q_offset": np.array([0, 3])},
    ),
    Case("segments", Dims(T_q=5, T_kv=5), lambda rng, d: {"segments": np.array([[0, 0, 1, 1, 1], [7, 7, 7, 2, 3]])}),
    Case(
        "segments-causal",
        Dims(T_q=5, T_kv=5),
        lambda rng, d: {"segments": np.array([[0, 0, 1, 1, 1], [7, 7, 7, 2, 2]]), "causal": True},
    ),
    Case(
        "segments-pair",
        Dims(),
        lambda rng, d: {"segments": (np.array([[0, 1, 2], [5, 5, 4]]), np.array([[0, 0, 1, 1], [4, 5, 5, 6]]))},
    ),
    Case("boolean-mask", Dims(), lambda rng, d: {"mask": rng.random((2, 2, 3, 4)) < 0.5}),
    Case("boolean-mask-2d", Dims(), lambda rng, d: {"mask": rng.random((3, 4)) < 0.5}),
    Case("boolean-mask-of-heads", Dims(), lambda rng, d: {"mask": rng.random((2, 3, 4)) < 0.5}),
    Case("boolean-mask-of-keys", Dims(), lambda rng, d: {"mask": np.array([[[[1, 0, 1, 0]]], [[[0, 0, 0, 1]]]]) > 0}),
    Case("nothing-allowed", Dims(), lambda rng, d: {"mask": np.zeros((1, 4), dtype=bool)}),
    Case("additive-mask", Dims(), lambda rng, d: {"mask": rng.normal(size=(2, 2, 3, 4))}),
    Case("additive-mask-with-inf", Dims(), lambda rng, d: {"mask": with_infs(rng, (2, 1, 3, 4))}),
    Case("additive-mask-of-keys", Dims(), lambda rng, d: {"mask": np.array([[0.5, -np.inf, -3.0, 0.0]])}),
    Case("additive-mask-all-inf", Dims(), lambda rng, d: {"mask": np.full((3, 1), -np.inf)}),
    Case("mask-causal", Dims(), lambda rng, d: {"mask": with_infs(rng, (3, 4)), "causal": True}),
    Case("bias", Dims(), lambda rng, d: {"bias": rng.normal(size=(2, 2, 3, 4))}),
    Case("bias-of-heads", Dims(), lambda rng, d: {"bias": rng.normal(size=(1, 2, 1, 4))}),
    Case("bias-2d-with-inf", Dims(), lambda rng, d: {"bias": with_infs(rng, (3, 4))}),
    Case(
        "bias-and-mask", Dims(), lambda rng, d: {"bias": rng.normal(size=(3, 4)), "mask": rng.normal(size=(2, 1, 1, 4))}
    ),
    Case("alibi", Dims(T_q=4), lambda rng, d: {"alibi": np.array([0.5, 0.125])}),
    Case("alibi-causal-more-keys", Dims(T_kv=6), lambda rng, d: {"alibi": np.array([0.5, 0.125]), "causal": True}),
    Case("alibi-of-each-row", Dims(), lambda rng, d: {"alibi": rng.random((2, 2)), "q_offset": np.array([0, 3])}),
    Case("softcap", Dims(), lambda rng, d: {"softcap": 0.75}),
    Case("softcap-saturated", Dims(), lambda rng, d: {"softcap": 2.0}, std=4.0),
    Case("softcap-then-mask", Dims(), lambda rng, d: {"softcap": 1.5, "mask": with_infs(rng, (3, 4)) * 3}),
    Case("sinks", Dims(), lambda rng, d: {"sinks": np.array([0.5, -2.0])}),
    Case("sinks-that-take-all", Dims(), lambda rng, d: {"sinks": np.array([40.0, 0.0])}),
    Case(
        "sinks-with-nothing-allowed",
        Dims(T_q=5, T_kv=3),
        lambda rng, d: {"sinks": np.array([0.5, -2.0]), "causal": True},
    ),
    Case("sink-of-minus-infinity", Dims(), lambda rng, d: {"sinks": np.array([-np.inf, 1.0])}),
    Case("everything", Dims(N_q=4, N_kv=2, T_q=3, T_kv=4), everything),
)

IDS = [case.name for case in CASES]
