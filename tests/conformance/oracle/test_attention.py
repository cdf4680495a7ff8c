"""The oracle's attention against the naive derivation, and its edges by hand."""

from __future__ import annotations

import dataclasses
import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlx_tx_conformance.oracle.attention import AttentionStages, attention

from .cases import CASES, IDS, Case, Dims, with_infs
from .naive import floats, may_see, naive_attention

INF = np.inf
FEATURES = ["causal", "window", "lengths", "segments", "boolean", "additive", "bias", "alibi", "softcap", "sinks"]


def assert_equal_to_naive(stages: AttentionStages, case: Case) -> None:
    arrays, options, d = case.arrays(), case.options(), case.dims
    expected = naive_attention(arrays["q"], arrays["k"], arrays["v"], **options)
    for name in ("out", "lse", "weights", "sink_weight"):
        np.testing.assert_allclose(getattr(stages, name), floats(expected[name]), rtol=1e-12, atol=1e-14, err_msg=name)
    allowed = [
        may_see(b, h, i, j, d.T_q, d.T_kv, options)
        for b in range(d.B)
        for h in range(d.N_q)
        for i in range(d.T_q)
        for j in range(d.T_kv)
    ]
    assert stages.allowed.ravel().tolist() == allowed


def test_cases_have_names_of_their_own():
    assert len(set(IDS)) == len(CASES)


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_equals_the_naive_derivation(case):
    arrays = case.arrays()
    stages = attention(arrays["q"], arrays["k"], arrays["v"], **case.options())
    assert_equal_to_naive(stages, case)


@st.composite
def any_case(draw) -> Case:
    """Dims and options drawn together: every combination that the interface allows."""
    shared, N_kv = draw(st.integers(1, 3)), draw(st.integers(1, 2))
    d = Dims(
        B=draw(st.integers(1, 2)),
        N_q=shared * N_kv,
        N_kv=N_kv,
        T_q=draw(st.integers(0, 4)),
        T_kv=draw(st.integers(0, 4)),
        D=draw(st.integers(1, 3)),
        D_v=draw(st.integers(1, 3)),
    )
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    chosen = draw(st.sets(st.sampled_from(FEATURES)))
    shape = tuple(draw(st.sampled_from([1, size])) for size in (d.B, d.N_q, d.T_q, d.T_kv))[draw(st.integers(0, 2)) :]
    options: dict = {"q_offset": draw(st.sampled_from([0, -1, 2, "rows"]))}
    if options["q_offset"] == "rows":
        options["q_offset"] = rng.integers(-2, 4, d.B)
    if "causal" in chosen:
        options["causal"] = True
    if "window" in chosen:
        options["window"] = draw(st.sampled_from([1, 2, 3, (0, 0), (1, 2), (None, 0), (1, None), (None, None)]))
    if "lengths" in chosen:
        options["kv_lengths"] = rng.integers(0, d.T_kv + 1, d.B)
    if "segments" in chosen:
        options["segments"] = (rng.integers(0, 2, (d.B, d.T_q)), rng.integers(0, 2, (d.B, d.T_kv)))
    if "boolean" in chosen:
        options["mask"] = rng.random(shape) < 0.6
    elif "additive" in chosen:
        options["mask"] = with_infs(rng, shape)
    if "bias" in chosen:
        options["bias"] = rng.normal(size=(d.N_q, 1, d.T_kv))
    if "alibi" in chosen:
        options["alibi"] = rng.random((d.B, d.N_q))
    if "softcap" in chosen:
        options["softcap"] = 1.25
    if "sinks" in chosen:
        options["sinks"] = rng.normal(size=d.N_q)
    return Case(f"drawn-{rng.integers(2**32)}", d, lambda rng, d: options)


@settings(max_examples=150, deadline=None, derandomize=True, database=None)
@given(any_case())
def test_any_combination_of_options_equals_the_naive_derivation(case):
    arrays = case.arrays()
    assert_equal_to_naive(attention(arrays["q"], arrays["k"], arrays["v"], **case.options()), case)


def test_stages_by_hand():
    # The query stands at the second key; ALiBi takes 0.5 from the first, bias gives it 1, the mask hides the second.
    q, k, v = [[[[1.0]]]], [[[[1.0], [2.0]]]], [[[[10.0], [20.0]]]]
    stages = attention(q, k, v, scale=2.0, alibi=[0.5], bias=[[1.0, 0.0]], mask=[[0.0, -INF]], sinks=[2.5])
    assert stages.scores.tolist() == [[[[2.0, 4.0]]]]
    assert stages.capped.tolist() == [[[[2.0, 4.0]]]]
    assert stages.biased.tolist() == [[[[2.5, 4.0]]]]
    assert stages.allowed.tolist() == [[[[True, False]]]]
    assert stages.weights.tolist() == [[[[0.5, 0.0]]]]
    assert stages.sink_weight.tolist() == [[[0.5]]]
    assert stages.out.tolist() == [[[[5.0]]]]
    np.testing.assert_allclose(stages.lse, 2.5 + np.log(2.0), rtol=1e-15)
    assert stages.scale == 2.0


def test_softcap_by_hand():
    # tanh(ln 2) = (4 - 1) / (4 + 1) = 0.6
    stages = attention([[[[1.0]]]], [[[[np.log(2.0)]]]], [[[[1.0]]]], scale=4.0, softcap=4.0)
    np.testing.assert_allclose(stages.capped, 2.4, rtol=1e-15)


def test_stages_come_in_the_order_of_computation():
    stages = attention(np.ones((1, 1, 2, 3)), np.ones((1, 1, 2, 3)), np.ones((1, 1, 2, 3)))
    assert [name for name, _ in stages.stages()] == ["scores", "capped", "biased", "weights", "out"]
    assert all(array is getattr(stages, name) for name, array in stages.stages())
    with pytest.raises(dataclasses.FrozenInstanceError):
        stages.out = None


def test_default_scale_is_the_float32_number():
    stages = attention(np.ones((1, 1, 1, 3)), np.ones((1, 1, 1, 3)), np.ones((1, 1, 1, 3)))
    assert stages.scale == float(np.float32(1 / np.sqrt(3)))
    assert stages.scale != 1 / np.sqrt(3)
    assert attention(
        np.ones((1, 1, 1, 3)), np.ones((1, 1, 1, 3)), np.ones((1, 1, 1, 3)), scale=0.1
    ).scale == np.float32(0.1)


def test_alibi_true_means_the_published_slopes_in_float32():
    case = Case("slopes", Dims(N_q=12, N_kv=1, T_q=4))
    q, k, v = (case.arrays()[name] for name in "qkv")
    # Eight heads, then every second one of sixteen, whose slopes are odd powers of the root of 1/2: not exact.
    published = [2.0**-e for e in range(1, 9)] + [2.0 ** -(e + 0.5) for e in range(4)]
    biased = attention(q, k, v, alibi=True).biased
    np.testing.assert_array_equal(biased, attention(q, k, v, alibi=np.float32(published)).biased)
    assert not np.array_equal(biased, attention(q, k, v, alibi=published).biased)
    np.testing.assert_array_equal(attention(q, k, v, alibi=False).biased, attention(q, k, v).biased)


def test_mask_causal_is_causal():
    case = Case("string", Dims())
    q, k, v = (case.arrays()[name] for name in "qkv")
    np.testing.assert_array_equal(attention(q, k, v, mask="causal").out, attention(q, k, v, causal=True).out)


@pytest.mark.parametrize(
    "dtype", [np.float32, np.float16, ml_dtypes.bfloat16, np.float64], ids=["float32", "float16", "bfloat16", "float64"]
)
def test_any_floating_dtype_goes_in_and_float64_comes_out(dtype):
    q = np.array([[[[1.5, -2.0]]]], dtype=dtype)
    stages = attention(q, q, q, mask=np.zeros((1, 1), dtype=dtype), bias=np.ones((1, 1), dtype=dtype), scale=1.0)
    assert stages.scores.tolist() == [[[[6.25]]]]
    assert stages.biased.tolist() == [[[[7.25]]]]
    for _, array in stages.stages():
        assert array.dtype == np.float64
    assert stages.lse.dtype == stages.sink_weight.dtype == np.float64
    assert stages.allowed.dtype == bool


def test_inputs_are_not_written():
    case = Case("everything-read", Dims(N_q=4, T_q=3), dict(zip(IDS, CASES, strict=True))["everything"].options_of)
    arrays, options = case.arrays(), case.options()
    before = {name: array.copy() for name, array in arrays.items()}
    mask = options["mask"].copy()
    attention(arrays["q"], arrays["k"], arrays["v"], **options)
    for name, array in arrays.items():
        np.testing.assert_array_equal(array, before[name])
    np.testing.assert_array_equal(options["mask"], mask)


class TestRowsWithoutKeys:
    """SEM-1: output 0, log-sum-exp -inf, never NaN."""

    def test_hidden_by_a_mask(self):
        ones = np.ones((1, 1, 2, 2))
        for mask in (np.array([[False, False], [True, True]]), np.array([[-INF, -INF], [0, 0]])):
            stages = attention(ones, ones, ones, mask=mask)
            assert stages.out[0, 0, 0].tolist() == [0, 0]
            assert stages.weights[0, 0, 0].tolist() == [0, 0]
            assert stages.lse[0, 0, 0] == -INF
            assert stages.sink_weight[0, 0, 0] == 0
            np.testing.assert_allclose(stages.out[0, 0, 1], 1)

    def test_queries_before_the_first_key(self):
        stages = attention(np.ones((1, 1, 3, 1)), np.ones((1, 1, 1, 1)), np.ones((1, 1, 1, 1)), causal=True)
        assert stages.lse.ravel().tolist() == [-INF, -INF, 1.0]
        assert stages.out.ravel().tolist() == [0, 0, 1]

    def test_no_keys_at_all(self):
        q, none = np.ones((2, 4, 3, 5)), np.ones((2, 2, 0, 5))
        stages = attention(q, none, none[..., :3])
        assert stages.out.shape == (2, 4, 3, 3)
        assert not stages.out.any()
        assert np.isneginf(stages.lse).all()
        assert np.array_equal(attention(q, none, none, sinks=np.arange(4.0)).lse[0, :, 0], np.arange(4.0))

    def test_no_queries_at_all(self):
        stages = attention(np.ones((2, 4, 0, 5)), np.ones((2, 2, 3, 5)), np.ones((2, 2, 3, 5)), causal=True)
        assert stages.out.shape == (2, 4, 0, 5)
        assert stages.lse.shape == (2, 4, 0)

    def test_a_sink_is_a_logit_though_no_key(self):
        ones = np.ones((1, 1, 1, 1))
        stages = attention(ones, ones, ones, mask=np.array([[False]]), sinks=[3.0])
        assert (stages.out.item(), stages.weights.item()) == (0, 0)
        assert (stages.lse.item(), stages.sink_weight.item()) == (3, 1)


class TestWhatNobodySees:
    """SEM-9: NaN and inf under keys that no query sees, and in queries that see nothing, do not leak."""

    @pytest.mark.parametrize("poison", [np.nan, INF, -INF], ids=str)
    @pytest.mark.parametrize(
        "options",
        [
            {"kv_lengths": [2, 3]},
            {"mask": np.array([[[[1, 1, 0, 0]]], [[[1, 1, 1, 0]]]]) > 0},
            {"mask": np.array([[[[0, 0, -INF, -INF]]], [[[0, 0, 0, -INF]]]])},
            {"segments": (np.zeros((2, 3), int), np.array([[0, 0, 1, 1], [0, 0, 0, 1]]))},
        ],
        ids=["lengths", "boolean", "additive", "segments"],
    )
    def test_hidden_keys(self, options, poison):
        case = Case("hidden-keys", Dims(N_q=4, N_kv=2))
        q, k, v = (case.arrays()[name] for name in "qkv")
        clean = attention(q, k, v, **options)
        for b, first_hidden in ((0, 2), (1, 3)):
            k[b, :, first_hidden:] = poison
            v[b, :, first_hidden:] = poison
        stages = attention(q, k, v, **options)
        for name in ("out", "lse", "weights"):
            np.testing.assert_array_equal(getattr(stages, name), getattr(clean, name))
        assert all(np.isfinite(array).all() for _, array in stages.stages())

    def test_a_key_hidden_from_one_head_only(self):
        case = Case("one-head", Dims(N_q=2, N_kv=1))
        q, k, v = (case.arrays()[name] for name in "qkv")
        k[:, :, 3] = v[:, :, 3] = np.nan
        mask = np.ones((1, 2, 1, 4), dtype=bool)
        mask[0, 0, 0, 3] = False
        out = attention(q, k, v, mask=mask).out
        assert np.isfinite(out[:, 0]).all()
        assert np.isnan(out[:, 1]).all()

    def test_finite_values_under_a_mask_stay_in_the_scores(self):
        q, k = np.ones((1, 1, 1, 1)), np.array([[[[2.0], [3.0]]]])
        stages = attention(q, k, k, kv_lengths=[1])
        assert stages.scores.tolist() == [[[[2.0, 3.0]]]]
        assert stages.out.item() == 2.0

    def test_queries_without_keys(self):
        case = Case("padded-queries", Dims())
        q, k, v = (case.arrays()[name] for name in "qkv")
        q[:, :, 1] = np.nan
        stages = attention(q, k, v, mask=np.array([[True], [False], [True]]))
        assert np.isfinite(stages.out).all()
        assert not stages.out[:, :, 1].any()

    def test_what_is_seen_is_not_hidden(self):
        ones = np.ones((1, 1, 2, 1))
        poisoned = ones.copy()
        poisoned[0, 0, 1] = np.nan
        assert np.isnan(attention(ones, poisoned, ones).out).all()
        assert np.isnan(attention(ones, ones, poisoned).out).all()


def test_large_scores_do_not_overflow():
    q, k = np.full((1, 1, 1, 1), 3e38), np.array([[[[3e38], [-3e38]]]])
    stages = attention(q, k, np.array([[[[1.0], [2.0]]]]))
    assert stages.weights.tolist() == [[[[1.0, 0.0]]]]
    assert stages.lse.item() == pytest.approx(9e76, rel=1e-6)


def test_every_module_imports_numpy_and_the_standard_library_only():
    code = (
        "import importlib, pkgutil, sys, numpy; before = set(sys.modules)\n"
        "import mlx_tx_conformance.oracle as oracle\n"
        "names = [module.name for module in pkgutil.iter_modules(oracle.__path__, oracle.__name__ + '.')]\n"
        "assert oracle.__name__ + '.attention' in names\n"
        "for name in names: importlib.import_module(name)\n"
        "new = {name.partition('.')[0] for name in set(sys.modules) - before}\n"
        "print(sorted(new - sys.stdlib_module_names - {'mlx_tx_conformance', 'numpy'}))"
    )
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"
    )
