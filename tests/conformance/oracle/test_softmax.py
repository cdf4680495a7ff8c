"""Softmax and log-sum-exp, on rows whose answer is known."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest

from mlx_tx_conformance.oracle.softmax import log_sum_exp, normalise, softmax

INF = np.inf


def test_by_hand():
    x = np.log([[1.0, 2.0, 5.0]])
    np.testing.assert_allclose(softmax(x), [[0.125, 0.25, 0.625]], rtol=1e-15)
    np.testing.assert_allclose(log_sum_exp(x), [math.log(8)], rtol=1e-15)


def test_any_axis():
    x = np.log(np.array([[1.0, 3.0], [3.0, 1.0]]))
    np.testing.assert_allclose(softmax(x, axis=0), [[0.25, 0.75], [0.75, 0.25]], rtol=1e-15)
    np.testing.assert_allclose(log_sum_exp(np.log([[1.0, 3.0], [7.0, 1.0]]), axis=0), np.log([8.0, 4.0]), rtol=1e-15)
    three = np.random.default_rng(0).normal(size=(2, 3, 4))
    np.testing.assert_allclose(softmax(three, axis=1).sum(axis=1), np.ones((2, 4)), rtol=1e-15)
    assert log_sum_exp(three, axis=1).shape == (2, 4)


def test_adding_a_constant_changes_nothing_but_the_sum():
    x = np.array([0.25, -1.5, 3.0])
    np.testing.assert_array_equal(softmax(x + 2.0**20), softmax(x))
    assert log_sum_exp(x + 2.0**20) - 2.0**20 == pytest.approx(log_sum_exp(x), abs=1e-9)


def test_huge_values_do_not_overflow():
    assert softmax([1e300, 0.0, 1e300]).tolist() == [0.5, 0.0, 0.5]
    assert log_sum_exp([1e300, -1e300]) == 1e300


def test_entries_of_minus_infinity_have_no_weight():
    assert softmax([0.0, -INF]).tolist() == [1.0, 0.0]
    assert log_sum_exp([-INF, 2.0]) == 2.0


def test_rows_with_nothing_are_zero():
    assert softmax([[-INF, -INF], [0.0, 0.0]]).tolist() == [[0.0, 0.0], [0.5, 0.5]]
    assert log_sum_exp([[-INF, -INF]]).tolist() == [-INF]
    assert softmax(np.zeros((2, 0))).shape == (2, 0)
    assert log_sum_exp(np.zeros((2, 0))).tolist() == [-INF, -INF]


def test_nan_and_infinity_give_nan():
    assert np.isnan(softmax([0.0, np.nan])).all()
    assert np.isnan(softmax([0.0, INF])[1])


def test_half_precision_goes_in_and_float64_comes_out():
    y = softmax(np.array([1.0, 1.0, 1.0], dtype=ml_dtypes.bfloat16))
    assert y.dtype == np.float64
    assert y.tolist() == [1 / 3] * 3


def test_a_sink_joins_maximum_and_denominator():
    weights, sink_weight, lse = normalise(np.log([[1.0, 2.0]]), np.log(5.0))
    np.testing.assert_allclose(weights, [[0.125, 0.25]], rtol=1e-15)
    np.testing.assert_allclose(sink_weight, [0.625], rtol=1e-15)
    np.testing.assert_allclose(lse, [math.log(8)], rtol=1e-15)
    weights, sink_weight, lse = normalise(np.array([[0.0]]), np.float64(800.0))
    assert (weights.item(), sink_weight.item(), lse.item()) == (0.0, 1.0, 800.0)


def test_a_sink_without_keys():
    weights, sink_weight, lse = normalise(np.array([[-INF, -INF]]), np.float64(-3.0))
    assert (weights.tolist(), sink_weight.tolist(), lse.tolist()) == ([[0.0, 0.0]], [1.0], [-3.0])
    weights, sink_weight, lse = normalise(np.array([[-INF]]), np.float64(-INF))
    assert (weights.tolist(), sink_weight.tolist(), lse.tolist()) == ([[0.0]], [0.0], [-INF])
