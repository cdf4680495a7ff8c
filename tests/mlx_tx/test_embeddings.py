"""Tables: rows of ids, never those of another id (EMB-1, POS-2)."""

import mlx.core as mx
import numpy as np
import pytest

from mlx_tx.embeddings import Embedding, LearnedPositions


@pytest.fixture
def table():
    return Embedding(7, 3)


@pytest.mark.parametrize("dtype", [mx.int32, mx.int64, mx.uint8, mx.uint32, mx.int8])
def test_rows_by_id(table, dtype):
    ids = mx.array([[0, 6], [3, 3]], dtype=dtype)
    np.testing.assert_array_equal(np.array(table(ids)), np.array(table.weight)[[[0, 6], [3, 3]]])


@pytest.mark.parametrize("bad", [7, -1, -7, 2**31 - 1, -(2**31)])
def test_an_id_outside_gives_nan_and_its_neighbours_their_rows(table, bad):
    rows = np.array(table(mx.array([[1, bad, 2]], dtype=mx.int32)))
    assert np.isnan(rows[0, 1]).all()
    np.testing.assert_array_equal(rows[0, [0, 2]], np.array(table.weight)[[1, 2]])


def test_an_unsigned_id_outside_gives_nan_too(table):
    assert mx.all(mx.isnan(table(mx.array([2**32 - 1], dtype=mx.uint32)))).item()


@pytest.mark.parametrize("bad", [7, -1])
def test_checked_it_is_an_error_that_names_the_id(table, bad):
    with pytest.raises(ValueError, match=rf"\[Embedding\] ids must lie in 0\.\.6; got {bad}"):
        table(mx.array([1, bad]), check=True)
    table(mx.array([0, 6]), check=True)


def test_a_check_inside_compile_says_why_it_cannot_be(table):
    with pytest.raises(ValueError, match="check=True reads ids"):
        mx.compile(lambda ids: table(ids, check=True))(mx.array([1]))


def test_gradient_reaches_exactly_the_rows_that_were_used(table):
    def f(weight):
        table.weight = weight
        return table(mx.array([[2, 5, 5, 9]]))[:, :3].sum()

    gradient = np.array(mx.grad(f)(table.weight))
    np.testing.assert_array_equal(gradient, np.outer([0, 0, 1, 0, 0, 2, 0], [1, 1, 1]))


def test_the_tied_head_uses_the_same_table(table):
    x = mx.random.normal((2, 3))
    np.testing.assert_allclose(
        np.array(table.as_linear(x)), np.array(x) @ np.array(table.weight).T, rtol=1e-5, atol=1e-6
    )


def test_ids_must_be_integers(table):
    with pytest.raises(TypeError, match="ids must hold integers; got"):
        table(mx.array([1.0]))


def test_learned_positions_end_with_the_table():
    positions = LearnedPositions(4, 3)
    got = np.array(positions(mx.array([3, 4])))
    np.testing.assert_array_equal(got[0], np.array(positions.weight)[3])
    assert np.isnan(got[1]).all()
    with pytest.raises(ValueError, match=r"\[LearnedPositions\] positions must lie in 0\.\.3; got 4"):
        positions(mx.array([3, 4]), check=True)
