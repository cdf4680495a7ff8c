"""Tables by row, ids that are not in them, and the tied head."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from mlx_tx_conformance.oracle.embeddings import embed, learned_positions, output_head

TABLE = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])


def test_rows_by_id():
    assert embed([[2, 0], [1, 1]], TABLE).tolist() == [[[5, 6], [1, 2]], [[3, 4], [3, 4]]]
    assert embed(np.int32(1), TABLE, scale=3.0).tolist() == [9, 12]
    assert embed(np.zeros((2, 0), dtype=int), TABLE).shape == (2, 0, 2)
    assert embed([0], TABLE.astype(ml_dtypes.bfloat16)).dtype == np.float64


@pytest.mark.parametrize("outside", [3, -1, 2**31 - 1, -(2**31)])
def test_an_id_outside_the_vocabulary_is_nan_and_with_check_an_error(outside):
    rows = embed([1, outside, 2], TABLE)
    assert np.isnan(rows[1]).all()
    assert rows[[0, 2]].tolist() == [[3, 4], [5, 6]]
    with pytest.raises(ValueError, match=rf"\[embed\] ids must lie in 0..2; got {outside}"):
        embed([1, outside, 2], TABLE, check=True)


def test_the_head_is_the_table_again():
    x = np.array([[0.5, -1.0]])
    assert output_head(x, TABLE).tolist() == [[-1.5, -2.5, -3.5]]
    # A token's own row has the largest logit where all rows have one length.
    circle = np.array([[np.cos(a), np.sin(a)] for a in np.arange(5.0)])
    assert output_head(embed(np.arange(5), circle), circle).argmax(axis=-1).tolist() == [0, 1, 2, 3, 4]


def test_a_position_beyond_the_learned_table_is_an_error():
    assert learned_positions([2, 0], TABLE).tolist() == [[5, 6], [1, 2]]
    with pytest.raises(ValueError, match=r"\[learned_positions\] positions must lie in 0..2; got 3"):
        learned_positions([0, 3], TABLE)
    with pytest.raises(ValueError, match=r"positions must lie in 0..2; got -1"):
        learned_positions([-1], TABLE)
    assert np.isnan(learned_positions([0, 3], TABLE, check=False)[1]).all()


def test_refuses_ids_that_are_not_integers_and_tables_that_are_not_tables():
    with pytest.raises(TypeError, match=r"\[embed\] ids must hold integers; got float64"):
        embed([0.0], TABLE)
    with pytest.raises(ValueError, match=r"\[embed\] table must have two axes; got shape \(2,\)"):
        embed([0], TABLE[0])
