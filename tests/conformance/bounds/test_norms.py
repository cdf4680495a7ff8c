"""Bounds of the norms: correct float32 code stays within them, wrong formulas do not."""

import numpy as np
import pytest

from mlx_tx_conformance.bounds import bound_call
from mlx_tx_conformance.call import DTYPES, Call
from mlx_tx_conformance.oracle.norms import layer_norm, rms_norm

F = np.float32
RNG = np.random.default_rng(11)


def call(op, dtype="float32", shape=(3, 5, 64), std=1.0, shift=0.0, bias=False, **options):
    arrays = {"x": RNG.standard_normal(shape) * std + shift, "weight": RNG.standard_normal(shape[-1])}
    if bias:
        arrays["bias"] = RNG.standard_normal(shape[-1])
    return Call(op, {name: array.astype(DTYPES[dtype]) for name, array in arrays.items()}, options)


def plain(given, *, eps_outside=False, biased=False, statistics=F, one_pass=False):
    """The norm in float32, each sum sequential, rounded once."""
    x, eps = given.arrays["x"].astype(F), F(given.options.get("eps", 1e-5))
    weight = given.arrays["weight"].astype(F) + F(given.options.get("offset", 0.0))
    C = x.shape[-1]
    if given.op == "layer_norm":
        mean = np.cumsum(x, axis=-1)[..., -1:] / F(C)
        if one_pass:
            spread = np.cumsum(x * x, axis=-1)[..., -1:] / F(C) - mean * mean
        x = x - mean
    squares = (x.astype(statistics) ** 2).astype(F)
    square = np.cumsum(squares, axis=-1)[..., -1:] / F(C - 1 if biased else C)
    if one_pass:
        square = spread
    y = x / (np.sqrt(square) + eps) if eps_outside else x / np.sqrt(square + eps)
    y = y * weight
    if "bias" in given.arrays:
        y = y + given.arrays["bias"].astype(F)
    return y.astype(given.arrays["x"].dtype)


def headroom(given, actual):
    return float(bound_call(given, "f32-internal")["out"].headroom(actual).max())


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("op", ["rms_norm", "layer_norm"])
@pytest.mark.parametrize(
    "setting",
    [{}, {"std": 1e-3}, {"std": 100.0}, {"shift": 50.0}, {"offset": 1.0}, {"eps": 1e-3}, {"shape": (2, 3, 1000)}],
    ids=str,
)
def test_correct_code_stays_within_the_bound(op, dtype, setting):
    for bias in (False, True):
        given = call(op, dtype, bias=bias, **setting)
        assert headroom(given, plain(given)) <= 1


@pytest.mark.parametrize("op", ["rms_norm", "layer_norm"])
def test_the_value_is_the_oracles(op):
    given = call(op)
    oracle = {"rms_norm": rms_norm, "layer_norm": layer_norm}[op]
    np.testing.assert_array_equal(
        bound_call(given, "f32-internal")["out"].value, oracle(given.arrays["x"], given.arrays["weight"])
    )


@pytest.mark.parametrize(
    ("dtype", "setting", "fault"),
    [
        ("float32", {"std": 1e-3}, {"eps_outside": True}),
        ("float16", {"std": 1e-3}, {"eps_outside": True}),
        ("bfloat16", {"std": 1e-3}, {"eps_outside": True}),
        ("float32", {}, {"biased": True}),
        ("float16", {}, {"biased": True}),
        ("float32", {}, {"statistics": np.float16}),
    ],
)
@pytest.mark.parametrize("op", ["rms_norm", "layer_norm"])
def test_wrong_formulas_exceed_it(op, dtype, setting, fault):
    given = call(op, dtype, **setting)
    assert headroom(given, plain(given, **fault)) > 1


def test_a_variance_of_one_pass_cancels_far_from_zero():
    given = call("layer_norm", shift=1000.0)
    assert headroom(given, plain(given)) <= 1
    assert headroom(given, plain(given, one_pass=True)) > 3


def test_constant_rows_have_a_finite_bound():
    given = Call("layer_norm", {"x": np.full((1, 1, 64), 1234.5, F)}, {})
    bound = bound_call(given, "f32-internal")["out"]
    assert np.all(bound.value == 0)
    assert np.isfinite(bound.limit).all()
    assert bound.decidable.all()


def test_equal_terms_may_round_alike():
    rows = np.concatenate([np.full((1, 1, 256), 1.7), RNG.standard_normal((1, 1, 256))], axis=1).astype(F)
    limit = bound_call(Call("rms_norm", {"x": rows}, {}), "f32-internal")["out"]
    relative = limit.prob / np.abs(limit.value)
    assert relative[0, 0].mean() > 3 * np.median(relative[0, 1])
