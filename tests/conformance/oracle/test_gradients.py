"""The oracle's closed-form gradients against complex-step derivatives of the naive derivation, and their edges."""

from __future__ import annotations

import numpy as np
import pytest

from mlx_tx_conformance.oracle.attention import attention
from mlx_tx_conformance.oracle.gradients import attention_gradients, sech2, sum_to_shape

from .cases import CASES, IDS, Case, Dims
from .naive import complex_step_gradients

# A sink of -inf has no derivative; all else has.
SMOOTH = [case for case in CASES if case.name != "sink-of-minus-infinity"]


def differentiable(case: Case) -> dict[str, np.ndarray]:
    """The arrays with respect to which a case has gradients, by name."""
    arrays, options = case.arrays(), case.options()
    given = {name: arrays[name] for name in "qkv"}
    for name in ("bias", "mask", "sinks"):
        if name in options and options[name].dtype != bool:
            given[name] = options[name]
    return given


@pytest.mark.parametrize("case", SMOOTH, ids=[case.name for case in SMOOTH])
def test_equal_complex_step_derivatives(case):
    arrays, options = case.arrays(), case.options()
    wanted = differentiable(case)
    result = attention_gradients(
        arrays["q"], arrays["k"], arrays["v"], arrays["d_out"], d_lse=arrays["d_lse"], **options
    )
    rest = {name: value for name, value in options.items() if name not in wanted}
    expected = complex_step_gradients(wanted, arrays["d_out"], arrays["d_lse"], rest)
    assert set(result) == {*wanted, "stages"}
    for name, gradient in expected.items():
        assert result[name].shape == wanted[name].shape
        np.testing.assert_allclose(result[name], gradient, rtol=1e-11, atol=1e-13, err_msg=name)


@pytest.mark.parametrize("name", ["plain", "gqa", "sinks", "softcap", "everything"])
def test_without_a_cotangent_of_lse_it_is_zero(name):
    case = dict(zip(IDS, CASES, strict=True))[name]
    arrays, options = case.arrays(), case.options()
    inputs = [arrays[name] for name in ("q", "k", "v", "d_out")]
    absent = attention_gradients(*inputs, **options)
    zero = attention_gradients(*inputs, d_lse=np.zeros_like(arrays["d_lse"]), **options)
    other = attention_gradients(*inputs, d_lse=arrays["d_lse"], **options)
    for name in differentiable(case):
        np.testing.assert_array_equal(absent[name], zero[name])
    assert not np.allclose(absent["q"], other["q"])


def test_gradients_by_hand():
    # Two equal keys: weights 1/2. d_out = 1 on values 0 and 4: dP = (0, 4), Delta = 2, dS = (-1, 1).
    q, k, v = [[[[3.0]]]], [[[[5.0], [5.0]]]], [[[[0.0], [4.0]]]]
    result = attention_gradients(q, k, v, [[[[1.0]]]], scale=2.0, bias=np.zeros((1, 2)))
    assert result["v"].ravel().tolist() == [0.5, 0.5]
    assert result["bias"].tolist() == [[-1.0, 1.0]]
    assert result["q"].item() == 2.0 * (-1 * 5 + 1 * 5)
    assert result["k"].ravel().tolist() == [2.0 * -1 * 3, 2.0 * 1 * 3]


def test_stages_are_those_of_the_forward():
    case = dict(zip(IDS, CASES, strict=True))["everything"]
    arrays, options = case.arrays(), case.options()
    q, k, v = (arrays[name] for name in "qkv")
    stages = attention_gradients(q, k, v, arrays["d_out"], **options)["stages"]
    for name, array in attention(q, k, v, **options).stages():
        np.testing.assert_array_equal(getattr(stages, name), array)


@pytest.mark.parametrize("sinks", [None, [0.5, -1.0]], ids=["no-sinks", "sinks"])
def test_rows_without_keys_send_back_nothing_whatever_their_cotangents(sinks):
    case = Case("empty-rows", Dims())
    a = case.arrays()
    a["q"][:, :, 1] = np.nan
    a["d_out"][:, :, 1] = np.inf
    mask = np.array([[True], [False], [True]])
    result = attention_gradients(a["q"], a["k"], a["v"], a["d_out"], mask=mask, sinks=sinks)
    rows = [0, 2]
    kept = attention_gradients(a["q"][:, :, rows], a["k"], a["v"], a["d_out"][:, :, rows], sinks=sinks)
    assert not result["q"][:, :, 1].any()
    np.testing.assert_allclose(result["q"][:, :, rows], kept["q"], rtol=1e-14)
    for name in ("k", "v", "sinks")[: 2 if sinks is None else 3]:
        np.testing.assert_allclose(result[name], kept[name], rtol=1e-13, err_msg=name)


@pytest.mark.parametrize("sinks", [None, [-np.inf]], ids=["no-sinks", "sink-of-minus-infinity"])
def test_a_cotangent_of_an_infinite_lse_is_dropped(sinks):
    ones = np.ones((1, 1, 2, 1))
    mask, d_lse = np.array([[False], [True]]), np.array([[[np.nan, 1.0]]])
    result = attention_gradients(ones, ones, ones, np.zeros_like(ones), d_lse=d_lse, mask=mask, sinks=sinks)
    assert result["q"].ravel().tolist() == [0.0, 1.0]
    assert result["k"].ravel().tolist() == [0.5, 0.5]
    assert sinks is None or result["sinks"].tolist() == [0.0]


def test_keys_that_nobody_sees_get_zero_and_do_not_leak():
    case = Case("hidden-keys", Dims(N_q=4, N_kv=2))
    a = case.arrays()
    clean = attention_gradients(a["q"], a["k"], a["v"], a["d_out"], d_lse=a["d_lse"], kv_lengths=[2, 3])
    for b, length in ((0, 2), (1, 3)):
        a["k"][b, :, length:] = np.nan
        a["v"][b, :, length:] = np.inf
    result = attention_gradients(a["q"], a["k"], a["v"], a["d_out"], d_lse=a["d_lse"], kv_lengths=[2, 3])
    for name in "qkv":
        np.testing.assert_array_equal(result[name], clean[name])
    for b, length in ((0, 2), (1, 3)):
        assert not result["k"][b, :, length:].any()
        assert not result["v"][b, :, length:].any()


def test_infinite_entries_of_a_mask_get_zero():
    case = dict(zip(IDS, CASES, strict=True))["additive-mask-with-inf"]
    arrays, options = case.arrays(), case.options()
    gradient = attention_gradients(*(arrays[name] for name in ("q", "k", "v", "d_out")), **options)["mask"]
    hidden = np.isneginf(options["mask"])
    assert hidden.any()
    assert not gradient[hidden].any()
    assert gradient[~hidden].any()


def test_nothing_to_differentiate():
    q, none = np.ones((1, 2, 3, 4)), np.ones((1, 1, 0, 4))
    result = attention_gradients(q, none, none, np.ones((1, 2, 3, 4)), d_lse=np.ones((1, 2, 3)))
    assert not result["q"].any()
    assert result["k"].shape == result["v"].shape == (1, 1, 0, 4)
    none = np.ones((1, 2, 0, 4))
    result = attention_gradients(none, q, q, none, bias=np.ones((1, 3)))
    assert not result["k"].any()
    assert result["bias"].tolist() == [[0, 0, 0]]


@pytest.mark.parametrize(("name", "given"), [("d_out", {"d_out": np.ones((1, 1, 2, 2))}), ("d_lse", {"d_lse": [1.0]})])
def test_cotangents_of_another_shape_are_refused(name, given):
    ones = np.ones((1, 1, 2, 3))
    with pytest.raises(ValueError, match=rf"\[attention_gradients\] {name} must have shape"):
        attention_gradients(ones, ones, ones, **{"d_out": ones, **given})


def test_sech2_neither_overflows_nor_cancels():
    x = np.array([0.0, 1.0, -1.0, 20.0, 300.0, 1e6])
    expected = [1.0, np.cosh(1.0) ** -2, np.cosh(1.0) ** -2, np.cosh(20.0) ** -2, 4 * np.exp(-600.0), 0.0]
    np.testing.assert_allclose(sech2(x), expected, rtol=1e-13)


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ((2, 3), [[1.0, 1.0, 1.0], [1.0, 1.0, 1.0]]),
        ((1, 3), [[2.0, 2.0, 2.0]]),
        ((2, 1), [[3.0], [3.0]]),
        ((3,), [2.0, 2.0, 2.0]),
    ],
    ids=str,
)
def test_broadcast_axes_are_summed(shape, expected):
    assert sum_to_shape(np.ones((2, 3)), shape).tolist() == expected
