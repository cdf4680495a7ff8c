"""Bounds of the networks: correct float32 code with roundings between stays within them, faults do not."""

import math

import numpy as np
import pytest

from mlx_tx_conformance.bounds import bound_call
from mlx_tx_conformance.bounds.mlp import Errors, activation_error, routing_errors
from mlx_tx_conformance.call import DTYPES, Call
from mlx_tx_conformance.oracle import mlp

F = np.float32
RNG = np.random.default_rng(5)
ERF = np.vectorize(math.erf)
ACTS = {
    "relu": lambda x: np.maximum(x, 0),
    "silu": lambda x: x / (1 + np.exp(-x)),
    "gelu": lambda x: F(0.5) * x * (1 + ERF(x * F(math.sqrt(0.5))).astype(F)),
    "gelu_tanh": lambda x: F(0.5) * x * (1 + np.tanh(F(math.sqrt(2 / math.pi)) * (x + F(0.044715) * x**3))),
}
KINDS = {**{k: k for k in ACTS}, "swiglu": "silu", "geglu": "gelu", "geglu_tanh": "gelu_tanh"}


def call(kind, dtype="float32", std=1.0, **more):
    shapes = {"x": (2, 4, 24), "w_up": (24, 40), "w_gate": (24, 40), "w_down": (40, 24), **more}
    arrays = {
        name: RNG.standard_normal(shape) * (std if name == "x" else shape[0] ** -0.5) for name, shape in shapes.items()
    }
    return Call("mlp", {n: a.astype(DTYPES[dtype]) for n, a in arrays.items()}, {"kind": kind})


def network(given, *, act=None, lost=False, swapped=False):
    dtype = given.arrays["x"].dtype
    a = {name: array.astype(F) for name, array in given.arrays.items()}
    kind = given.options["kind"]
    act = ACTS[act or KINDS[kind]]
    up = (a["x"] @ a["w_up"] + a.get("b_up", F(0))).astype(dtype).astype(F)
    if kind in mlp.GATED:
        gate = (a["x"] @ a["w_gate"]).astype(dtype).astype(F)
        gate, up = (up, gate) if swapped else (gate, up)
        hidden = (act(gate).astype(dtype).astype(F) * up).astype(dtype).astype(F)
    else:
        hidden = act(up).astype(dtype).astype(F)
    if lost:
        hidden[..., 7] = 0
    return (hidden @ a["w_down"]).astype(dtype)


def headroom(given, actual):
    return float(bound_call(given, "f32-internal")["out"].headroom(actual).max())


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("std", [0.1, 1.0, 20.0])
def test_correct_code_stays_within_the_bound(kind, dtype, std):
    given = call(kind, dtype, std)
    assert headroom(given, network(given)) <= 1


@pytest.mark.parametrize(
    ("kind", "dtype", "fault"),
    [
        ("swiglu", "float32", {"act": "gelu"}),
        ("swiglu", "bfloat16", {"act": "gelu"}),
        ("geglu", "float32", {"act": "gelu_tanh"}),
        ("swiglu", "bfloat16", {"swapped": True}),
        ("relu", "float32", {"lost": True}),
        ("relu", "float16", {"lost": True}),
    ],
)
def test_faults_exceed_it(kind, dtype, fault):
    given = call(kind, dtype)
    assert headroom(given, network(given, **fault)) > 1


@pytest.mark.parametrize("kind", ["relu", "silu", "gelu", "gelu_tanh"])
def test_an_error_of_the_input_comes_out_within_what_is_allowed_for_it(kind):
    x = RNG.standard_normal(4000) * 3
    for dx in (1e-6, 1e-3, 0.3):
        moved = np.abs(mlp.PLAIN[kind](x + dx) - mlp.PLAIN[kind](x))
        assert np.all(moved <= activation_error(kind, x, np.full_like(x, dx)) * (1 + 1e-9) + 1e-12)


def test_a_choice_is_certain_where_the_gap_exceeds_both_errors():
    logits = np.array([[3.0, 2.0, 1.0], [3.0, 2.0, 1.9999]])
    error = np.full_like(logits, 1e-3)
    _, certain = routing_errors(Errors(logits, error, error), 2, True)
    assert certain[:, 0].tolist() == [True, False]
    exact = np.zeros_like(logits)
    assert routing_errors(Errors(logits, exact, exact), 2, True)[1].all()


def test_what_fits_the_dtype_is_stored_exactly():
    stored = Errors(np.array([0.5, 0.1]), np.zeros(2), np.zeros(2)).stored("bfloat16")
    assert stored.det[0] == 0
    assert stored.det[1] > 0


def test_tokens_without_a_certain_choice_are_not_decidable():
    arrays = {
        "x": RNG.standard_normal((1, 3, 8)),
        "w_router": np.repeat(RNG.standard_normal((8, 1)), 4, axis=1),
        "w_up": RNG.standard_normal((4, 8, 8)),
        "w_gate": RNG.standard_normal((4, 8, 8)),
        "w_down": RNG.standard_normal((4, 8, 8)),
    }
    options = {"top_k": 2, "norm_topk": True, "kind": "swiglu"}
    given = Call("moe", {n: a.astype(F) for n, a in arrays.items()}, options)
    assert not bound_call(given, "f32-internal")["out"].decidable.any()
