"""Bounds of attention against the formulas written out, and at their edges."""

import math

import numpy as np
import pytest

from mlx_tx_conformance.bounds import bound_call, precision_class, problem
from mlx_tx_conformance.bounds.units import UNITS, U
from mlx_tx_conformance.call import DTYPES, Call
from mlx_tx_conformance.oracle.attention import attention

from .naive import row_bounds

INF = np.inf


def call(dtype="float32", B=1, N_q=1, N_kv=1, T_q=3, T_kv=5, D=4, D_v=3, seed=0, std=1.0, arrays=None, **options):
    rng = np.random.default_rng(seed)
    shapes = {"q": (B, N_q, T_q, D), "k": (B, N_kv, T_kv, D), "v": (B, N_kv, T_kv, D_v)}
    made = {
        name: (rng.standard_normal(shape) * (1.0 if name == "v" else std)).astype(DTYPES[dtype])
        for name, shape in shapes.items()
    }
    extra = {name: array.astype(DTYPES[dtype]) if name in shapes else array for name, array in (arrays or {}).items()}
    return Call("attention", {**made, **extra}, options, {}, ("out", "lse"))


def f64(array):
    return array.astype(np.float64)


VARIANTS = {
    "plain": {},
    "spread": {"std": 3.0},
    "cap": {"softcap": 2.0, "std": 2.0},
    "bias": {"arrays": {"bias": np.linspace(-3, 3, 15, dtype=np.float32).reshape(3, 5)}},
    "hidden": {"arrays": {"mask": np.array([[1, 0, 1, 1, 0], [0, 1, 0, 0, 0], [1, 1, 1, 1, 1]], dtype=bool)}},
    "sink": {"arrays": {"sinks": np.array([1.5], dtype=np.float32)}},
    "high sink": {"arrays": {"sinks": np.array([9.0], dtype=np.float32)}},
    "equal keys": {"arrays": {"k": np.ones((1, 1, 5, 4), np.float32)}},
    "long": {"T_kv": 40, "std": 0.1},
}


@pytest.mark.parametrize("precision", ["f32-internal", "P", "split", "P+fast-exp"])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_both_forms_are_the_formulas_written_out(variant, dtype, precision):
    given = call(dtype, **VARIANTS[variant])
    bounds = bound_call(given, precision)
    arrays, kind, rounding = given.arrays, UNITS[dtype], precision_class(precision)
    stages = attention(
        arrays["q"], arrays["k"], arrays["v"], softcap=given.options.get("softcap"), mask=arrays.get("mask"),
        bias=arrays.get("bias"), sinks=arrays.get("sinks"),
    )  # fmt: skip
    for i in range(3):
        channels, lse, _ = row_bounds(
            f64(arrays["q"][0, 0, i]), f64(arrays["k"][0, 0]), f64(arrays["v"][0, 0]), stages.allowed[0, 0, i],
            stages.scale, cap=given.options.get("softcap"), term=f64(arrays["bias"][i]) if "bias" in arrays else None,
            sink=float(arrays["sinks"][0]) if "sinks" in arrays else None, ub=kind.u, tau=kind.tau,
            dtype=kind.dtype if rounding.rounds_weights and dtype != "float32" else np.float64,
            rounds=rounding.rounds_weights, partials=rounding.rounds_partials, slope=rounding.exp_slope,
        )  # fmt: skip
        o = np.abs(stages.out[0, 0, i])
        for form in ("det", "prob"):
            inner = np.array([getattr(channel, form) for channel in channels])
            expected = inner + kind.u * (o + inner) + kind.tau
            np.testing.assert_allclose(getattr(bounds["out"], form)[0, 0, i], expected, rtol=1e-9)
            assert getattr(bounds["lse"], form)[0, 0, i] == pytest.approx(getattr(lse, form), rel=1e-9)


def test_values_are_the_oracles():
    given = call(N_q=4, N_kv=2, B=2, causal=True)
    bounds = bound_call(given, "f32-internal")
    stages = attention(*(given.arrays[name] for name in "qkv"), causal=True)
    np.testing.assert_array_equal(bounds["out"].value, stages.out)
    np.testing.assert_array_equal(bounds["lse"].value, stages.lse)


@pytest.mark.parametrize("elements", [1, 30, 10**9])
def test_the_bound_does_not_depend_on_how_it_is_tiled(monkeypatch, elements):
    given = call("float16", B=2, N_q=4, N_kv=2, T_q=6, T_kv=9, causal=True, softcap=5.0, alibi=True)
    whole = bound_call(given, "P")
    monkeypatch.setattr(problem, "_TILE_ELEMENTS", elements)
    tiled = bound_call(given, "P")
    for name in ("out", "lse"):
        np.testing.assert_allclose(tiled[name].det, whole[name].det, rtol=1e-12)
        np.testing.assert_allclose(tiled[name].prob, whole[name].prob, rtol=1e-12)


def test_a_head_has_the_bound_that_it_has_alone():
    given = call("float16", B=2, N_q=4, N_kv=2, softcap=3.0)
    sinks = np.linspace(-1, 1, 4, dtype=np.float16)
    whole = bound_call(given.with_arrays(sinks=sinks), "P")["out"]
    b, h = 1, 2  # of the second K/V head
    one = {
        "q": given.arrays["q"][b : b + 1, h : h + 1],
        "k": given.arrays["k"][b : b + 1, 1:],
        "v": given.arrays["v"][b : b + 1, 1:],
        "sinks": sinks[h : h + 1],
    }
    alone = bound_call(given.with_arrays(**one), "P")["out"]
    np.testing.assert_allclose(whole.det[b, h], alone.det[0, 0], rtol=1e-12)
    np.testing.assert_allclose(whole.prob[b, h], alone.prob[0, 0], rtol=1e-12)


def test_a_row_that_sees_no_key_must_be_exactly_zero_and_its_lse_minus_infinity():
    bounds = bound_call(call(T_q=5, T_kv=3, causal=True), "f32-internal")
    assert bounds["out"].limit[0, 0, :2].max() == 0.0
    assert bounds["out"].limit[0, 0, 2:].min() > 0.0
    assert bounds["lse"].value[0, 0, :2].tolist() == [-INF, -INF]
    assert bounds["lse"].limit[0, 0, :2].tolist() == [0.0, 0.0]
    assert bounds["out"].decidable.all()
    assert bounds["lse"].decidable.all()


def test_a_row_with_a_sink_alone_is_exactly_zero_and_its_lse_is_the_sink():
    sinks = {"sinks": np.array([2.5], np.float32)}
    bounds = bound_call(call(T_q=5, T_kv=3, causal=True, arrays=sinks), "f32-internal")
    assert bounds["out"].limit[0, 0, 0].max() == 0.0
    assert bounds["lse"].value[0, 0, 0] == 2.5
    assert 0.0 < bounds["lse"].limit[0, 0, 0] < 40 * U


def test_no_keys_and_no_queries_have_bounds_of_the_right_shape():
    assert bound_call(call(T_kv=0), "f32-internal")["out"].limit.tolist() == np.zeros((1, 1, 3, 3)).tolist()
    assert bound_call(call(T_q=0), "P")["out"].limit.shape == (1, 1, 0, 3)


def test_what_nobody_sees_may_be_nan_or_infinite():
    given = call(arrays={"kv_lengths": np.array([3], np.int32)})
    spoilt = {name: given.arrays[name].copy() for name in "kv"}
    spoilt["k"][0, 0, 3], spoilt["v"][0, 0, 4] = np.nan, INF
    clean, dirty = bound_call(given, "f32-internal"), bound_call(given.with_arrays(**spoilt), "f32-internal")
    np.testing.assert_array_equal(clean["out"].limit, dirty["out"].limit)
    assert dirty["out"].decidable.all()


def test_a_live_nan_is_not_decidable():
    given = call()
    k = given.arrays["k"].copy()
    k[0, 0, 2, 0] = np.nan
    bounds = bound_call(given.with_arrays(k=k), "f32-internal")
    assert not bounds["out"].decidable.any()


def test_scores_whose_roundings_reach_one_are_not_decidable():
    given = call(std=1e5)
    assert bound_call(call(std=1e2), "f32-internal")["out"].decidable.all()
    # Two equal far keys: their difference is rounding alone.
    low = np.full((1, 1, 3, 5), -1e9, np.float32)
    masked = bound_call(given.with_arrays(mask=low, q=given.arrays["q"] * 0), "f32-internal")
    assert not masked["out"].decidable.any()
    assert not masked["lse"].decidable.any()


def test_a_far_masked_key_beside_near_ones_costs_nothing():
    given = call()
    mask = np.zeros((3, 5), np.float32)
    mask[:, 4] = -1e9
    hidden = np.ones((3, 5), dtype=bool)
    hidden[:, 4] = False
    far = bound_call(given.with_arrays(mask=mask), "f32-internal")["out"].limit
    exact = bound_call(given.with_arrays(mask=hidden), "f32-internal")["out"].limit
    np.testing.assert_allclose(far, exact, rtol=0.5)


def test_constant_values_hide_the_errors_of_the_scores():
    given = call(std=2.0, D=32, T_kv=20)
    constant = given.with_arrays(v=np.ones_like(given.arrays["v"]))
    # What remains is the accumulation: gamma(n) twice, with n below 1 + 20 + 2 + 30.
    assert bound_call(constant, "f32-internal")["out"].det.max() < 120 * U
    assert bound_call(given, "f32-internal")["out"].det.max() > 500 * U


def test_the_bound_scales_with_the_values():
    given = call("bfloat16")
    wide = given.with_arrays(v=(given.arrays["v"].astype(np.float32) * 1024).astype(DTYPES["bfloat16"]))
    np.testing.assert_allclose(
        bound_call(wide, "P")["out"].limit, 1024 * bound_call(given, "P")["out"].limit, rtol=1e-6
    )


@pytest.mark.parametrize(("name", "extra"), [("P", "f32-internal"), ("split", "P"), ("P+fast-exp", "P")])
def test_a_class_with_more_roundings_allows_more(name, extra):
    given = call("float16", T_kv=30)
    more, less = bound_call(given, name)["out"], bound_call(given, extra)["out"]
    assert (more.det > less.det).all()
    assert (more.prob > less.prob).all()


def test_terms_of_the_score_cost_their_size():
    bias = np.full((3, 5), 100.0, np.float32)
    given = call()
    plain, both = (
        bound_call(given.with_arrays(**arrays), "f32-internal")["lse"].det.max()
        for arrays in ({"bias": bias}, {"bias": bias, "mask": -bias})
    )
    # The sum of the two is small, and what came in between is not.
    assert bound_call(given, "f32-internal")["lse"].det.max() < 150 * U
    assert both > 500 * U
    assert plain > 500 * U


def test_standard_slopes_cost_more_than_given_ones():
    given = call(T_kv=200, T_q=2)
    slopes = np.array([2.0**-8], np.float32)
    given_ones = bound_call(given.with_arrays(alibi=slopes), "f32-internal")["lse"].det
    standard = bound_call(given.with_options(alibi=True), "f32-internal")["lse"].det
    assert (standard > given_ones).all()


class TestIncomingErrors:
    """An input known to a bound only: the result of any input within it lies within the bound of the result."""

    def errors(self, given, names, size=2e-3):
        return {name: np.abs(f64(given.arrays[name])) * size + 1e-6 for name in names}

    @pytest.mark.parametrize("names", ["q", "k", "v", "qk", "qkv"])
    @pytest.mark.parametrize("options", [{}, {"softcap": 1.0}, {"causal": True}])
    def test_the_true_result_of_every_input_within_the_error_is_within_the_bound(self, names, options):
        given = call(T_q=4, T_kv=12, D=8, std=1.5, **options)
        errors = self.errors(given, names)
        bounds = bound_call(given, "f32-internal", input_error=errors)
        rng = np.random.default_rng(1)
        worst = 0.0
        for _ in range(200):
            moved = {
                name: f64(array) + (errors[name] * rng.choice([-1, 1], array.shape) if name in errors else 0)
                for name, array in given.arrays.items()
            }
            stages = attention(moved["q"], moved["k"], moved["v"], **options)
            for form in ("det", "prob"):
                for name, value in (("out", stages.out), ("lse", stages.lse)):
                    live = np.isfinite(value)
                    gap = np.abs(value - bounds[name].value)[live]
                    assert (gap <= getattr(bounds[name], form)[live]).all()
            worst = max(worst, float((np.abs(stages.out - bounds["out"].value) / bounds["out"].limit).max()))
        assert worst > 0.1, "the bound is far above what the errors can do"

    def test_an_error_of_the_values_passes_through_the_weights(self):
        given = call()
        errors = {"v": np.full((1, 1, 5, 3), 0.25)}
        with_error = bound_call(given, "f32-internal", input_error=errors)["out"]
        without = bound_call(given, "f32-internal")["out"]
        np.testing.assert_allclose(with_error.limit - without.limit, 0.25, rtol=1e-4)

    def test_an_infinite_error_is_not_decidable(self):
        given = call()
        errors = {"q": np.full((1, 1, 3, 4), INF)}
        assert not bound_call(given, "f32-internal", input_error=errors)["out"].decidable.any()

    def test_coherent_errors_of_scores_shift_the_lse_whole(self):
        given = call(
            T_q=1, D=1, arrays={"q": np.ones((1, 1, 1, 1), np.float32), "k": np.ones((1, 1, 5, 1), np.float32)}
        )
        errors = {"q": np.full((1, 1, 1, 1), 1e-3)}
        assert bound_call(given, "f32-internal", input_error=errors)["lse"].limit[0, 0, 0] == pytest.approx(
            math.expm1(1e-3), rel=1e-2
        )

    def test_roundings_of_weights_grow_with_what_comes_in(self):
        c = 0.3
        ones = {"q": np.ones((1, 1, 1, 1), np.float32), "k": np.ones((1, 1, 5, 1), np.float32)}
        held = bound_call(call(T_q=1, D=1, arrays=ones), "f32-internal", input_error={"q": np.full((1, 1, 1, 1), c)})[
            "lse"
        ]
        # Five equal keys with score 1: 14 additions, all alike, and every weight a fifth.
        eta = (math.expm1(U * math.sqrt(4.5) + 2 * U) + 28 * U) * math.exp(c)
        error = 4 * math.sqrt(eta**2 + U**2 * 14 * 5) + 3 * U + math.expm1(c)
        rounding = U * (3 + 6 * math.log(5) + 1 + math.log(5) + 4)
        assert held.prob[0, 0, 0] == pytest.approx(error / (1 - eta - math.expm1(c)) + rounding, rel=1e-9)
