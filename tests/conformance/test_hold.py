"""hold(): an attention held to the spec inside somebody's own test."""

from __future__ import annotations

import mlx.core as mx
import numpy as np
import pytest

import mlx_tx_conformance
from mlx_tx_conformance import Nonconforming, hold
from mlx_tx_conformance.targets import open_target

from .runner.miniatures import RIGHT, UPPER_LEFT, tiny_spec


@pytest.fixture(scope="module")
def spec(tmp_path_factory):
    return tiny_spec(tmp_path_factory.mktemp("tiny"))


def compiled(text: str):
    names: dict = {}
    exec(text, names)
    return names["attention"]


def test_a_right_attention_is_held(spec):
    report = hold(compiled(RIGHT), spec=spec)
    assert report.counts["pass"] == 3
    assert report.counts["unsupported"] == 1


def test_a_wrong_one_is_named_by_its_clause(spec):
    with pytest.raises(Nonconforming, match=r"MSK-1 \(2 of 2 cases\)") as caught:
        hold(compiled(UPPER_LEFT), spec=spec)
    assert isinstance(caught.value, AssertionError)
    assert caught.value.clauses == ("MSK-1",)
    assert caught.value.report.counts["fail"] == 2
    assert "MSK-1/equals-oracle[float32]" in str(caught.value)


def test_clauses_and_dtypes_select(spec):
    assert len(hold(compiled(UPPER_LEFT), clauses=["ATT-*"], spec=spec).rows) == 1
    assert len(hold(compiled(UPPER_LEFT), "ATT-3", spec=spec).rows) == 1
    report = hold(compiled(RIGHT), clauses=["MSK-1/equals-oracle"], dtypes=["float16"], spec=spec)
    assert [row["dtype"] for row in report.rows] == ["float16"]


def test_another_seed_is_another_draw(spec):
    marks = {hold(compiled(RIGHT), "ATT-3", seed=seed, spec=spec).rows[0]["fingerprint"] for seed in (0, 1)}
    assert len(marks) == 2


def test_a_numpy_attention_and_a_target_are_held_too(spec):
    def attention(q, k, v, scale):
        s = np.einsum("bhid,bhjd->bhij", q, k) * scale
        p = np.exp(s - s.max(-1, keepdims=True))
        return ((p / p.sum(-1, keepdims=True)) @ v).astype(q.dtype)

    assert hold(attention, "ATT-3", array_library="numpy", spec=spec).counts["pass"] == 1
    assert hold(open_target("mlx_tx:composed"), spec=spec).counts["pass"] == 4


def test_what_raises_is_an_error_that_breaks_the_clause(spec):
    def attention(q, k, v):
        raise RuntimeError("no kernel")

    with pytest.raises(Nonconforming, match="no kernel"):
        hold(attention, "ATT-3", spec=spec)


@pytest.mark.parametrize("ending", [SystemExit(3), KeyboardInterrupt()])
def test_what_would_end_the_process_breaks_the_clause_instead(spec, ending):
    def attention(q, k, v):
        raise ending

    with pytest.raises(Nonconforming, match=f"would end the process: {type(ending).__name__}"):
        hold(attention, "ATT-3", spec=spec)


def test_a_selection_that_proves_nothing_is_refused(spec):
    with pytest.raises(ValueError, match="no case matches 'MSX-1'"):
        hold(compiled(RIGHT), clauses=["MSX-1"], spec=spec)

    def no_mask(q, k, v):
        return mx.array(v)

    with pytest.raises(ValueError, match="supports none of the 3 cases selected: no argument causal"):
        hold(no_mask, clauses=["MSK-1"], spec=spec)


def test_what_is_no_attention_is_refused(spec):
    with pytest.raises(TypeError, match="got int"):
        hold(3, spec=spec)
    with pytest.raises(TypeError, match="takes q, k and v first"):
        hold(lambda q: q, spec=spec)


def test_the_package_offers_it_without_importing_mlx_first():
    assert mlx_tx_conformance.hold is hold
    assert "hold" in mlx_tx_conformance.__all__
    with pytest.raises(AttributeError, match="grip"):
        _ = mlx_tx_conformance.grip
