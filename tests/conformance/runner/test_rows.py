"""Rows are JSON whatever a check puts into them."""

from __future__ import annotations

import json

import ml_dtypes
import numpy as np
import pytest

from mlx_tx_conformance.outcome import Outcome
from mlx_tx_conformance.runner.rows import make_row, plain

from .miniatures import MiniCase


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (np.float32(0.5), 0.5),
        (np.int64(3), 3),
        (np.bool_(True), True),
        (np.array([1, 2]), [1, 2]),
        (np.array([1.5], ml_dtypes.bfloat16), [1.5]),
        (float("inf"), "inf"),
        (-np.inf, "-inf"),
        (float("nan"), "nan"),
        ({"a": (1, {2})}, {"a": [1, [2]]}),
        (None, None),
        (MiniCase, str(MiniCase)),
    ],
)
def test_values_become_what_json_has(value, expected):
    assert plain(value) == expected
    json.dumps(plain(value), allow_nan=False)


def test_a_row_says_what_ran_and_what_came_of_it():
    outcome = Outcome("fail", "off", headroom=np.float64(2.5), path="composed", fingerprint="f", details={"z": np.inf})
    row = make_row(MiniCase("A-1/x", dtype="float16"), "mini", "cpu", outcome, order=3, seconds=0.12345678)
    assert row == {
        "kind": "result", "order": 3, "case": "A-1/x", "clause": "A-1", "target": "mini", "device": "cpu",
        "path": "composed", "dtype": "float16", "verdict": "fail", "headroom": 2.5, "message": "off",
        "seconds": 0.1235, "fingerprint": "f", "details": {"z": "inf"},
    }  # fmt: skip
