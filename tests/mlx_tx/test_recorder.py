"""Stages are handed to every open recorder, and computed for nobody where none is open."""

import mlx.core as mx
import pytest

from mlx_tx.recorder import note, record_stages, wants_weights


def test_a_function_is_called_only_where_someone_records():
    def never():
        raise AssertionError("called")

    note("a", never)
    with record_stages() as stages:
        note("a", lambda: mx.ones((2,)))
        assert note("b", mx.zeros(3)).shape == (3,)
    assert list(stages) == ["a", "b"]


def test_weights_are_wanted_by_any_open_recorder():
    assert not wants_weights()
    with record_stages(weights=True), record_stages():
        assert wants_weights()
    with record_stages():
        assert not wants_weights()


def test_a_recorder_is_closed_by_an_error():
    with pytest.raises(KeyError), record_stages() as stages:
        raise KeyError
    note("late", mx.zeros(1))
    assert not stages
