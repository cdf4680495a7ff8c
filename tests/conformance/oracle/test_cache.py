"""The reference of caches: against a list that evicts, against one pass over the whole text, and its operations."""

from __future__ import annotations

import numpy as np
import pytest

from mlx_tx_conformance.oracle.attention import attention
from mlx_tx_conformance.oracle.cache import CrossCache, Rule, TokenCache
from mlx_tx_conformance.oracle.quantise import quantised_values

N, D, D_V = 2, 3, 2

RULES = [Rule(), Rule(1), Rule(4), Rule(4, 1), Rule(5, 2), Rule(5, 4), Rule(50)]


def text(T: int, B: int = 1, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(B, N, T, D)), rng.normal(size=(B, N, T, D)), rng.normal(size=(B, N, T, D_V))


class Evicting:
    """A cache that holds W tokens: each new one drops the oldest that is no sink."""

    def __init__(self, rule: Rule) -> None:
        self.rule = rule
        self.positions: list[int] = []

    def add(self, position: int) -> list[int]:
        self.positions.append(position)
        if self.rule.max_size is not None and len(self.positions) > self.rule.max_size:
            del self.positions[self.rule.keep]
        return self.positions


def steps(cache: TokenCache, q, k, v, splits) -> np.ndarray:
    """Outputs of the text fed in pieces of these sizes."""
    outs, at = [], 0
    for S in splits:
        piece = slice(at, at + S)
        view = cache.update(k[:, :, piece], v[:, :, piece])
        outs.append(attention(q[:, :, piece], view.keys, view.values, mask=view.allowed).out)
        at += S
    return np.concatenate(outs, axis=2)


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_sees_what_an_evicting_cache_holds(rule):
    evicting = Evicting(rule)
    for position in range(17):
        held = evicting.add(position)
        assert [j for j in range(30) if rule.sees(position, j)] == held


@pytest.mark.parametrize("rule", RULES, ids=str)
@pytest.mark.parametrize("splits", [[11], [1] * 11, [3, 1, 5, 2], [10, 1], [0, 6, 5]], ids=str)
def test_any_split_is_one_pass_over_the_whole_text(rule, splits):
    q, k, v = text(11)
    whole = attention(q, k, v, mask=rule.mask(11)).out
    np.testing.assert_allclose(steps(TokenCache(rule=rule), q, k, v, splits), whole, rtol=1e-13, atol=1e-15)


@pytest.mark.parametrize("W", [1, 3, 8])
def test_rotating_without_sinks_is_a_causal_window(W):
    q, k, v = text(9)
    windowed = attention(q, k, v, causal=True, window=W).out
    np.testing.assert_array_equal(attention(q, k, v, mask=Rule(W).mask(9)).out, windowed)
    np.testing.assert_array_equal(Rule().mask(4)[0, 0], np.tri(4, dtype=bool))


def test_mask_with_sinks_by_hand():
    expected = [
        [1, 0, 0, 0, 0, 0],
        [1, 1, 0, 0, 0, 0],
        [1, 1, 1, 0, 0, 0],
        [1, 0, 1, 1, 0, 0],
        [1, 0, 0, 1, 1, 0],
        [1, 0, 0, 0, 1, 1],
    ]
    assert Rule(3, 1).mask(6)[0, 0].astype(int).tolist() == expected


def test_view_by_hand():
    _, k, v = text(6)
    cache = TokenCache(rule=Rule(3, 1))
    cache.update(k[:, :, :4], v[:, :, :4])
    view = cache.update(k[:, :, 4:], v[:, :, 4:])
    # Queries 4 and 5 see 0, 3, 4 and 0, 4, 5.
    assert view.positions.tolist() == [[4, 5]]
    assert view.key_positions.tolist() == [[0, 3, 4, 5]]
    assert view.allowed[0, 0].astype(int).tolist() == [[1, 1, 1, 0], [1, 0, 1, 1]]
    np.testing.assert_array_equal(view.keys[0], k[0][:, [0, 3, 4, 5]])
    np.testing.assert_array_equal(view.values[0], v[0][:, [0, 3, 4, 5]])
    assert cache.offsets == [6]
    # Of the three that it holds, the next query sees no more than the sink and the last.
    assert cache.kept() == [[0, 5]]


@pytest.mark.parametrize("rule", RULES, ids=str)
@pytest.mark.parametrize("splits", [[8], [1] * 8, [2, 5, 1]], ids=str)
def test_a_padded_row_is_the_row_alone(rule, splits):
    lengths = [8, 3, 1, 5]
    q, k, v = text(8, B=4)
    pads = [8 - length for length in lengths]
    poisoned = [x.copy() for x in (q, k, v)]
    for b, pad in enumerate(pads):
        for x in poisoned:
            x[b, :, :pad] = np.nan
    together = steps(TokenCache(pads, rule=rule), *poisoned, splits)
    for b, (pad, length) in enumerate(zip(pads, lengths, strict=True)):
        assert not together[b, :, :pad].any()
        alone = [x[b : b + 1, :, pad:] for x in (q, k, v)]
        out = steps(TokenCache(rule=rule), *alone, [length])
        np.testing.assert_allclose(together[b, :, pad:], out[0], rtol=1e-13, atol=1e-15)


def test_padded_rows_see_the_mask_of_the_rule():
    q, k, v = text(6, B=2)
    pads = [0, 4]
    whole = attention(q, k, v, mask=Rule(3).mask(6, pads)).out
    np.testing.assert_allclose(steps(TokenCache(pads, rule=Rule(3)), q, k, v, [4, 2]), whole, rtol=1e-13, atol=1e-15)


def test_offsets_are_negative_while_padding_is_still_to_come():
    _, k, v = text(6, B=2)
    cache = TokenCache([0, 4])
    assert cache.offsets == [0, -4]
    view = cache.update(k[:, :, :3], v[:, :, :3])
    assert cache.offsets == [3, -1]
    assert view.key_positions.tolist() == [[0, 1, 2], [-1, -1, -1]]
    view = cache.update(k[:, :, 3:], v[:, :, 3:])
    assert view.key_positions.tolist() == [[0, 1, 2, 3, 4, 5], [-1, -1, -1, -1, 0, 1]]
    assert not view.keys[1, :, :4].any()


@pytest.mark.parametrize("rule", RULES, ids=str)
@pytest.mark.parametrize("n", [0, 1, 2, 5, 9])
def test_trimmed_is_never_fed_where_it_can_be(rule, n):
    _, k, v = text(9)
    cache = TokenCache(rule=rule)
    cache.update(k, v)
    # What an evicting cache still holds has to be enough for the next query of the shorter text.
    evicting = Evicting(rule)
    for position in range(9):
        held = set(evicting.add(position))
    needed = {j for j in range(9 - n) if rule.sees(9 - n, j)}
    assert cache.can_trim(n) == (needed <= held)
    assert cache.trim(n) == n
    assert cache.offsets == [9 - n]
    fresh = TokenCache(rule=rule)
    fresh.update(k[:, :, : 9 - n], v[:, :, : 9 - n])
    more = text(4, seed=1)
    np.testing.assert_array_equal(steps(cache, *more, [4]), steps(fresh, *more, [4]))


def test_can_trim_by_hand():
    _, k, v = text(9)
    cache = TokenCache(rule=Rule(4, 1))
    cache.update(k, v)
    # It holds 0, 6, 7, 8. Without 8 the next query sees 0, 6, 7; without 7 too it would see 5, which is gone.
    assert [n for n in range(10) if cache.can_trim(n)] == [0, 1, 8, 9]
    assert not cache.trimmable()
    cache.trim(1)
    assert [n for n in range(9) if cache.can_trim(n)] == [0, 7, 8]
    full = TokenCache()
    full.update(k, v)
    assert full.trimmable()
    assert all(full.can_trim(n) for n in range(12))


def test_trimmable_is_the_protocol_of_mlx_lm():
    _, k, v = text(6)
    cache = TokenCache(rule=Rule(4))
    trimmable = []
    for t in range(6):
        trimmable.append(cache.trimmable())
        cache.update(k[:, :, t : t + 1], v[:, :, t : t + 1])
    assert trimmable == [True] * 4 + [False] * 2


def test_trim_takes_no_more_than_there_is_and_gives_padding_back():
    _, k, v = text(5, B=2)
    cache = TokenCache([0, 3])
    cache.update(k, v)
    assert cache.trim(4) == 4
    assert cache.offsets == [1, -2]
    assert [len(row.tokens) for row in cache.rows] == [1, 0]
    view = cache.update(k[:, :, :3], v[:, :, :3])
    assert view.key_positions.tolist() == [[0, 1, 2, 3], [-1, -1, -1, 0]]
    assert cache.trim(99) == 4
    assert cache.offsets == [0, -3]


def test_rewind_goes_back_to_a_length():
    _, k, v = text(7)
    cache = TokenCache()
    cache.update(k, v)
    assert cache.rewind(3) == 4
    assert cache.offsets == [3]
    assert cache.rewind(5) == 0
    assert cache.rewind(0) == 3


@pytest.mark.parametrize("rule", [Rule(), Rule(4, 1)], ids=str)
def test_a_copy_continues_alike_and_apart(rule):
    _, k, v = text(6)
    cache = TokenCache(rule=rule)
    cache.update(k, v)
    twin = cache.copy()
    more, other = text(3, seed=1), text(3, seed=2)
    steps(cache, *other, [3])
    fresh = TokenCache(rule=rule)
    fresh.update(k, v)
    np.testing.assert_array_equal(steps(twin, *more, [1, 2]), steps(fresh, *more, [1, 2]))
    assert cache.offsets == twin.offsets == [9]


def test_filter_extract_and_merge():
    _, k, v = text(6, B=3)
    cache = TokenCache([0, 2, 5], rule=Rule(4, 1))
    cache.update(k, v)
    more = text(2, B=3, seed=1)
    expected = steps(cache.copy(), *more, [2])
    few = cache.copy()
    few.filter([2, 0])
    np.testing.assert_array_equal(steps(few, *(x[[2, 0]] for x in more), [2]), expected[[2, 0]])
    alone = [cache.extract(b) for b in range(3)]
    assert [one.offsets for one in alone] == [[6], [4], [1]]
    assert [one.rows[0].left_padding for one in alone] == [0, 0, 0]
    for b, one in enumerate(alone):
        own = steps(one.copy(), *(x[b : b + 1] for x in more), [2])
        np.testing.assert_allclose(own[0], expected[b], rtol=1e-13)
    merged = TokenCache.merge(alone)
    assert [row.left_padding for row in merged.rows] == [0, 2, 5]
    np.testing.assert_array_equal(steps(merged, *more, [2]), expected)
    # The pieces were copies: nothing of the batch went into them.
    assert [one.offsets for one in alone] == [[6], [4], [1]]


def test_a_row_of_padding_only_is_an_empty_text():
    _, k, v = text(2, B=2)
    cache = TokenCache([0, 5])
    cache.update(k, v)
    alone = cache.extract(1)
    assert (alone.offsets, alone.rows[0].fed, alone.rows[0].tokens) == ([0], 0, [])
    again = TokenCache.merge([alone])
    assert again.offsets == [0]
    assert TokenCache.merge([cache.extract(0), alone]).rows[1].left_padding == 2


def test_quantised_tokens_come_back_as_they_are_stored():
    rng = np.random.default_rng(0)
    k, v = rng.normal(size=(1, N, 5, 64)), rng.normal(size=(1, N, 5, 32))
    cache = TokenCache(quantisation={"bits": 4, "group_size": 32})
    cache.update(k[:, :, :2], v[:, :, :2])
    view = cache.update(k[:, :, 2:], v[:, :, 2:])
    np.testing.assert_array_equal(view.keys, quantised_values(k, bits=4, group_size=32))
    np.testing.assert_array_equal(view.values, quantised_values(v, bits=4, group_size=32))
    assert (view.keys != k).any()
    np.testing.assert_array_equal(cache.copy().update(k[:, :, :0], v[:, :, :0]).positions, np.zeros((1, 0)))


def test_cross_attention_memory():
    q, k, v = text(5, B=2)
    memory = CrossCache()
    with pytest.raises(ValueError, match=r"\[CrossCache\] fill must be called before fetch"):
        memory.fetch()
    memory.fill(k, v, [5, 2])
    view = memory.fetch()
    out = attention(q, view.keys, view.values, mask=view.allowed).out
    np.testing.assert_array_equal(out, attention(q, k, v, kv_lengths=[5, 2]).out)
    assert view.key_positions.tolist() == [[0, 1, 2, 3, 4], [0, 1, -1, -1, -1]]
    assert view.positions.shape == (2, 0)
    assert memory.trim(3) == 0
    assert memory.fetch() is view
    with pytest.raises(ValueError, match=r"\[CrossCache\] fill must be called once"):
        memory.fill(k, v)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0,), "max_size must be >= 1; got 0"),
        ((4, 4), "keep must lie in 0..max_size - 1; got 4 of 4"),
        ((None, 2), "keep must lie in 0..max_size - 1; got 2 of None"),
        ((4, -1), "keep must lie in 0..max_size - 1; got -1 of 4"),
    ],
    ids=str,
)
def test_rules_that_make_no_cache(arguments, message):
    with pytest.raises(ValueError, match=rf"\[Rule\] {message}"):
        Rule(*arguments)


def test_refuses_another_batch_and_another_rule():
    _, k, v = text(2, B=2)
    with pytest.raises(ValueError, match=r"\[TokenCache\] keys and values must have batch 1; got \(2, 2, 2, 3\)"):
        TokenCache().update(k, v)
    with pytest.raises(ValueError, match=r"\[TokenCache\] caches must be of one kind; got \[\(Rule"):
        TokenCache.merge([TokenCache(), TokenCache(rule=Rule(3))])
    with pytest.raises(ValueError, match=r"\[TokenCache\] caches must be of one kind"):
        TokenCache.merge([TokenCache(), TokenCache(quantisation={"bits": 8, "group_size": 32})])
