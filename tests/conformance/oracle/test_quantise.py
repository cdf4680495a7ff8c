"""Affine quantisation: its promises, values by hand, and the packing of the codes."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from mlx_tx_conformance.oracle.quantise import BITS, GROUP_SIZES, bytes_per_token, quantise, quantised_values

W = np.random.default_rng(0).normal(size=(3, 256)).astype(np.float32)


@pytest.mark.parametrize("group_size", GROUP_SIZES)
@pytest.mark.parametrize("bits", BITS)
def test_promises(bits, group_size):
    q = quantise(W, bits=bits, group_size=group_size)
    assert q.codes.shape == W.shape
    assert q.scales.shape == q.biases.shape == (3, 256 // group_size)
    assert q.codes.min() >= 0
    assert q.codes.max() <= 2**bits - 1
    groups, values = (x.reshape(3, -1, group_size) for x in (W.astype(float), q.values()))
    largest = np.abs(groups).argmax(axis=-1)[..., None]
    edge = np.take_along_axis(groups, largest, axis=-1)
    # The end of larger magnitude is kept exactly, with code 0.
    np.testing.assert_array_equal(np.take_along_axis(values, largest, axis=-1), edge)
    assert not np.take_along_axis(q.codes.reshape(groups.shape), largest, axis=-1).any()
    # Inside the range nothing moves by more than half a step. At the far end the adjusted scale may fall short.
    step = np.abs(q.scales)[..., None]
    plain_step = (groups.max(axis=-1) - groups.min(axis=-1))[..., None] / (2**bits - 1)
    reach = np.abs(edge) - (2**bits - 1) * step
    inside = groups * np.sign(edge) >= reach
    assert (np.abs(groups - values)[inside] <= np.broadcast_to(step / 2 * (1 + 1e-5), groups.shape)[inside]).all()
    assert inside.mean() > 0.75
    assert (np.abs(step / plain_step - 1) < 0.5).all()


@pytest.mark.parametrize("bits", BITS)
def test_zero_and_the_grid_are_kept_exactly(bits):
    """Whole numbers with the ends 0 and n steps away from it: every value is on the grid."""
    n = 2**bits - 1
    grid = np.resize([-n, 0, *range(1 - n, 0)], 64).astype(np.float32)
    for sign in (1, -1):
        np.testing.assert_array_equal(quantised_values(sign * grid, bits=bits, group_size=64), sign * grid)
    np.testing.assert_array_equal(quantised_values(np.zeros(64), bits=bits, group_size=64), np.zeros(64))


def test_by_hand():
    # -1, 0, 1, 2: the larger end is 2, so codes run downwards from it in steps of (2 - -1) / 3 = 1.
    w = np.resize([-1.0, 0.0, 1.0, 2.0], 32)
    q = quantise(w, bits=2, group_size=32)
    assert q.codes[:4].tolist() == [3, 2, 1, 0]
    assert (q.scales.item(), q.biases.item()) == (-1, 2)
    # -2, 0, 0.4, 1: the larger end is -2 and the step 1; 0.4 is 2.4 steps up.
    q = quantise(np.resize([-2.0, 0.0, 0.4, 1.0], 32), bits=2, group_size=32)
    assert q.codes[:4].tolist() == [0, 2, 2, 3]
    assert (q.scales.item(), q.biases.item()) == (1, -2)
    # 1 and 1.9: the step 0.3 goes 6.33 times into 1.9, so that it becomes 1.9 / 6, and 1 is out of reach.
    q = quantise(np.resize([1.0, 1.9], 32), bits=2, group_size=32)
    assert q.scales.item() == pytest.approx(-1.9 / 6, rel=1e-7)
    assert q.values()[:2].tolist() == [pytest.approx(0.95, rel=1e-6), pytest.approx(1.9, rel=1e-7)]


def test_ties_round_to_even():
    q = quantise(np.resize([-3.0, -2.5, -1.5, -0.5, 0.0], 32), bits=2, group_size=32)
    assert q.codes[:5].tolist() == [0, 0, 2, 2, 3]


def test_of_two_ends_alike_the_upper_one_is_the_bias():
    q = quantise(np.resize([-1.5, -0.5, 0.5, 1.5], 32), bits=2, group_size=32)
    # 1.5 steps from 0 round to 2, which makes the step 0.75: -0.5 is 2.67 steps down, -1.5 out of reach.
    assert (q.scales.item(), q.biases.item()) == (-0.75, 1.5)
    assert q.codes[:4].tolist() == [3, 3, 1, 0]


def test_a_constant_group():
    q = quantise(np.full(32, 0.75), bits=4, group_size=32)
    np.testing.assert_allclose(q.values(), 0.75, rtol=1e-6)


def test_a_range_below_the_least_scale():
    # 4e-8 is less than half a step of 1e-7, and vanishes; 6e-8 is more, and becomes the step itself.
    assert not quantised_values(np.full(32, 4e-8), bits=4, group_size=32).any()
    np.testing.assert_array_equal(quantised_values(np.full(32, 6e-8), bits=4, group_size=32), np.float32(6e-8))
    np.testing.assert_array_equal(quantised_values(np.full(32, -6e-8), bits=4, group_size=32), np.float32(-6e-8))


def test_scale_and_bias_are_stored_in_the_dtype():
    q = quantise(W, bits=4, group_size=64, dtype=ml_dtypes.bfloat16)
    full = quantise(W, bits=4, group_size=64)
    np.testing.assert_array_equal(q.codes, full.codes)
    for name in ("scales", "biases"):
        rounded = getattr(full, name).astype(ml_dtypes.bfloat16).astype(float)
        np.testing.assert_array_equal(getattr(q, name), rounded)
    assert (q.scales != full.scales).any()


@pytest.mark.parametrize("bits", BITS)
def test_packing(bits):
    q = quantise(W, bits=bits, group_size=64)
    words = q.packed()
    assert words.shape == (3, 256 * bits // 32)
    for row in range(3):
        as_number = sum(int(word) << (32 * n) for n, word in enumerate(words[row]))
        assert [(as_number >> (bits * i)) % 2**bits for i in range(256)] == q.codes[row].tolist()


def test_tokens_are_quantised_each_by_itself():
    whole = quantised_values(W, bits=4, group_size=64)
    np.testing.assert_array_equal(whole[1:2], quantised_values(W[1:2], bits=4, group_size=64))
    other = W.copy()
    other[0] *= 100
    np.testing.assert_array_equal(quantised_values(other, bits=4, group_size=64)[1:], whole[1:])


def test_bytes():
    assert bytes_per_token(128, bits=4, group_size=64, scale_bytes=2) == 64 + 8
    assert bytes_per_token(64, bits=3, group_size=32, scale_bytes=4) == 24 + 16


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"bits": 7, "group_size": 64}, r"bits must be one of \(2, 3, 4, 5, 6, 8\); got 7"),
        ({"bits": 4, "group_size": 16}, r"group_size must be one of \(32, 64, 128\); got 16"),
        ({"bits": 4, "group_size": 128}, r"w must have a last axis divisible by 128; got shape \(2, 192\)"),
    ],
    ids=["bits", "group", "columns"],
)
def test_refuses(options, message):
    with pytest.raises(ValueError, match=rf"\[quantise\] {message}"):
        quantise(np.zeros((2, 192)), **options)


def test_nothing_to_quantise():
    q = quantise(np.zeros((2, 0, 64)), bits=3, group_size=32)
    assert q.values().shape == (2, 0, 64)
    assert q.packed().shape == (2, 0, 6)
