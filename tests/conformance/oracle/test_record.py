"""Recording stages, and feeding a computation with given ones."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from mlx_tx_conformance.oracle.record import Recorder, Step


def chain(record: Recorder, x: np.ndarray) -> np.ndarray:
    double = record("double", 2 * x, "scale", ("x",), by=2)
    return record("square", double**2, "power", ("double",), ("w",))


def test_stages_in_order_and_how_they_came_about():
    record = Recorder()
    assert chain(record, np.array([1.0, 3.0])).tolist() == [4, 36]
    assert list(record.values) == ["double", "square"]
    assert record.values["double"].tolist() == [2, 6]
    assert record.steps["double"] == Step("scale", ("x",), (), {"by": 2})
    assert record.steps["square"] == Step("power", ("double",), ("w",), {})


def test_a_given_stage_is_read_downstream_and_its_own_value_is_kept():
    record = Recorder({"double": np.array([5.0, 5.0], dtype=ml_dtypes.bfloat16)})
    assert chain(record, np.array([1.0, 3.0])).tolist() == [25, 25]
    assert record.values["double"].tolist() == [2, 6]
    assert record.values["square"].tolist() == [25, 25]
    assert record.read("double").tolist() == [5, 5]
    assert record.read("square").tolist() == [25, 25]
    assert record.read("double").dtype == np.float64


def test_refuses_a_stage_of_another_shape_or_name():
    with pytest.raises(ValueError, match=r"\[oracle\] given stage double must have shape \(2,\); got \(3,\)"):
        chain(Recorder({"double": np.zeros(3)}), np.zeros(2))
    record = Recorder({"doubled": np.zeros(2)})
    chain(record, np.zeros(2))
    with pytest.raises(ValueError, match=r"\[oracle\] given stage doubled must be one of double, square"):
        record.refuse_leftovers()
    Recorder().refuse_leftovers()
