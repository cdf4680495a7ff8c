import numpy as np
import pytest

from mlx_tx_conformance.bounds.bound import Bound, finish
from mlx_tx_conformance.bounds.units import unit

INF, NAN = np.inf, np.nan


def bound(value, limit, dtype="float32"):
    value = np.array(value, dtype=np.float64)
    limit = np.broadcast_to(np.array(limit, dtype=np.float64), value.shape)
    return Bound(value, limit, limit * 2, np.ones(value.shape, dtype=bool), dtype)


def test_limit_is_the_smaller_form_element_by_element():
    held = Bound(np.zeros(3), np.array([1.0, 4.0, INF]), np.array([2.0, 3.0, 5.0]), np.ones(3, dtype=bool))
    assert held.limit.tolist() == [1.0, 3.0, 5.0]


def test_headroom_is_error_over_limit():
    assert bound([1.0, 2.0], 0.5).headroom(np.array([1.25, 1.0], np.float32)).tolist() == [0.5, 2.0]


def test_nan_is_never_right():
    held = bound([1.0, NAN, -INF], 0.5)
    assert held.headroom(np.full(3, NAN, np.float32)).tolist() == [INF, INF, INF]


def test_a_zero_limit_accepts_the_exact_value_only():
    held = bound([0.0, 0.0, -INF, -INF, -INF], 0.0)
    actual = np.array([0.0, 1e-30, -INF, -1e38, INF], np.float32)
    assert held.headroom(actual).tolist() == [0.0, INF, 0.0, INF, INF]


def test_a_negative_zero_is_the_exact_zero():
    assert bound([0.0], 0.0).headroom(np.array([-0.0], np.float32)).tolist() == [0.0]


def test_float16_infinity_is_right_where_value_and_limit_reach_its_overflow():
    held = bound(
        [65500.0, 65500.0, -65500.0, 65500.0, 65530.0, 65000.0], [40.0, 10.0, 40.0, 40.0, 1.0, 40.0], "float16"
    )
    actual = np.array([INF, INF, -INF, -INF, INF, INF], np.float16)
    assert held.headroom(actual).tolist() == [0.5, INF, 0.5, INF, 0.0, INF]


def test_float32_infinity_is_wrong_for_ordinary_values():
    assert bound([65500.0], 40.0).headroom(np.array([INF], np.float32)).tolist() == [INF]


def test_another_shape_is_refused():
    with pytest.raises(ValueError, match=r"\(2,\).*\(1, 2\)"):
        bound([1.0, 2.0], 1.0).headroom(np.zeros((1, 2)))


def test_the_result_is_rounded_once_more_unless_it_is_not():
    value, error = np.array([3.0]), np.array([0.01])
    u, tau = unit("float16").u, unit("float16").tau
    assert finish(value, error, 2 * error, "float16").det[0] == pytest.approx(0.01 + u * 3.01 + tau, rel=1e-12)
    assert finish(value, error, 2 * error, "float16").prob[0] == pytest.approx(0.02 + u * 3.02 + tau, rel=1e-12)
    assert finish(value, error, error, "float16", rounded=False).det[0] == 0.01


def test_infinite_errors_of_both_forms_are_not_decidable():
    det, prob = np.array([INF, INF, 1.0, NAN]), np.array([INF, 1.0, INF, NAN])
    held = finish(np.zeros(4), det, prob, "float32")
    assert held.decidable.tolist() == [False, True, True, False]
    assert held.limit[[0, 3]].tolist() == [INF, INF]


def test_an_oracle_value_of_nan_is_not_decidable_and_one_of_infinity_is_exact():
    held = finish(np.array([NAN, INF, -INF]), np.ones(3), np.ones(3), "float32")
    assert held.decidable.tolist() == [False, True, True]
    assert held.limit[1:].tolist() == [0.0, 0.0]


def test_rows_marked_zero_have_no_tolerance():
    held = finish(np.zeros((2, 2)), np.ones((2, 2)), np.ones((2, 2)), "float32", zero=np.array([[True], [False]]))
    assert held.limit[0].tolist() == [0.0, 0.0]
    assert (held.limit[1] > 0).all()
