"""Bounds of gradients against the formulas written out, at their edges, and against wrong backward passes."""

import numpy as np
import pytest

from mlx_tx_conformance.bounds import bound_call, problem
from mlx_tx_conformance.bounds.reference_gradients import Backward32
from mlx_tx_conformance.bounds.units import UNITS
from mlx_tx_conformance.call import DTYPES, Call
from mlx_tx_conformance.oracle.attention import attention
from mlx_tx_conformance.oracle.gradients import attention_gradients

from .naive_gradients import gradient_bounds


def call(dtype="float32", B=1, N_q=1, N_kv=1, T_q=3, T_kv=5, D=4, D_v=3, seed=0, std=1.0, arrays=None, **options):
    rng = np.random.default_rng(seed)
    shapes = {
        "q": (B, N_q, T_q, D),
        "k": (B, N_kv, T_kv, D),
        "v": (B, N_kv, T_kv, D_v),
        "d_out": (B, N_q, T_q, D_v),
    }
    made = {
        name: (rng.standard_normal(shape) * (std if name in "qk" else 1.0)).astype(DTYPES[dtype])
        for name, shape in shapes.items()
    }
    extra = {name: array.astype(DTYPES[dtype]) if name in shapes else array for name, array in (arrays or {}).items()}
    return Call("attention_gradients", {**made, **extra}, options, {}, ("q", "k", "v"))


def f64(array):
    return array.astype(np.float64)


def default(dtype):
    return "f32-internal" if dtype == "float32" else "P"


VARIANTS = {
    "plain": {},
    "cap": {"softcap": 2.0, "std": 2.0},
    "bias": {"arrays": {"bias": np.linspace(-3, 3, 15, dtype=np.float32).reshape(3, 5)}},
    "hidden": {"arrays": {"mask": np.array([[1, 0, 1, 1, 0], [0, 1, 0, 0, 0], [1, 1, 1, 1, 1]], dtype=bool)}},
    "sink": {"arrays": {"sinks": np.array([1.5], dtype=np.float32)}},
    "equal channels": {"arrays": {"v": np.linspace(1, 2, 5, dtype=np.float32).reshape(1, 1, 5, 1) * np.ones((1, 3))}},
    "lse": {"arrays": {"d_lse": np.array([[[0.5, -2.0, 1.0]]], dtype=np.float32)}},
}


@pytest.mark.parametrize("precision", ["f32-internal", "P"])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_both_forms_are_the_formulas_written_out(variant, dtype, precision):
    given = call(dtype, **VARIANTS[variant])
    bounds = bound_call(given, precision)
    arrays, kind, rounds = given.arrays, UNITS[dtype], precision == "P"
    stages = attention(
        arrays["q"], arrays["k"], arrays["v"], softcap=given.options.get("softcap"), mask=arrays.get("mask"),
        bias=arrays.get("bias"), sinks=arrays.get("sinks"),
    )  # fmt: skip
    expected = gradient_bounds(
        *(f64(arrays[name][0, 0]) for name in ("q", "k", "v", "d_out")),
        f64(arrays["d_lse"][0, 0]) if "d_lse" in arrays else np.zeros(3), stages.allowed[0, 0], stages.scale,
        cap=given.options.get("softcap"), term=f64(arrays["bias"]) if "bias" in arrays else None,
        sink=float(arrays["sinks"][0]) if "sinks" in arrays else None, ub=kind.u, tau=kind.tau,
        dtype=kind.dtype if rounds and dtype != "float32" else np.float64, rounds=rounds,
    )  # fmt: skip
    for name in ("q", "k", "v", *({"bias", "sinks"} & arrays.keys())):
        held, unit = bounds[name], UNITS["float32"] if name in ("bias", "sinks") else kind
        value = np.abs(held.value)
        for form in ("det", "prob"):
            cells = [getattr(c, form) for line in expected[name] for c in (line if isinstance(line, list) else [line])]
            inner = np.array(cells).reshape(value.shape)
            result = inner + unit.u * (value + inner) + unit.tau
            np.testing.assert_allclose(getattr(held, form), result, rtol=1e-8, atol=1e-40, err_msg=f"{name} {form}")


def test_values_are_the_oracles():
    given = call(N_q=4, N_kv=2, B=2, causal=True)
    bounds = bound_call(given, "f32-internal")
    expected = attention_gradients(*(given.arrays[name] for name in ("q", "k", "v", "d_out")), causal=True)
    for name in "qkv":
        np.testing.assert_array_equal(bounds[name].value, expected[name])


def rich(dtype="float16", **rest):
    rng = np.random.default_rng(7)
    arrays = {
        "bias": rng.standard_normal((1, 4, 1, 9)).astype(np.float32),
        "mask": np.where(rng.random((2, 1, 6, 9)) < 0.7, 0.25, -np.inf).astype(np.float32),
        "sinks": rng.standard_normal(4).astype(np.float32),
        "d_lse": rng.standard_normal((2, 4, 6)).astype(np.float32),
    }
    return call(dtype, B=2, N_q=4, N_kv=2, T_q=6, T_kv=9, arrays=arrays, softcap=5.0, **rest)


@pytest.mark.parametrize("elements", [1, 30, 10**9])
def test_the_bound_does_not_depend_on_how_it_is_tiled(monkeypatch, elements):
    whole = bound_call(rich(), "P")
    monkeypatch.setattr(problem, "_TILE_ELEMENTS", elements)
    tiled = bound_call(rich(), "P")
    assert set(whole) == {"q", "k", "v", "bias", "mask", "sinks"}
    for name, held in whole.items():
        np.testing.assert_allclose(tiled[name].det, held.det, rtol=1e-12, err_msg=name)
        np.testing.assert_allclose(tiled[name].prob, held.prob, rtol=1e-12, err_msg=name)


def test_shared_key_heads_sum_over_their_query_heads():
    """Two query heads on one K/V head are the rows of one head with twice the queries."""
    two = call(N_q=2, N_kv=1, T_q=3)
    joined = two.with_arrays(
        **{name: two.arrays[name].reshape(1, 1, 6, -1) for name in ("q", "d_out")}, mask=np.ones((6, 5), dtype=bool)
    )
    apart, together = bound_call(two, "f32-internal"), bound_call(joined, "f32-internal")
    for name in "kv":
        np.testing.assert_allclose(apart[name].det, together[name].det, rtol=1e-12)
        np.testing.assert_allclose(apart[name].prob, together[name].prob, rtol=1e-12)


def test_equal_query_rows_err_alike_in_the_sums_over_rows():
    given = call(T_q=16, T_kv=4)
    repeated = {name: np.repeat(given.arrays[name][:, :, :1], 16, axis=2) for name in ("q", "d_out")}
    alike = bound_call(given.with_arrays(**repeated), "f32-internal")
    one = bound_call(given.with_arrays(**{name: x[:, :, :1] for name, x in repeated.items()}), "f32-internal")
    # Sixteen times the same error, and not four times.
    for name in "kv":
        assert (alike[name].prob > 10 * one[name].prob).all()


@pytest.mark.parametrize("shape", [(1, 1, 6, 9), (2, 4, 6, 1), (1, 1, 1, 1), (6, 9), (1, 9), (2, 1, 1, 9)])
def test_a_broadcast_bias_sums_over_the_axes_it_lacks(shape):
    given = rich("float32")
    wide = given.arrays["bias"] * np.ones((2, 4, 6, 9), np.float32)
    narrow = given.with_arrays(bias=np.zeros(shape, np.float32))
    held = bound_call(narrow, "f32-internal")["bias"]
    assert held.value.shape == shape
    full = bound_call(given.with_arrays(bias=wide * 0), "f32-internal")["bias"]
    axes = tuple(axis for axis, size in enumerate((1,) * (4 - len(shape)) + shape) if size == 1)
    assert (held.det >= full.det.sum(axes).reshape(shape) * (1 - 1e-6) - 1e-37).all()
    actual = Backward32()(narrow)["bias"]
    assert held.headroom(actual).max() <= 1


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_correct_backward_passes_stay_within_the_bound(dtype):
    for seed in range(6):
        given = rich(dtype, seed=seed)
        bounds = bound_call(given, default(dtype))
        for from_lse in (True, False):
            for name, actual in Backward32(dtype != "float32", from_lse)(given).items():
                assert bounds[name].headroom(actual).max() <= 1, (seed, name)


def test_keys_and_mask_entries_that_nobody_sees_get_exactly_zero():
    given = call(arrays={"kv_lengths": np.array([3], np.int32)})
    bounds = bound_call(given, "f32-internal")
    for name in "kv":
        assert (bounds[name].value[0, 0, 3:] == 0).all()
        assert (bounds[name].limit[0, 0, 3:] < 1e-36).all()
        assert (bounds[name].limit[0, 0, :3] > 1e-9).all()


def test_a_row_without_keys_sends_back_nothing():
    given = call(T_q=5, T_kv=3, causal=True)
    bounds = bound_call(given, "f32-internal")
    assert (bounds["q"].value[0, 0, :2] == 0).all()
    assert (bounds["q"].limit[0, 0, :2] < 1e-36).all()


def test_forward_outputs_of_the_same_call_are_bounded_too():
    given = Call("attention_gradients", call().arrays, {}, {}, ("q", "out", "lse"))
    bounds = bound_call(given, "f32-internal")
    forward = bound_call(Call("attention", {n: given.arrays[n] for n in "qkv"}, {}), "f32-internal")
    for name in ("out", "lse"):
        np.testing.assert_array_equal(bounds[name].limit, forward[name].limit)


@pytest.mark.parametrize("names", [("q",), ("k",), ("v",), ("d_out",), ("q", "k", "v", "d_out")])
def test_incoming_errors_are_within_the_bound(names):
    given = call(T_q=4, T_kv=7, D=8)
    errors = {name: np.abs(f64(given.arrays[name])) * 1e-3 for name in names}
    bounds = bound_call(given, "f32-internal", input_error=errors)
    rng = np.random.default_rng(3)
    worst = 0.0
    for _ in range(100):
        moved = {
            name: f64(array) + (errors[name] * rng.choice([-1, 1], array.shape) if name in errors else 0)
            for name, array in given.arrays.items()
        }
        values = attention_gradients(*(moved[name] for name in ("q", "k", "v", "d_out")))
        ratios = [np.abs(values[name] - bounds[name].value) / bounds[name].limit for name in "qkv"]
        worst = max(worst, *(float(ratio.max()) for ratio in ratios))
    assert 0.02 < worst <= 1


class WithoutDelta(Backward32):
    """dS = p dP."""

    def _gradients(self, given, forward, call):
        result = super()._gradients(given, forward, call)
        zero = call.with_arrays(d_out=np.zeros_like(call.arrays["d_out"]))
        return result | {"q": result["q"] + self.shift(call) + 0 * super()._gradients(given, forward, zero)["q"]}

    @staticmethod
    def shift(call):
        stages = attention(*(call.arrays[name] for name in "qkv"))
        delta = (f64(call.arrays["d_out"]) * stages.out).sum(-1, keepdims=True)
        return (stages.scale * (stages.weights * delta) @ f64(call.arrays["k"])).astype(np.float32)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_wrong_gradients_exceed_the_bound(dtype):
    given = call(dtype, T_q=16, T_kv=64, D=32, D_v=32, seed=2)
    bounds = bound_call(given, default(dtype))
    right = Backward32(dtype != "float32")(given)
    no_delta = WithoutDelta(dtype != "float32")(given)["q"]
    without_last = {name: x[:, :, :-1] if name in ("q", "d_out") else x for name, x in given.arrays.items()}
    row_lost = Backward32(dtype != "float32")(given.with_arrays(**without_last))["v"]
    assert bounds["q"].headroom(right["q"]).max() <= 1
    assert bounds["q"].headroom(no_delta).max() > 3
    assert bounds["v"].headroom(right["v"]).max() <= 1
    assert bounds["v"].headroom(row_lost).max() > 3


def test_a_scale_off_by_a_256th_exceeds_the_bound_in_float32():
    given = call(T_q=16, T_kv=64, D=32, D_v=32, seed=2)
    bounds = bound_call(given, "f32-internal")
    right = Backward32()(given)
    for name in "qk":
        wrong = (f64(right[name]) * (1 + 2.0**-8)).astype(np.float32)
        assert bounds[name].headroom(wrong).max() > 10
