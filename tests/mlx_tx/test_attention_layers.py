"""The attention layers with caches of another library, and hand-built heads."""

import mlx.core as mx
import numpy as np
import pytest

from mlx_tx.attention_layers import CrossAttention
from mlx_tx.cache import CrossKVCache
from tests.mlx_tx.small import assert_close, config, fed, model, tokens

T, STEPS = 12, [5, 1, 1, 3, 2]


class Foreign:
    """A cache as other libraries write them: it knows its offset, and makes masks of its own."""

    def __init__(self, window=None):
        self.keys = self.values = None
        self.offset = 0
        self.window = window

    def make_mask(self, N, return_array=False, window_size=None):
        window = min(self.window or 10**6, window_size or 10**6)
        held = 0 if self.keys is None else self.keys.shape[2]
        if N == 1:
            return None  # as if no window were shorter than the cache
        i, j = mx.arange(held, held + N)[:, None], mx.arange(held + N)
        return mx.logical_and(j <= i, i - j < window) if window < held + N or return_array else "causal"

    def update_and_fetch(self, keys, values):
        if self.keys is not None:
            keys, values = (mx.concatenate(x, axis=2) for x in ((self.keys, keys), (self.values, values)))
        self.offset += keys.shape[2] - (0 if self.keys is None else self.keys.shape[2])
        cut = slice(None) if self.window is None else slice(-self.window + 1 or keys.shape[2], None)
        self.keys, self.values = keys[:, :, cut], values[:, :, cut]
        return keys, values


class ForeignBatch(Foreign):
    """The same with an offset for each row."""

    def __init__(self, B):
        super().__init__()
        self.offset = mx.zeros((B,), dtype=mx.int32)

    def make_mask(self, N, return_array=False, window_size=None):
        return super().make_mask(N, return_array=True, window_size=window_size) if N > 1 else None


class ForeignRotating:
    """Forgets by its mask while a long step is read, and by dropping keys at the next one, oldest key first."""

    def __init__(self, max_size):
        self.keys = self.values = None
        self.offset, self.max_size = 0, max_size

    def make_mask(self, N, return_array=False, window_size=None):
        if N == 1:
            return None
        window, first = window_size or self.max_size, min(self.max_size - 1, self.offset)
        if first + N <= window and not return_array:
            return "causal"
        i, j = mx.arange(first, first + N)[:, None], mx.arange(first + N)
        return mx.logical_and(j <= i, i < j + window)

    def update_and_fetch(self, keys, values):
        self.offset += keys.shape[2]
        if self.keys is not None:
            cut = slice(max(0, self.keys.shape[2] - self.max_size + 1), None)
            keys, values = (
                mx.concatenate([old[:, :, cut], new], axis=2) for old, new in ((self.keys, keys), (self.values, values))
            )
        self.keys, self.values = keys, values
        return keys, values


@pytest.mark.parametrize("steps", [[20, 1, 3, 1], [4, 1, 15, 5], [6, 19]])
@pytest.mark.parametrize("padded", [False, True])
def test_a_rotating_cache_of_another_library_forgets_by_its_mask_too(steps, padded):
    made, ids = model(config()), tokens(2, 25)
    i, j = np.arange(25)[:, None], np.arange(25)
    band = (j <= i) & (j > i - 6)
    options = {}
    if padded:
        steps = steps[:1]
        hidden = np.ones((steps[0], steps[0]), dtype=bool)
        hidden[:, 1] = False
        hidden[1, 1] = True
        options, band = {"mask": mx.array(hidden)}, band[: steps[0], : steps[0]] & hidden
    count = sum(steps)
    got = fed(made, ids, [ForeignRotating(6), ForeignRotating(6)], steps, **options)
    assert_close(got, np.array(made(mx.array(ids[:, :count]), mask=mx.array(band))), relative=1e-4)


@pytest.mark.parametrize("position", ["alibi", "t5"])
def test_distances_are_refused_at_the_first_step_that_is_longer_than_a_rotating_cache(position):
    more = {"num_buckets": 8, "max_distance": 10} if position == "t5" else {}
    made = model(config(position={"kind": position, **more}))
    caches = [ForeignRotating(6), ForeignRotating(6)]
    with pytest.raises(ValueError, match=f"position '{position}' needs a cache that knows .* got ForeignRotating"):
        made(mx.array(tokens(1, 20)), caches)
    assert caches[0].offset == 0
    assert_close(np.array(made(mx.array(tokens(1, 6)), caches)), np.array(made(mx.array(tokens(1, 6)))), relative=1e-4)


def test_a_mask_of_another_library_for_other_keys_is_refused():
    cache = ForeignRotating(6)
    cache.make_mask = lambda *_, **__: mx.ones((5, 4), dtype=mx.bool_)
    with pytest.raises(ValueError, match=r"mask of ForeignRotating must be for T_kv=5 keys; got shape \(5, 4\)"):
        model(config())(mx.array(tokens(1, 5)), [cache, cache])


@pytest.mark.parametrize("window", [None, 4])
@pytest.mark.parametrize("position", ["rope", "alibi", "t5", "sinusoidal"])
def test_a_cache_of_another_library_that_keeps_all_gives_the_same(position, window):
    positions = {"kind": position, **({"num_buckets": 8, "max_distance": 10} if position == "t5" else {})}
    made = model(config(position=positions, attention={"num_heads": 4, "num_kv_heads": 2, "window": window}))
    ids = tokens(2, T)
    assert_close(fed(made, ids, [Foreign(), Foreign()], STEPS), np.array(made(mx.array(ids))), relative=1e-4)


def test_a_cache_of_another_library_that_forgets_gives_what_its_masks_say():
    made, windowed = (model(config(attention={"num_heads": 4, "num_kv_heads": 2, "window": w})) for w in (None, 5))
    ids = tokens(2, T)
    got = fed(made, ids, [Foreign(5), Foreign(5)], [1] * T)
    assert_close(got, np.array(windowed(mx.array(ids))), relative=1e-4)
    got = fed(made, ids, [Foreign(5), Foreign(5)], STEPS)
    assert_close(got, np.array(windowed(mx.array(ids))), relative=1e-4)


def test_a_batched_cache_of_another_library_gives_the_same():
    made, ids = model(config()), tokens(2, T)
    assert_close(
        fed(made, ids, [ForeignBatch(2), ForeignBatch(2)], STEPS), np.array(made(mx.array(ids))), relative=1e-4
    )


def test_a_forgetful_cache_of_another_library_is_refused_where_distances_count():
    made = model(config(position={"kind": "alibi"}))
    caches = [Foreign(4), Foreign(4)]
    made(mx.array(tokens(1, 6)), caches)
    with pytest.raises(
        ValueError, match=r"position 'alibi' needs a cache that knows where its keys stand; got Foreign"
    ):
        made(mx.array(tokens(1, 1)), caches)


def test_cross_attention_reads_the_cache_and_not_a_second_memory():
    settings = config()
    layer = CrossAttention(32, settings.layer(0).attention, settings.norm)
    x, memory = mx.random.normal((2, 3, 32)), mx.random.normal((2, 5, 32))
    cache = CrossKVCache()
    first = layer(x, memory, cache, lengths=[5, 2])
    assert_close(np.array(first), np.array(layer(x, memory, lengths=[5, 2])))
    assert mx.array_equal(layer(x, None, cache), first).item()
    assert mx.array_equal(layer(x, mx.zeros_like(memory), cache), first).item()


def test_rows_of_a_memory_of_no_length_give_the_bias_alone():
    settings = config(attention={"num_heads": 4, "out_bias": True})
    layer = CrossAttention(32, settings.layer(0).attention, settings.norm)
    out = layer(mx.random.normal((2, 3, 32)), mx.random.normal((2, 5, 32)), lengths=[0, 5])
    np.testing.assert_array_equal(np.array(out[0]), np.broadcast_to(np.array(layer.o_proj.bias), (3, 32)))
