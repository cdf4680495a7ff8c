"""The oracle against 50-digit arithmetic: relative error below 1e-13.

The reference is the naive derivation of ``tests/conformance/oracle/naive.py`` run in mpmath, so that what is measured
here is the oracle's rounding alone.
"""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest

from mlx_tx_conformance.oracle.attention import attention
from mlx_tx_conformance.oracle.gradients import attention_gradients, sech2
from mlx_tx_conformance.oracle.positions import alibi_slopes, rope
from mlx_tx_conformance.oracle.softmax import log_sum_exp, softmax
from tests.conformance.oracle.cases import CASES, IDS, Case, Dims
from tests.conformance.oracle.naive import Arithmetic, complex_step_gradients, naive_attention

RELATIVE = 1e-13
UNIT = 2.0**-53

REAL = Arithmetic(mpmath.mpf, mpmath.exp, mpmath.log, mpmath.tanh)
COMPLEX = Arithmetic(mpmath.mpc, mpmath.exp, mpmath.log, mpmath.tanh, lambda x: x.real)

# Complex steps in 50 digits are slow: these cases hold every term of every gradient.
WITH_GRADIENTS = (
    "plain",
    "gqa",
    "large-scores",
    "causal-more-queries",
    "window-causal",
    "lengths",
    "segments-pair",
    "additive-mask-with-inf",
    "bias-of-heads",
    "alibi-of-each-row",
    "softcap-saturated",
    "softcap-then-mask",
    "sinks-with-nothing-allowed",
    "everything",
)


@pytest.fixture(autouse=True)
def _fifty_digits():
    with mpmath.workdps(50):
        yield


def assert_close(got: np.ndarray, exact: np.ndarray, name: str) -> None:
    """Every entry within 1e-13 of itself, or of the largest where it is what is left of a cancellation."""
    largest = max((abs(x) for x in exact.ravel() if abs(x) != math.inf), default=0)
    for index in np.ndindex(exact.shape):
        if abs(exact[index]) == math.inf:
            assert got[index] == exact[index], (name, index)
        else:
            error = abs(mpmath.mpf(float(got[index])) - exact[index])
            assert error <= RELATIVE * max(abs(exact[index]), largest / 100), (name, index, got[index], exact[index])


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_attention(case):
    a, options = case.arrays(), case.options()
    exact = naive_attention(a["q"], a["k"], a["v"], REAL, **options)
    stages = attention(a["q"], a["k"], a["v"], **options)
    for name in ("out", "lse", "weights", "sink_weight"):
        assert_close(getattr(stages, name), exact[name], name)


EXTREMES = {
    "scores-in-the-thousands": (Case("thousands", Dims(T_kv=5), std=60.0), {}),
    "sinks-far-away": (Case("far-sinks", Dims()), {"sinks": np.array([-700.0, 700.0])}),
    "bias-of-minus-1e30": (Case("huge-bias", Dims()), {"bias": np.array([[-1e30, 0.0, 1.0, -1e4]])}),
    "steep-alibi": (Case("steep", Dims(T_kv=7)), {"alibi": np.array([30.0, 0.001])}),
    "small-cap": (Case("small-cap", Dims(), std=5.0), {"softcap": 0.0625}),
    "large-cap": (Case("large-cap", Dims()), {"softcap": 1e6}),
}


@pytest.mark.parametrize(("case", "options"), EXTREMES.values(), ids=EXTREMES)
def test_attention_at_extremes(case, options):
    a, options = case.arrays(), {**case.options(), **options}
    exact = naive_attention(a["q"], a["k"], a["v"], REAL, **options)
    stages = attention(a["q"], a["k"], a["v"], **options)
    for name in ("out", "lse"):
        assert_close(getattr(stages, name), exact[name], name)


@pytest.mark.parametrize("name", WITH_GRADIENTS)
def test_gradients(name):
    case = dict(zip(IDS, CASES, strict=True))[name]
    a, options = case.arrays(), case.options()
    wanted = {name: a[name] for name in "qkv"}
    wanted |= {name: options[name] for name in ("bias", "mask", "sinks") if name in options}
    rest = {name: value for name, value in options.items() if name not in wanted}
    exact = complex_step_gradients(wanted, a["d_out"], a["d_lse"], rest, COMPLEX)
    result = attention_gradients(a["q"], a["k"], a["v"], a["d_out"], d_lse=a["d_lse"], **options)
    for name in wanted:
        assert_close(result[name], exact[name], name)


def test_softmax():
    x = np.array([3.0, -1000.0, 2.75, 700.0, 699.5, -0.125])
    exps = [mpmath.exp(mpmath.mpf(e)) for e in x]
    assert_close(softmax(x), np.array([e / sum(exps) for e in exps]), "softmax")
    assert_close(log_sum_exp(x), np.array(mpmath.log(sum(exps))), "lse")


def test_sech2():
    for x in (0.0, 1e-9, 0.5, 3.0, 19.0, 200.0):
        exact = mpmath.sech(mpmath.mpf(x)) ** 2
        assert abs(sech2(np.float64(x)) - exact) <= RELATIVE * exact


@pytest.mark.parametrize("n_heads", [1, 2, 3, 5, 8, 12, 20, 71, 112])
def test_alibi_slopes(n_heads):
    below = 1
    while 2 * below <= n_heads:
        below *= 2
    two = mpmath.mpf(2)
    exact = [two ** (mpmath.mpf(-8 * (h + 1)) / below) for h in range(below)]
    exact += [two ** (mpmath.mpf(-8 * (2 * h + 1)) / (2 * below)) for h in range(n_heads - below)]
    for got, slope in zip(alibi_slopes(n_heads), exact, strict=True):
        assert abs(got - slope) <= 4 * UNIT * slope


@pytest.mark.parametrize("offset", [0, 4095, 10**6])
@pytest.mark.parametrize("dims", [4, 8])
@pytest.mark.parametrize("traditional", [False, True], ids=["half-split", "interleaved"])
def test_rope(offset, dims, traditional):
    x = np.random.default_rng(0).normal(size=(1, 2, 8))
    got = rope(x, offset=offset, base=10000.0, dims=dims, traditional=traditional)
    for t in range(2):
        for r in range(dims // 2):
            first, second = (2 * r, 2 * r + 1) if traditional else (r, r + dims // 2)
            angle = (offset + t) * mpmath.mpf(10000) ** (mpmath.mpf(-2 * r) / dims)
            turned = mpmath.mpc(x[0, t, first], x[0, t, second]) * mpmath.expj(angle)
            # The angle itself has a few roundings; a turn by a wrong angle moves by radius times the error.
            allowed = abs(turned) * UNIT * (8 + 16 * angle)
            assert abs(got[0, t, first] - turned.real) <= allowed
            assert abs(got[0, t, second] - turned.imag) <= allowed
