"""The bound of an attention layer holds for correct code and not for wrong code."""

import numpy as np
import pytest

from mlx_tx_conformance.bounds import bound_call
from mlx_tx_conformance.bounds.reference import Plain
from mlx_tx_conformance.call import DTYPES, Call
from mlx_tx_conformance.oracle.layers import attention_layer, merge_heads, split_heads

from .test_rope import float32_rope

F = np.float32


def call(dtype="float32", T=12, d_model=32, N_q=4, N_kv=2, D=8, seed=0, memory=0, biases=False, **options):
    rng = np.random.default_rng(seed)
    arrays = {"x": rng.standard_normal((2, T, d_model))}
    if memory:
        arrays["memory"] = rng.standard_normal((2, memory, d_model))
    for name, shape in {
        "w_q": (d_model, N_q * D),
        "w_k": (d_model, N_kv * D),
        "w_v": (d_model, N_kv * D),
        "w_o": (N_q * D, d_model),
    }.items():
        arrays[name] = rng.standard_normal(shape) / np.sqrt(shape[0])
        if biases:
            arrays["b" + name[1:]] = rng.standard_normal(shape[1])
    return Call(
        "attention_layer",
        {name: array.astype(DTYPES[dtype]) for name, array in arrays.items()},
        {"N_q": N_q, "N_kv": N_kv, **options},
    )


def run(given, rope_on=("q", "k"), scale=None):
    """The layer in float32 with every stage stored in the dtype."""
    a, dtype = given.arrays, DTYPES[given.dtype]

    def project(x, name):
        y = x.astype(F) @ a[f"w_{name}"].astype(F)
        return (y + a[f"b_{name}"].astype(F) if f"b_{name}" in a else y).astype(dtype)

    target = a.get("memory", a["x"])
    heads = {
        "q": split_heads(project(a["x"], "q"), given.options["N_q"]),
        "k": split_heads(project(target, "k"), given.options["N_kv"]),
        "v": split_heads(project(target, "v"), given.options["N_kv"]),
    }
    rope = given.options.get("rope")
    if rope:
        for name in rope_on:
            heads[name] = float32_rope(heads[name], **({} if rope is True else rope))
    options = {"causal": given.options.get("causal", False)} | ({"scale": scale} if scale else {})
    inner = Plain(given.dtype != "float32")(Call("attention", heads, options))
    return {
        "q_heads": heads["q"],
        "heads_out": inner["out"],
        "lse": inner["lse"],
        "out": project(merge_heads(inner["out"]), "o"),
    }


def default(dtype):
    return "f32-internal" if dtype == "float32" else "P"


VARIANTS = {
    "plain": {},
    "causal, rope": {"causal": True, "rope": True},
    "rope with arguments": {"rope": {"base": 500.0, "traditional": True, "offset": 40}},
    "memory": {"memory": 7},
    "biases": {"biases": True},
    "one head": {"N_q": 1, "N_kv": 1},
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", VARIANTS)
def test_correct_layers_stay_within_the_bound_at_every_stage(name, dtype):
    for seed in range(3):
        given = call(dtype, seed=seed, **VARIANTS[name])
        bounds = bound_call(given, default(dtype))
        for name_of_stage, actual in run(given).items():
            rotated = name_of_stage == "q_heads" and "rope" in given.options
            stage = "q_rotated" if rotated else name_of_stage
            assert bounds[stage].headroom(actual).max() <= 1, (stage, seed)
            assert bounds[stage].decidable.all()


@pytest.mark.parametrize("name", VARIANTS)
def test_values_are_the_oracles_at_every_stage(name):
    given = call(**VARIANTS[name])
    weights = {n: x for n, x in given.arrays.items() if n[:2] in ("w_", "b_")}
    options = dict(given.options)
    if options.get("rope") is True:
        options["rope"] = {}
    stages = attention_layer(given.arrays["x"], weights, memory=given.arrays.get("memory"), **options)
    bounds = bound_call(given, "f32-internal")
    assert {"q", "k", "v", "q_heads", "merged", "out", "lse", "heads_out"} <= set(bounds) <= set(stages)
    for stage, held in bounds.items():
        np.testing.assert_allclose(held.value, stages[stage], rtol=1e-12, atol=1e-13, err_msg=stage)


@pytest.mark.parametrize("dtype", DTYPES)
def test_wrong_layers_exceed_the_bound(dtype):
    given = call(dtype, rope=True, T=24, d_model=64, D=16)
    held = bound_call(given, default(dtype))["out"]
    assert held.headroom(run(given)["out"]).max() <= 1
    assert held.headroom(run(given, rope_on=("q",))["out"]).max() > 1
    assert held.headroom(run(given, scale=64**-0.5)["out"]).max() > 1
    swapped = given.with_arrays(w_q=given.arrays["w_q"][:, ::-1])
    assert held.headroom(run(swapped)["out"]).max() > 1


def test_bounds_grow_along_the_layer_but_stay_useful():
    bounds = bound_call(call(rope=True), "f32-internal")
    errors = [float(np.median(bounds[name].limit)) for name in ("q", "q_rotated", "heads_out", "out")]
    assert errors == sorted(errors)
    assert errors[-1] < 2e-4


def test_an_error_of_the_input_reaches_the_output():
    given = call()
    error = {"x": np.full(given.arrays["x"].shape, 1e-4)}
    with_error = bound_call(given, "f32-internal", input_error=error)["out"]
    assert (with_error.limit > 5 * bound_call(given, "f32-internal")["out"].limit).all()
    weights = {n: x for n, x in given.arrays.items() if n.startswith("w_")}
    rng = np.random.default_rng(0)
    for _ in range(20):
        x = given.arrays["x"] + error["x"] * rng.choice([-1, 1], error["x"].shape)
        moved = attention_layer(x, weights, N_q=4, N_kv=2)["out"]
        assert (np.abs(moved - with_error.value) <= with_error.limit).all()
