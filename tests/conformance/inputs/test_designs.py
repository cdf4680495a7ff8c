"""What each design promises, and that correct code gives the exact answers to the bit."""

import math

import numpy as np
import pytest

from mlx_tx_conformance.bounds.reference import Plain, correct_implementations
from mlx_tx_conformance.call import DTYPES, Call
from mlx_tx_conformance.inputs import DESIGNS, Setting, find_design
from mlx_tx_conformance.inputs.designs.boundary import boundary_keys, excluded_key
from mlx_tx_conformance.oracle.attention import attention

DIMS = {"B": 2, "N_q": 4, "N_kv": 2, "T_q": 6, "T_kv": 64, "D": 24, "D_v": 16}


def setting(dtype="float32", given=(), options=None, **dims):
    return Setting({**DIMS, **dims}, DTYPES[dtype], options or {}, frozenset(given))


def make(name, where=None, seed=0, **parameters):
    return find_design(name)(np.random.default_rng(seed), where or setting(), **parameters)


def stages(arrays, **options):
    return attention(arrays["q"], arrays["k"], arrays["v"], mask=arrays.get("mask"), **options)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", DESIGNS)
def test_every_design_makes_arrays_of_the_setting(name, dtype):
    arrays = make(name, setting(dtype))
    assert {n: arrays[n].shape for n in "qkv"} == {"q": (2, 4, 6, 24), "k": (2, 2, 64, 24), "v": (2, 2, 64, 16)}
    assert {arrays[n].dtype for n in "qkv"} == {DTYPES[dtype]}
    assert all(np.isfinite(arrays[n].astype(float)).all() for n in "qkv")
    assert set(arrays) <= {"q", "k", "v", "mask"}
    assert "mask" not in arrays or arrays["mask"].dtype == bool


@pytest.mark.parametrize("name", DESIGNS)
def test_every_design_is_deterministic_and_says_what_it_shows(name):
    one, again = make(name), make(name)
    assert {n: x.tobytes() for n, x in one.items()} == {n: x.tobytes() for n, x in again.items()}
    assert DESIGNS[name].shows


SMALL = [{"T_kv": 0}, {"T_q": 0}, {"T_kv": 1, "T_q": 1}, {"T_kv": 2}, {"T_q": 1}, {"D_v": 1, "T_kv": 5}, {"D": 1}]


@pytest.mark.parametrize("dims", SMALL)
@pytest.mark.parametrize("name", DESIGNS)
def test_every_design_can_do_small_sizes(name, dims):
    arrays = make(name, setting(**dims))
    assert all(np.isfinite(arrays[n]).all() for n in "qkv")


@pytest.mark.parametrize("name", DESIGNS)
def test_no_design_adds_a_mask_where_the_case_restricts_what_is_seen(name):
    for where in (setting(options={"causal": True}), setting(given={"mask"}), setting(given={"kv_lengths"})):
        assert "mask" not in make(name, where)


def test_an_unknown_design_or_parameter_is_named():
    with pytest.raises(ValueError, match="did you mean 'spiky'"):
        find_design("spikey")
    with pytest.raises(ValueError, match=r"std; got 'sd'"):
        make("spiky", sd=3)


@pytest.mark.parametrize(("name", "std"), [("normal", 1.0), ("spiky", 16.0), ("huge", 2500.0), ("unit_normal", 1.0)])
def test_scores_have_the_standard_deviation_that_the_name_says(name, std):
    scores = stages(make(name, setting(T_q=64, D=64))).scores
    assert scores.std() == pytest.approx(std, rel=0.05)


@pytest.mark.parametrize("scale", [None, 0.5, -0.25])
def test_competing_keys_share_the_weight_at_a_large_score(scale):
    options = {} if scale is None else {"scale": scale}
    found = stages(make("competing", setting(options=options)), **options)
    top = np.sort(found.scores, axis=-1)[..., ::-1]
    assert top[..., 0].mean() == pytest.approx(48, abs=4)
    assert (np.sort(found.weights, axis=-1)[..., -8:].sum(-1) > 0.999).all()
    assert (found.weights.max(-1) < 0.95).mean() > 0.8


def test_tiny_inputs_are_tiny_and_huge_scores_need_the_shift():
    assert max(np.abs(make("tiny")[n]).max() for n in "qkv") < 2e-3
    assert stages(make("huge", setting(T_q=64))).scores.max() > 5e3


def test_duplicates_are_few_distinct_keys():
    assert len(np.unique(make("duplicates")["k"][0, 0], axis=0)) == 3


def test_a_ramp_rises_by_its_height():
    scores = stages(make("ramp", rise=6.0)).scores
    assert np.ptp(scores[0, 0, 0]) == pytest.approx(6.0, rel=1e-4)
    assert (np.diff(scores, axis=-1) > 0).all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_balanced_sink_is_where_the_output_moves_most_with_the_scale(dtype):
    arrays = make("balanced_sink", setting(dtype, T_kv=1024, D=96))
    held = stages(arrays)
    heavy = held.weights.max(-1)
    assert heavy.min() > 0.4
    assert heavy.max() < 0.6
    assert np.abs(held.out).max() < 0.2
    moved = stages(arrays, scale=held.scale * (1 + 2.0**-8)).out - held.out
    assert np.abs(moved).mean() == pytest.approx(2.0**-8 * math.log(1024) / 2, rel=0.1)


def test_values_of_the_designs_of_v():
    assert np.abs(make("offset_v", offset=50.0)["v"] - 50).max() < 1
    assert make("one_sign_v", offset=2.0)["v"].min() >= 2.0
    assert set(make("constant_v")["v"].ravel().tolist()) == {1.375}
    onehot = make("onehot_v")["v"]
    assert (onehot.sum(-1) == 1).all()
    assert onehot[0, 0, 17, 1] == 1
    cancelling = stages(make("near_cancelling", std=0.1))
    assert np.abs(cancelling.out).max() < 2
    assert make("wide_v")["v"].max() > 1e3
    arrays = make("v_is_k")
    np.testing.assert_array_equal(arrays["v"], arrays["k"][..., :16])


class TestExactAnswers:
    """Every design that states an exact answer has it, and every correct implementation gives it bit for bit."""

    def implementations(self, dtype):
        precision = "f32-internal" if dtype == "float32" else "P"
        return correct_implementations(dtype, precision)

    def outputs(self, arrays, dtype, options=None):
        call = Call("attention", arrays, options or {}, {}, ("out", "lse"))
        return {name: run(call)["out"] for name, run in self.implementations(dtype).items()}

    @pytest.mark.parametrize("dtype", DTYPES)
    @pytest.mark.parametrize("T_kv", [2, 64, 100])
    def test_one_live_key_gives_its_value(self, dtype, T_kv):
        arrays = make("one_live_key", setting(dtype, T_kv=T_kv))
        assert (arrays["mask"].sum(-1) == 1).all()
        key = arrays["mask"].argmax(-1)
        expected = np.take_along_axis(np.repeat(arrays["v"], 2, axis=1), key[..., None], axis=2)
        for name, out in self.outputs(arrays, dtype).items():
            assert (out == expected).all(), name

    @pytest.mark.parametrize("dtype", DTYPES)
    @pytest.mark.parametrize("T_kv", [2, 63, 100])
    def test_twins_cancel(self, dtype, T_kv):
        arrays = make("twins", setting(dtype, T_kv=T_kv))
        assert (arrays["mask"].sum(-1) == 2).all()
        for name, out in self.outputs(arrays, dtype).items():
            assert (out == 0).all(), name

    @pytest.mark.parametrize("dtype", DTYPES)
    def test_dyadic_means_are_exact(self, dtype):
        arrays = make("dyadic", setting(dtype))
        assert (arrays["mask"].sum(-1) == 8).all()
        expected = stages(arrays).out.astype(DTYPES[dtype])
        for name, out in self.outputs(arrays, dtype).items():
            assert (out == expected).all(), name

    @pytest.mark.parametrize("dtype", DTYPES)
    @pytest.mark.parametrize("T_kv", [64, 100, 1])
    def test_counting_gives_the_mean_rounded_once(self, dtype, T_kv):
        arrays = make("counting", setting(dtype, T_kv=T_kv))
        live = arrays["mask"].sum(-1)
        assert (live == 2 ** int(math.log2(T_kv))).all()
        assert len(np.unique(arrays["mask"][0, 0], axis=0)) > 1 or T_kv != 100
        mean = np.where(arrays["mask"][..., None], np.repeat(arrays["v"], 2, axis=1)[:, :, None].astype(float), 0)
        expected = (mean.sum(3) / live[..., None]).astype(DTYPES[dtype])
        for name, out in self.outputs(arrays, dtype).items():
            assert (out == expected).all(), name

    @pytest.mark.parametrize("dtype", DTYPES)
    def test_counting_in_a_window_is_exact_where_the_window_is_full(self, dtype):
        options = {"window": 32, "causal": True}
        arrays = make("counting", setting(dtype, options=options))
        expected = stages(arrays, **options).out.astype(DTYPES[dtype])
        for name, out in self.outputs(arrays, dtype, options).items():
            assert (out == expected).all(), name

    @pytest.mark.parametrize("dtype", DTYPES)
    def test_private_channels_are_exactly_zero_for_who_does_not_see_the_key(self, dtype):
        where = setting(dtype)
        arrays = make("private_channels", where)
        hidden = excluded_key(where)
        owner = int(np.argmax(arrays["v"][0, 0, hidden].astype(float)))
        for name, out in self.outputs(arrays, dtype).items():
            assert (out[..., owner] == 0).all(), name

    def test_every_design_that_states_an_exact_answer_is_held_to_it_here(self):
        exact = {name for name, design in DESIGNS.items() if design.exact}
        assert exact == {"one_live_key", "twins", "dyadic", "counting", "private_channels"}


class TestBoundaryKeys:
    def test_ends_edges_and_blocks(self):
        where = setting(options={"window": 10, "causal": True}, T_q=4, T_kv=40)
        assert boundary_keys(where, ("first", "last")) == [0, 39]
        # The last query stands at 39, the first at 36, the middle one at 38; the window looks back over ten keys.
        assert set(boundary_keys(where, ("edges",))) == {30, 29, 39, 27, 26, 36, 37, 28, 38}
        assert boundary_keys(where, ("blocks",)) == [7, 8, 15, 16, 31, 32]
        assert boundary_keys(where, ("excluded",)) == [excluded_key(where)]

    def test_a_pair_of_sides_and_an_offset_move_the_edges(self):
        where = setting(options={"window": [3, 2], "q_offset": 10}, T_q=1, T_kv=40)
        assert boundary_keys(where, ("edges",)) == [7, 6, 12, 13]
        open_left = setting(options={"window": [None, 2], "q_offset": 10}, T_q=1, T_kv=40)
        assert boundary_keys(open_left, ("edges",)) == [12, 13]

    def test_keys_that_do_not_exist_are_left_out(self):
        assert boundary_keys(setting(T_kv=1)) == [0]

    def test_an_unknown_kind_is_named(self):
        with pytest.raises(ValueError, match="got 'middle'"):
            make("private_channels", keys=["middle"])

    def test_each_key_owns_one_channel_with_a_large_power_of_two(self):
        where = setting()
        v = make("private_channels", where)["v"]
        owners = boundary_keys(where)[:8]
        for channel, key in enumerate(owners):
            assert (v[:, :, key, channel] == 4096).all()
            assert np.count_nonzero(v[..., channel]) == 2 * 2
        assert np.abs(v[..., len(owners) :]).max() < 10

    def test_tagged_keys_weigh_as_much_as_the_rest(self):
        where = setting(T_kv=1024, D=64)
        held = stages(make("tagged", where))
        weights = held.weights[..., [0, 1023]]
        assert np.median(weights) > 0.05
        plain = stages(make("normal", where)).weights[..., [0, 1023]]
        assert np.median(weights) > 50 * np.median(plain)


def test_a_leaked_key_breaks_a_private_channel_beyond_any_tolerance():
    where = setting("bfloat16")
    arrays = make("private_channels", where)
    seen = {**arrays, "mask": np.ones_like(arrays["mask"])}
    owner = int(np.argmax(arrays["v"][0, 0, excluded_key(where)].astype(float)))
    leaked = Plain(True)(Call("attention", seen))["out"]
    assert (np.abs(leaked[..., owner].astype(float)) > 1e-3).all()
