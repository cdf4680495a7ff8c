"""Scaled rotary frequencies against the papers' rules pair by pair, and published settings."""

from __future__ import annotations

import cmath
import math

import numpy as np
import pytest

from mlx_tx_conformance.oracle.positions import rope
from mlx_tx_conformance.oracle.rope_scaling import rope_parameters, scaled_rope

LLAMA = {
    "kind": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_positions": 8192,
}
YARN = {"kind": "yarn", "factor": 4.0, "original_max_positions": 4096}
LONG = {
    "kind": "longrope",
    "factor": 32.0,
    "original_max_positions": 64,
    "short_factor": [1.0, 1.25, 1.5, 2.0],
    "long_factor": [1.0, 3.0, 9.0, 40.0],
}


def plain(dims: int, base: float) -> list[float]:
    return [1.0 / base ** (2 * r / dims) for r in range(dims // 2)]


def test_without_scaling():
    frequencies, factor = rope_parameters(8, 10000.0)
    np.testing.assert_allclose(frequencies, [1, 0.1, 0.01, 0.001], rtol=1e-14)
    assert factor == 1


def test_linear_moves_positions_closer():
    frequencies, factor = rope_parameters(8, 10000.0, {"kind": "linear", "factor": 4.0})
    np.testing.assert_allclose(frequencies, [0.25, 0.025, 0.0025, 0.00025], rtol=1e-14)
    assert factor == 1
    x = np.random.default_rng(0).normal(size=(1, 2, 3, 8))
    stretched = scaled_rope(x, offset=5, scaling={"kind": "linear", "factor": 4.0})
    np.testing.assert_allclose(stretched, rope(x, offset=5, scale=0.25), rtol=1e-12)


def test_ntk_keeps_the_fastest_pair_and_stretches_the_slowest_by_the_factor():
    for dims in (4, 64, 128):
        frequencies, factor = rope_parameters(dims, 10000.0, {"kind": "ntk", "factor": 6.0})
        assert frequencies[0] == 1
        np.testing.assert_allclose(frequencies[-1], plain(dims, 10000.0)[-1] / 6, rtol=1e-12)
        assert factor == 1


def test_dynamic_by_hand():
    # Factor 6 at twice the trained length: 6 * 2 - 5 = 7, and the slowest pair is 7 times slower.
    scaling = {"kind": "dynamic", "factor": 6.0, "original_max_positions": 2048}
    frequencies, _ = rope_parameters(128, 10000.0, scaling, length=4096)
    base = 10000.0 * 7 ** (128 / 126)
    np.testing.assert_allclose(frequencies, plain(128, base), rtol=1e-12)
    np.testing.assert_allclose(frequencies[-1], plain(128, 10000.0)[-1] / 7, rtol=1e-12)
    for length in (None, 1, 2048):
        np.testing.assert_array_equal(rope_parameters(128, 10000.0, scaling, length=length)[0], rope_parameters(128)[0])


def test_one_pair_turns_alike_under_every_base():
    for kind in ("ntk", "dynamic"):
        scaling = {"kind": kind, "factor": 6.0, "original_max_positions": 16}
        assert rope_parameters(2, 10000.0, scaling, length=64)[0].tolist() == [1.0]


@pytest.mark.parametrize("dims", [8, 64, 128])
@pytest.mark.parametrize("base", [10000.0, 500000.0])
def test_llama3_by_wavelength(base, dims):
    """Three cases by wavelength, as the report states them."""
    expected = []
    for w in plain(dims, base):
        wavelength = 2 * math.pi / w
        if wavelength < 8192 / 4:
            expected.append(w)
        elif wavelength > 8192 / 1:
            expected.append(w / 8)
        else:
            smooth = (8192 / wavelength - 1) / (4 - 1)
            expected.append((1 - smooth) * w / 8 + smooth * w)
    frequencies, factor = rope_parameters(dims, base, LLAMA)
    np.testing.assert_allclose(frequencies, expected, rtol=1e-12)
    assert factor == 1


def test_llama3_has_all_three_regions_at_its_published_settings():
    # A wave of pair r is 2 pi 500000^(r / 64) positions long: below 2048 up to r = 28, above 8192 from r = 35 on.
    frequencies, _ = rope_parameters(128, 500000.0, LLAMA)
    ratio = np.array(plain(128, 500000.0)) / frequencies
    assert np.flatnonzero(abs(ratio - 1) < 1e-9).tolist() == list(range(29))
    assert np.flatnonzero(abs(ratio - 8) < 1e-9).tolist() == list(range(35, 64))
    assert (np.diff(ratio) > -1e-9).all()


def turning_pair(times: float, dims: int, base: float, M: float) -> float:
    """The real-valued pair that turns ``times`` times over M positions, by bisection."""
    low, high = -100.0, 100.0
    for _ in range(200):
        middle = (low + high) / 2
        if M / base ** (2 * middle / dims) / (2 * math.pi) > times:
            low = middle
        else:
            high = middle
    return low


@pytest.mark.parametrize("truncate", [True, False])
@pytest.mark.parametrize(
    ("dims", "base", "extra"),
    [
        (64, 10000.0, {}),
        (128, 10000.0, {"factor": 16.0}),
        (64, 150000.0, {"factor": 32.0}),
        (16, 10000.0, {"beta_fast": 8.0, "beta_slow": 2.0}),
        (8, 10000.0, {"original_max_positions": 32}),
        (128, 1e6, {"original_max_positions": 32768}),
        (16, 10.0, {"beta_fast": 128.0}),  # a ramp that ends beyond the last channel
    ],
    ids=str,
)
def test_yarn_pair_by_pair(dims, base, extra, truncate):
    settings = YARN | extra
    s, M = settings["factor"], settings["original_max_positions"]
    low = turning_pair(settings.get("beta_fast", 32), dims, base, M)
    high = turning_pair(settings.get("beta_slow", 1), dims, base, M)
    if truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, dims - 1)
    expected = []
    for r, w in enumerate(plain(dims, base)):
        share = 0.0 if r <= low else 1.0 if r >= high else (r - low) / (high - low)
        expected.append(w * (1 - share) + w / s * share)
    frequencies, factor = rope_parameters(dims, base, {**settings, "truncate": truncate})
    np.testing.assert_allclose(frequencies, expected, rtol=1e-10)
    assert factor == pytest.approx(0.1 * math.log(s) + 1, rel=1e-15)


def test_yarn_ramp_of_published_models():
    """64 channels, 4096 positions: pairs 10 to 23 with base 10000, and unrounded 8.09 to 17.40 with base 150000."""
    w = np.array(plain(64, 10000.0))
    share = (1 - rope_parameters(64, 10000.0, {**YARN, "factor": 40.0})[0] / w) / (1 - 1 / 40)
    np.testing.assert_allclose(share, np.clip((np.arange(32) - 10) / 13, 0, 1), atol=1e-12)
    w = np.array(plain(64, 150000.0))
    scaling = {**YARN, "factor": 32.0, "truncate": False}
    share = (1 - rope_parameters(64, 150000.0, scaling)[0] / w) / (1 - 1 / 32)
    inside = np.flatnonzero((share > 1e-9) & (share < 1 - 1e-9))
    assert inside.tolist() == list(range(9, 18))
    slope = np.diff(share[9:18])
    np.testing.assert_allclose(slope, slope[0], rtol=1e-9)
    assert 1 / slope[0] == pytest.approx(17.398 - 8.093, abs=2e-3)


def test_yarn_ramp_of_no_width_is_a_step():
    scaling = {**YARN, "beta_fast": 1.0, "beta_slow": 1.0, "truncate": False}
    ratio = np.array(plain(64, 10000.0)) / rope_parameters(64, 10000.0, scaling)[0]
    step = turning_pair(1.0, 64, 10000.0, 4096)
    np.testing.assert_allclose(ratio, [4 if r > step else 1 for r in range(32)], rtol=1e-12)


@pytest.mark.parametrize(
    ("extra", "expected"),
    [
        ({}, 0.1 * math.log(4) + 1),
        ({"attention_factor": 1.5}, 1.5),
        ({"attention_factor": 1.0, "mscale": 2.0, "mscale_all_dim": 1.0}, 1.0),
        ({"mscale": 0.707, "mscale_all_dim": 0.707}, 1.0),
        ({"mscale": 2.0, "mscale_all_dim": 1.0}, (0.2 * math.log(4) + 1) / (0.1 * math.log(4) + 1)),
        ({"mscale": 0.707}, 0.1 * math.log(4) + 1),
        ({"mscale": 1.0, "mscale_all_dim": 0.0}, 0.1 * math.log(4) + 1),
        ({"factor": 1.5}, 0.1 * math.log(1.5) + 1),
        ({"factor": 1.0}, 1.0),
        ({"factor": 0.5}, 1.0),
    ],
    ids=str,
)
def test_yarn_attention_factor(extra, expected):
    assert rope_parameters(16, 10000.0, YARN | extra)[1] == pytest.approx(expected, rel=1e-14)


@pytest.mark.parametrize(("length", "name"), [(None, "short"), (64, "short"), (65, "long"), (4096, "long")])
def test_longrope_chooses_by_length(length, name):
    frequencies, factor = rope_parameters(8, 10000.0, LONG, length=length)
    np.testing.assert_allclose(frequencies, np.array(plain(8, 10000.0)) / LONG[f"{name}_factor"], rtol=1e-14)
    # ln 32 / ln 64 = 5 / 6
    assert factor == pytest.approx(math.sqrt(1 + 5 / 6), rel=1e-14)


def test_longrope_attention_factor():
    assert rope_parameters(8, 10000.0, {**LONG, "attention_factor": 1.25})[1] == 1.25
    assert rope_parameters(8, 10000.0, {**LONG, "attention_factor": 1.25, "factor": None})[1] == 1.25
    assert rope_parameters(8, 10000.0, {**LONG, "factor": 1.0})[1] == 1
    grown = math.sqrt(1 + math.log(1.5) / math.log(64))
    assert rope_parameters(8, 10000.0, {**LONG, "factor": 1.5})[1] == pytest.approx(grown, rel=1e-14)


def naive(x, positions, dims, base, scaling, traditional):
    """Each pair of each row as a complex number."""
    out = np.array(x)
    for b, n, t in np.ndindex(x.shape[:3]):
        frequencies, factor = rope_parameters(dims, base, scaling, length=max(positions[b]) + 1)
        for r in range(dims // 2):
            first, second = (2 * r, 2 * r + 1) if traditional else (r, r + dims // 2)
            turned = complex(x[b, n, t, first], x[b, n, t, second]) * cmath.rect(
                factor, positions[b][t] * frequencies[r]
            )
            out[b, n, t, first], out[b, n, t, second] = turned.real, turned.imag
    return out


@pytest.mark.parametrize("traditional", [False, True], ids=["half-split", "interleaved"])
@pytest.mark.parametrize(
    ("scaling", "dims"),
    [
        (None, 8),
        ({"kind": "dynamic", "factor": 2.0, "original_max_positions": 5}, 8),
        (YARN, 8),
        ({**YARN, "original_max_positions": 16}, 6),
        (LONG, 8),
        (LLAMA, 4),
    ],
    ids=str,
)
def test_rows_turn_at_their_positions(scaling, dims, traditional):
    x = np.random.default_rng(4).normal(size=(2, 3, 4, 10))
    positions = [[0, 1, 2, 3], [70, 71, 72, 60]]
    options = {"dims": dims, "base": 100.0, "scaling": scaling, "traditional": traditional}
    expected = naive(x, positions, dims, 100.0, scaling, traditional)
    np.testing.assert_allclose(scaled_rope(x, positions=positions, **options), expected, rtol=0, atol=1e-11)
    assert np.array_equal(expected[..., dims:], x[..., dims:])


def test_without_scaling_it_is_rope():
    x = np.random.default_rng(5).normal(size=(2, 3, 4, 8))
    for options in ({}, {"offset": 3}, {"offset": np.array([1, 5])}, {"dims": 4, "base": 50.0, "traditional": True}):
        np.testing.assert_allclose(scaled_rope(x, **options), rope(x, **options), rtol=0, atol=1e-15)


def test_length_is_given_or_that_of_each_row():
    x = np.random.default_rng(6).normal(size=(2, 1, 3, 8))
    alone = [scaled_rope(x[b : b + 1], offset=start, scaling=LONG) for b, start in ((0, 0), (1, 62))]
    together = scaled_rope(x, offset=np.array([0, 62]), scaling=LONG)
    np.testing.assert_array_equal(together, np.concatenate(alone))
    forced = scaled_rope(x, offset=np.array([0, 62]), scaling=LONG, length=[65, 65])
    np.testing.assert_array_equal(forced[1], together[1])
    assert not np.allclose(forced[0], together[0])
    np.testing.assert_array_equal(forced, scaled_rope(x, offset=np.array([0, 62]), scaling=LONG, length=65))


def test_any_number_of_axes():
    x = np.random.default_rng(7).normal(size=(2, 3, 4, 8))
    turned = scaled_rope(x, scaling=YARN)
    np.testing.assert_array_equal(scaled_rope(x[0, 0], scaling=YARN), turned[0, 0])
    np.testing.assert_array_equal(scaled_rope(x[:, 0], offset=np.array([0, 0]), scaling=YARN), turned[:, 0])
    with pytest.raises(ValueError, match=r"\[scaled_rope\] x must have the layout \[..., T, D\]; got shape \(8,\)"):
        scaled_rope(x[0, 0, 0])


def test_the_input_stays_as_it_is():
    x = np.ones((1, 1, 2, 8))
    scaled_rope(x, scaling=YARN)
    assert (x == 1).all()


@pytest.mark.parametrize(
    ("dims", "scaling", "message"),
    [
        (8, {"kind": "su"}, "scaling.kind must be one of linear, .*; got 'su'"),
        (8, {"kind": "linear"}, "scaling.factor must be given for kind 'linear'; got None"),
        (8, {**YARN, "original_max_positions": None}, "scaling.original_max_positions must be given for kind 'yarn'"),
        (6, LONG, r"scaling.short_factor must hold 3 numbers; got \(4,\)"),
        (7, None, "dims must be even and >= 0; got 7"),
    ],
    ids=["kind", "factor", "original", "factors", "dims"],
)
def test_refuses(dims, scaling, message):
    with pytest.raises(ValueError, match=rf"\[rope_parameters\] {message}"):
        rope_parameters(dims, 10000.0, scaling)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dims": 6}, "dims must lie in 0..4; got 6"),
        ({"positions": np.zeros((3, 3), int)}, r"positions must have shape \[T\] or \[B, T\]; got \(3, 3\)"),
        ({"length": [1, 2, 3]}, r"length must be an integer or have shape \[B\]; got shape \(3,\)"),
    ],
    ids=["dims", "positions", "length"],
)
def test_scaled_rope_refuses(options, message):
    with pytest.raises(ValueError, match=rf"\[scaled_rope\] {message}"):
        scaled_rope(np.ones((2, 1, 3, 4)), **options)
