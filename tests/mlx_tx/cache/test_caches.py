"""Caches by themselves: protocol, buffers, state, and what they refuse."""

import mlx.core as mx
import numpy as np
import pytest

from mlx_tx.cache import (
    BatchKVCache,
    BatchRotatingKVCache,
    CacheList,
    CrossKVCache,
    KVCache,
    QuantizedKVCache,
    RotatingKVCache,
)
from mlx_tx_conformance.oracle.cache import Rule, TokenCache

KINDS = {
    "full": KVCache,
    "rotating": lambda: RotatingKVCache(6),
    "sinks": lambda: RotatingKVCache(6, keep=2),
    "batched": lambda: BatchKVCache([0, 2]),
    "batched-rotating": lambda: BatchRotatingKVCache(6, [0, 2]),
}


def pair(N, B=2, D=4, D_v=3, seed=0):
    rng = np.random.default_rng(seed)
    return tuple(mx.array(rng.normal(size=(B, 2, N, d)).astype(np.float32)) for d in (D, D_v))


def reference(kind):
    rule = {"full": Rule(), "batched": Rule(), "sinks": Rule(6, 2)}.get(kind, Rule(6))
    return TokenCache([0, 2] if kind.startswith("batched") else [0, 0], rule=rule)


def assert_shows(cache, oracle, k, v):
    """What the cache gives, sorted by slot and masked, is what the oracle's list of tokens gives."""
    N = k.shape[2]
    view, mask = cache.view(N), cache.make_mask(N, return_array=True)
    keys, values = (np.array(x) for x in cache.update_and_fetch(k, v))
    want = oracle.update(np.array(k), np.array(v))
    assert keys.shape[2] == view.T
    allowed = np.ones((2, 1, N, view.T), dtype=bool) if mask is None else np.broadcast_to(mask, (2, 1, N, view.T))
    slots = view.key_slots()
    for b in range(2):
        pad = oracle.rows[b].left_padding
        for i in range(N):
            if view.first + i - pad < 0:
                continue  # a query of padding means nothing
            mine = {int(slots[j]) - pad: j for j in np.flatnonzero(allowed[b, 0, i])}
            theirs = {int(want.key_positions[b, j]): j for j in np.flatnonzero(want.allowed[b, 0, i])}
            assert set(mine) == set(theirs)
            for position, j in mine.items():
                np.testing.assert_array_equal(keys[b, :, j], want.keys[b, :, theirs[position]].astype(np.float32))
                np.testing.assert_array_equal(values[b, :, j], want.values[b, :, theirs[position]].astype(np.float32))


@pytest.mark.parametrize("seed", range(25))
@pytest.mark.parametrize("kind", KINDS)
def test_random_sequences_show_what_a_plain_list_of_tokens_shows(kind, seed):
    rng = np.random.default_rng([seed, 17])
    cache, oracle = KINDS[kind](), reference(kind)
    for step in range(16):
        what = rng.random()
        if what < 0.25 and cache.can_trim(n := int(rng.integers(0, 4))):
            assert cache.trim(n) == oracle.trim(n)
        elif what < 0.4:
            cache = type(cache).from_state(cache.state, cache.meta_state) if not cache.empty() else cache
        elif what < 0.5 and kind.startswith("batched"):
            order = rng.permutation(2).tolist()
            cache.filter(order)
            oracle.filter(order)
        elif what < 0.6 and kind.startswith("batched") and min(oracle.offsets) >= 0:
            cache = type(cache).merge([cache.extract(b) for b in (1, 0)])
            oracle = TokenCache.merge([oracle.extract(b) for b in (1, 0)])
        elif what < 0.7 and kind.startswith("batched") and min(oracle.offsets) >= 0:
            N, takes = (n := int(rng.integers(1, 8))), [int(x) for x in rng.integers(0, n + 1, 2)]
            k, v = pair(N, seed=100 * seed + step)
            cache.prepare(right_padding=[N - n for n in takes])
            cache.update_and_fetch(k, v)
            cache.finalize()
            # What the list of tokens knows of padding on the right: it was fed nothing there, and merging moves rows.
            rows = [oracle.extract(b) for b in range(2)]
            for b, row in enumerate(rows):
                if takes[b]:
                    row.update(np.array(k)[b : b + 1, :, : takes[b]], np.array(v)[b : b + 1, :, : takes[b]])
            fed = cache.fed()
            oracle = TokenCache.merge(rows)
            for row in oracle.rows:
                row.left_padding, row.fed = row.left_padding + fed - row.fed, fed
        else:
            k, v = pair(int(rng.choice([1, 1, 1, 2, 3, 5, 9])), seed=100 * seed + step)
            assert_shows(cache, oracle, k, v)
        assert np.broadcast_to(np.array(cache.offset), (2,)).tolist() == oracle.offsets
        assert cache.is_trimmable() == oracle.trimmable()


@pytest.mark.parametrize("kind", [*KINDS, "quantised"])
def test_a_restored_cache_goes_on_as_the_one_that_was_saved(kind):
    cache = QuantizedKVCache(32, 4) if kind == "quantised" else KINDS[kind]()
    sizes = {"D": 32, "D_v": 64} if kind == "quantised" else {}
    for n in (3, 1, 4, 1, 2):
        cache.update_and_fetch(*pair(n, seed=n, **sizes))
        twin = type(cache).from_state(cache.state, cache.meta_state)
        assert twin.size() == cache.size()
        for N in (1, 3):
            mine = type(cache).from_state(cache.state, cache.meta_state)
            a, b = (c.update_and_fetch(*pair(N, seed=9, **sizes)) for c in (twin, mine))
            for x, y in zip(a, b, strict=True):
                for p, q in zip(x, y, strict=True) if isinstance(x, tuple) else [(x, y)]:
                    assert mx.array_equal(p, q).item()
            twin = type(cache).from_state(cache.state, cache.meta_state)


def test_buffers_grow_by_steps_and_not_by_tokens():
    cache = KVCache()
    sizes = set()
    for n in range(300):
        cache.update_and_fetch(*pair(1, seed=n))
        sizes.add(cache.nbytes)
    assert sizes == {2 * 2 * 7 * 4 * 256, 2 * 2 * 7 * 4 * 512}
    assert KVCache().nbytes == 0


def test_grouped_heads_shrink_the_cache_exactly():
    sizes = {}
    for N_kv in (1, 2, 4):
        cache = KVCache()
        cache.update_and_fetch(mx.zeros((1, N_kv, 5, 8)), mx.zeros((1, N_kv, 5, 8)))
        sizes[N_kv] = cache.nbytes
    assert sizes[4] == 2 * sizes[2] == 4 * sizes[1]


def test_a_rotating_cache_never_holds_more_than_its_size():
    cache = RotatingKVCache(6, keep=1)
    for n in (1, 9, 1, 1, 20, 1):
        cache.update_and_fetch(*pair(n))
        assert cache.nbytes <= 2 * 2 * 7 * 4 * 6
        assert cache.size() <= 6


def test_a_full_rotating_cache_refuses_to_take_back():
    cache = RotatingKVCache(4)
    cache.update_and_fetch(*pair(4))
    assert not cache.is_trimmable()
    assert cache.trim(1) == 1
    cache.update_and_fetch(*pair(3))
    assert not cache.can_trim(1)
    with pytest.raises(ValueError, match=r"trim is for at most max_size=4 fed tokens.*got n=1 after 6"):
        cache.trim(1)
    assert cache.trim(0) == 0


def test_offsets_of_a_batch_are_not_changed_in_place():
    cache = BatchKVCache([0, 1])
    before = cache.offset
    cache.update_and_fetch(*pair(3))
    assert before.tolist() == [0, -1]
    assert cache.offset.tolist() == [3, 2]


def test_masks_are_those_that_mlx_lm_expects():
    cache = KVCache()
    assert cache.make_mask(5) == "causal"
    assert cache.make_mask(5, return_array=True).shape == (1, 1, 5, 5)
    assert cache.make_mask(1) is None
    cache.update_and_fetch(*pair(31))
    assert cache.make_mask(1) is None
    # 32 keys with the next one, window 4: its own and three before
    assert np.flatnonzero(np.array(cache.make_mask(1, window_size=4))).tolist() == [28, 29, 30, 31]
    rows = np.array(KVCache().make_mask(5, window_size=3))[0, 0].sum(axis=1)
    assert rows.tolist() == [1, 2, 3, 3, 3]
    assert RotatingKVCache(8).make_mask(4) == "causal"
    assert RotatingKVCache(3).make_mask(4).shape == (1, 1, 4, 4)
    assert np.array(BatchKVCache([0, 2]).make_mask(1)).tolist() == [[[[True]]], [[[False]]]]


def test_merging_and_extracting_rows():
    caches, oracles = [], []
    for n in (3, 0, 5):
        cache, oracle = KVCache(), TokenCache([0])
        if n:
            k, v = pair(n, B=1, seed=n)
            cache.update_and_fetch(k, v)
            oracle.update(np.array(k), np.array(v))
        caches.append(cache)
        oracles.append(oracle)
    merged = BatchKVCache.merge(caches)
    assert merged.offset.tolist() == [3, 0, 5]
    for b, cache in enumerate(caches):
        alone = merged.extract(b)
        assert alone.fed() == cache.fed()
        for x, y in zip(alone.state, cache.state, strict=True):
            assert mx.array_equal(x, y).item()
    with pytest.raises(ValueError, match="merge must have at least one cache"):
        BatchKVCache.merge([])
    wide = KVCache()
    wide.update_and_fetch(*pair(2))
    with pytest.raises(ValueError, match="caches must be of one row each; got 2 rows"):
        BatchKVCache.merge([wide])


def test_a_row_without_a_token_in_a_step_loses_none_of_its_own():
    cache = BatchRotatingKVCache(3, [0, 0])
    first = pair(3)
    cache.update_and_fetch(*first)
    cache.prepare(right_padding=[2, 0])
    cache.update_and_fetch(*pair(2, seed=1))
    cache.finalize()
    alone = cache.extract(0)
    assert (alone.offset, alone.can_trim(1)) == (3, True)
    for held, fed in zip(alone.state, first, strict=True):
        assert mx.array_equal(held, fed[:1]).item()
    assert cache.extract(1).offset == 5
    with pytest.raises(ValueError, match=r"one max_size and keep=0; got \[\(3, 0\), \(4, 0\)\]"):
        BatchRotatingKVCache.merge([alone, RotatingKVCache(4)])


def test_a_quantised_cache_takes_a_fraction_and_comes_from_a_full_one():
    full = KVCache()
    k, v = pair(9, D=64, D_v=32)
    full.update_and_fetch(k, v)
    few = full.to_quantized(group_size=32, bits=4)
    assert (few.offset, few.bits, few.group_size) == (9, 4, 32)
    direct = QuantizedKVCache(32, 4)
    for a, b in zip(few.state, direct.update_and_fetch(k, v), strict=True):
        assert all(mx.array_equal(x, y).item() for x, y in zip(a, b, strict=True))
    # 4 bits and a scale and a bias of 32 bits for every 32 numbers, against 32 bits
    assert few.nbytes * 32 == full.nbytes * (4 + 2)
    with pytest.raises(ValueError, match="to_quantized is for full caches"):
        RotatingKVCache(4).to_quantized()


def test_a_cross_cache_is_filled_once_and_never_trimmed():
    cache = CrossKVCache()
    with pytest.raises(ValueError, match="fill must be called before fetch"):
        cache.fetch()
    k, v = pair(5)
    cache.fill(k, v, mx.ones((2, 1, 1, 5), dtype=mx.bool_))
    assert (cache.offset, cache.trim(3), cache.rewind(0), cache.size()) == (5, 0, 0, 5)
    assert cache.update_and_fetch(*pair(5, seed=1))[0] is k
    with pytest.raises(ValueError, match="fill must be called once"):
        cache.fill(k, v)
    own = KVCache()
    own.update_and_fetch(k, v)
    both = CacheList(own, cache)
    assert (both.trim(2), both.offset, both.size(), both.rewind(1)) == (2, 3, 8, 2)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: RotatingKVCache(0), ValueError, "max_size must be >= 1; got 0"),
        (lambda: RotatingKVCache(4, keep=4), ValueError, r"keep must be in 0\.\.max_size - 1 = 3; got 4"),
        (lambda: RotatingKVCache(4.0), TypeError, "max_size must be an integer; got 4.0"),
        (lambda: QuantizedKVCache(bits=7), ValueError, r"bits must be one of .* got 7"),
        (lambda: QuantizedKVCache(group_size=16), ValueError, r"group_size must be one of .* got 16"),
        (lambda: BatchKVCache([-1]), ValueError, "left_padding must be >= 0; got -1"),
        (lambda: BatchKVCache([0.5]), TypeError, "left_padding must hold integers; got 0.5"),
        (lambda: BatchKVCache([0]).update_and_fetch(*pair(1)), ValueError, "keys must have B=1 rows"),
        (lambda: KVCache().update_and_fetch(pair(3)[0], pair(4)[1]), ValueError, "keys and values must be"),
        (lambda: QuantizedKVCache(32).update_and_fetch(*pair(1)), ValueError, "head size divisible by group_size=32"),
        (lambda: KVCache.from_state(pair(2)[:1]), ValueError, "state must be 2 arrays"),
        (lambda: KVCache.from_state(pair(2), ["3"]), ValueError, r"meta_state must hold whole numbers \(none\)"),
        (lambda: RotatingKVCache.from_state(pair(2), ["0", "4", "3", "3"]), ValueError, "state must hold 3 tokens"),
        (lambda: RotatingKVCache.from_state(pair(4), ["0", "4", "9", "0"]), ValueError, "an index that fits offset 9"),
        (lambda: RotatingKVCache.from_state(pair(4), ["0", "-4", "9", "1"]), ValueError, "meta_state must hold whole"),
        (lambda: QuantizedKVCache.from_state((pair(2) + pair(1)[:1],) * 2, ["2", "32", "4"]), ValueError, "packed"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_named(make, error, message):
    with pytest.raises(error, match=message):
        make()


def test_a_row_is_added_to_what_was_fed_before():
    cache = KVCache()
    cache.update_and_fetch(*pair(2))
    with pytest.raises(ValueError, match="keys must have B, N_kv"):
        cache.update_and_fetch(*pair(1, B=3))


def test_right_padding_must_be_finalised_before_the_state_is_read():
    cache = BatchRotatingKVCache(3, [0, 0])
    cache.prepare(right_padding=[2, 0])
    cache.update_and_fetch(*pair(5))
    with pytest.raises(ValueError, match="state must be read after finalize"):
        _ = cache.state
    with pytest.raises(ValueError, match="finalize must follow"):
        cache.view(1)
    cache.finalize()
    assert cache.offset.tolist() == [3, 5]
    with pytest.raises(ValueError, match="left_padding before the first token"):
        cache.prepare(left_padding=[1, 1])


@pytest.mark.parametrize("make", [*KINDS.values(), QuantizedKVCache, CrossKVCache, lambda: CacheList(KVCache())])
def test_a_number_of_tokens_to_take_back_is_a_whole_one(make):
    cache = make()
    cache.update_and_fetch(*pair(4, D=64, D_v=64)) if not isinstance(cache, CacheList) else None
    size, fed = cache.size(), cache.fed()
    for n, error in ((-3, ValueError), (2.0, TypeError), (True, TypeError), ("1", TypeError)):
        with pytest.raises(error, match=f"n must be an integer >= 0; got {n!r}"):
            cache.trim(n)
        if not isinstance(cache, CrossKVCache):
            with pytest.raises(error, match="n must be an integer >= 0"):
                cache.can_trim(n)
    assert (cache.size(), cache.fed()) == (size, fed)
    assert cache.trim(np.int64(0)) == 0


@pytest.mark.parametrize("make", [lambda: BatchKVCache([0, 2]), lambda: BatchRotatingKVCache(6, [0, 2])])
def test_rows_that_a_batch_does_not_have_are_refused(make):
    cache = make()
    cache.update_and_fetch(*pair(4))
    for row, error in ((5, IndexError), (2, IndexError), (-1, IndexError), (0.5, TypeError), (True, TypeError)):
        message = rf"row must be an integer in 0\.\.1; got {row}"
        with pytest.raises(error, match=message):
            cache.extract(row)
        for rows in ([0, row], mx.array([row])):
            with pytest.raises(error, match=message):
                cache.filter(rows)
    assert cache.offset.tolist() == [4, 2]
    cache.filter(np.array([1, 0, 1]))
    assert cache.offset.tolist() == [2, 4, 2]
    cache.filter([])
    assert [x.shape for x in cache.state] == [(0, 2, 4, 4), (0, 2, 4, 3), (0,), (0,)]
