import numpy as np
import pytest

from mlx_tx_conformance.bounds import rows

from .naive import largest_prefix, records

RNG = np.random.default_rng(0)


def test_additions_count_a_negligible_weight_by_its_share():
    u = 2.0**-24
    p = np.array([[[0.5, 0.5, u / 4, 0.0]]])
    assert rows.effective_additions(p)[0, 0, 0] == 1 + 1 + 1 + 0.25


def test_rescalings_are_the_records_in_the_worse_direction_and_a_tree():
    s = RNG.standard_normal((2, 5, 23))
    allowed = RNG.random(s.shape) < 0.6
    found = rows.rescalings(s, allowed)
    for h in range(2):
        for i in range(5):
            line = np.where(allowed[h, i], s[h, i], -np.inf).tolist()
            assert found[h, i, 0] == max(records(line), records(line[::-1])) + 2 * 5


def multiplicities(s, allowed, weight_dtype=None):
    weights = np.where(allowed, np.exp(s), 0.0)
    peak = np.where(allowed, s, -np.inf).max(-1, keepdims=True)
    return rows.multiplicities(s, weights / weights.sum(-1, keepdims=True), allowed, peak, weight_dtype)


def test_multiplicities_count_equal_scores_and_equal_stored_weights():
    s = np.array([[[0.0, -1.0, -1.0, -1.0 - 1e-4, -9.0, -1.0]]])
    allowed = np.array([[[True, True, True, True, True, False]]])
    found = multiplicities(s, allowed, np.dtype(np.float16))
    assert found.score[0, 0, :5].tolist() == [1, 2, 2, 1, 1]
    assert found.stored[0, 0, :5].tolist() == [1, 3, 3, 3, 1]
    assert found.added[0, 0, :5].tolist() == [1, 2, 2, 1, 1]


def test_multiplicities_agree_with_counting_one_by_one():
    s = RNG.integers(-4, 1, size=(3, 4, 40)).astype(float)
    allowed = RNG.random(s.shape) < 0.5
    found = multiplicities(s, allowed)
    for h, i, j in np.argwhere(allowed):
        same = sum(allowed[h, i, other] and s[h, i, other] == s[h, i, j] for other in range(40))
        assert found.score[h, i, j] == found.stored[h, i, j] == found.added[h, i, j] == same


def test_weights_that_agree_to_the_last_place_of_their_sum_are_added_alike():
    u = 2.0**-24
    s = np.log(np.array([[[0.5 + 0.4 * u, 0.25, 0.125 + 0.4 * u, 0.125 + 0.9 * u, 0.2 * u, 0.3 * u]]]))
    found = multiplicities(s, np.ones(s.shape, dtype=bool))
    assert found.score[0, 0].tolist() == [1, 1, 1, 1, 1, 1]
    # The last two are below one place of the sum, which they move by chance only.
    assert found.added[0, 0].tolist() == [1, 1, 2, 2, 1, 1]


def test_a_hidden_key_is_in_no_ones_company():
    s = np.zeros((1, 1, 6))
    allowed = np.array([[[True, False, False, False, True, False]]])
    found = multiplicities(s, allowed, np.dtype(np.float16))
    for counts in (found.score, found.stored, found.added):
        assert counts[allowed].tolist() == [2, 2]


def test_scores_that_differ_in_the_last_bits_of_float64_are_one_score():
    s = np.array([[[3.0, 3.0 + 4e-15, 3.0 - 4e-15, 3.0001]]])
    assert multiplicities(s, np.ones(s.shape, bool)).score[0, 0].tolist() == [3, 3, 3, 1]


def test_alike_counts_along_the_last_axis():
    values = np.array([[1.0, 2.0, 1.0], [5.0, 5.0, 5.0]])
    assert rows.alike(values).tolist() == [[2, 1, 2], [3, 3, 3]]
    values[:, 2] += 0.1
    assert rows.alike(values).tolist() == [[1, 1, 1], [2, 2, 1]]
    assert rows.alike(values, places=0.5).tolist() == [[2, 1, 2], [3, 3, 3]]


@pytest.mark.parametrize("T", [1, 15, 16, 17, 48, 100])
def test_no_partial_sum_exceeds_the_largest_prefix(T):
    p = RNG.random((2, 3, T))
    v = RNG.standard_normal((2, T, 4))
    found = rows.largest_prefix(p, v)
    partial = np.abs(np.cumsum(p[..., None] * v[:, None], axis=2)).max(2)
    assert (found >= partial * (1 - 1e-12)).all()
    one = [[[largest_prefix(p[h, i].tolist(), v[h, :, d]) for d in range(4)] for i in range(3)] for h in range(2)]
    np.testing.assert_allclose(found, one, rtol=1e-12)


@pytest.mark.parametrize("budget", [1, 50, 10**9])
def test_centred_magnitude_is_the_plain_sum_however_it_is_cut(monkeypatch, budget):
    monkeypatch.setattr(rows, "_CENTRED_ELEMENTS", budget)
    w = RNG.random((2, 3, 4, 7))
    v = RNG.standard_normal((2, 7, 5))
    o = RNG.standard_normal((2, 4, 5))
    expected = np.einsum("hwij,hijd->hwid", w, np.abs(v[:, None] - o[:, :, None]))
    np.testing.assert_allclose(rows.centred_magnitude(w, v, o), expected, rtol=1e-12)


def test_centred_square_is_the_plain_sum_and_never_negative():
    w = RNG.random((2, 4, 7))
    v = RNG.standard_normal((2, 7, 5))
    o = RNG.standard_normal((2, 4, 5))
    expected = np.einsum("hij,hijd->hid", w, (v[:, None] - o[:, :, None]) ** 2)
    np.testing.assert_allclose(rows.centred_square(w, v, o), expected, rtol=1e-10)
    constant = np.full((2, 7, 5), 100.1)
    assert (rows.centred_square(w, constant, np.full((2, 4, 5), 100.1)) >= 0).all()
