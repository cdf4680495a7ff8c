import numpy as np
import pytest

from mlx_tx_conformance.bounds import bound_call
from mlx_tx_conformance.call import Call

F = np.float32


def call(first=0, dims=32, **options):
    positions = np.arange(first, first + 40).astype(np.int32)
    return Call("sinusoidal", {"positions": positions}, {"dims": dims, **options})


def table(given, step=lambda angle: angle, shift=0, swapped=False):
    """In float32 throughout: a power, a product, sines and cosines."""
    dims, base = given.options["dims"], F(given.options.get("base", 10000.0))
    exponent = (np.arange(0, dims, 2) / dims).astype(F)
    angle = step((given.arrays["positions"].astype(F)[:, None] + F(shift)) * base**-exponent)
    out = np.zeros((len(angle), dims), F)
    sin, cos = np.sin(angle), np.cos(angle)
    sin, cos = (cos, sin) if swapped else (sin, cos)
    out[:, 0::2], out[:, 1::2] = sin, cos[:, : dims // 2]
    return F(given.options.get("scale", 1.0)) * out


def headroom(given, actual):
    return float(bound_call(given, "f32-internal")["out"].headroom(actual).max())


@pytest.mark.parametrize("first", [0, 5000, 1_000_000])
@pytest.mark.parametrize("options", [{}, {"dims": 15}, {"dims": 2}, {"base": 100.0}, {"scale": -3.0}], ids=str)
def test_correct_code_stays_within_the_bound(first, options):
    given = call(first, **options)
    assert headroom(given, table(given)) <= 1


@pytest.mark.parametrize("first", [0, 5000])
def test_faults_exceed_it(first):
    given = call(first)
    assert headroom(given, table(given, shift=1)) > 100
    assert headroom(given, table(given, swapped=True)) > 100
    assert headroom(given, table(given, step=lambda angle: angle.astype(np.float16).astype(F))) > 10


def test_the_bound_grows_with_the_position_as_float32_does():
    near, far = (bound_call(call(first), "f32-internal")["out"].limit for first in (100, 1_000_000))
    assert 100 < far[:, -1].mean() / near[:, -1].mean() < 20_000
    assert far.max() <= 2.01


def test_a_scale_of_zero_leaves_no_room():
    assert bound_call(call(scale=0.0), "f32-internal")["out"].limit.max() <= 2.0**-125
