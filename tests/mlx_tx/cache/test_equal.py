"""A text read at once, in chunks or token by token gives the same, for every cache, window and position (PAR-1)."""

import mlx.core as mx
import numpy as np
import pytest

from mlx_tx_conformance.oracle.cache import Rule
from tests.mlx_tx.small import POSITIONS, assert_close, config, expected, fed, model, tokens

T = 12
STEPS = [[1] * T, [5, 1, 1, 3, 2], [T]]
CACHES = {
    "full": ({"rotate_windows": False}, Rule()),
    "by-window": ({}, Rule()),
    "rotating": ({"max_size": 5}, Rule(5)),
    "sinks": ({"max_size": 6, "keep": 2}, Rule(6, 2)),
    "roomy-sinks": ({"max_size": 64, "keep": 3}, Rule(64, 3)),
    "single": ({"max_size": 1}, Rule(1)),
    "batched": ({"left_padding": [0, 0]}, Rule()),
    "batched-rotating": ({"left_padding": [0, 0], "max_size": 5}, Rule(5)),
}
WINDOWS = [None, 4, [5, None]]
# Every pair of position and cache, and over them every pair with a window.
CASES = [
    (position, cache, WINDOWS[(i + j + extra) % 3])
    for i, position in enumerate(POSITIONS)
    for j, cache in enumerate(CACHES)
    for extra in range(3 if position == "rope" else 1)
]


@pytest.mark.parametrize(("position", "cache", "window"), CASES, ids=lambda x: str(x).replace(" ", ""))
def test_steps_of_any_size_equal_one_pass_with_the_rule_as_a_mask(position, cache, window):
    options, rule = CACHES[cache]
    settings = config(position=POSITIONS[position], attention={"num_heads": 2, "num_kv_heads": 1, "window": window})
    made, ids = model(settings), tokens(2, T)
    length = {"rope_length": T} if position in ("dynamic", "longrope") else {}
    # The oracle sees no cache: it is told by a mask what a cache of this kind may show.
    reference = expected(settings, ids, mask=rule.mask(T))["logits"]
    if cache == "full":
        assert_close(np.array(made(mx.array(ids), **length)), reference, relative=1e-3)
    for steps in STEPS if position == "rope" else STEPS[:2]:
        got = fed(made, ids, made.make_cache(**options), steps, **length)
        assert_close(got, reference, relative=1e-3)


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("position", ["rope", "alibi", "t5", "learned"])
def test_a_quantised_cache_equals_the_oracle_with_quantised_keys_and_values(position, bits):
    settings = config(
        d_model=64, position=POSITIONS[position], attention={"num_heads": 2, "num_kv_heads": 1, "window": 6}
    )
    made, ids = model(settings), tokens(2, 12)
    packing = {"bits": bits, "group_size": 32}
    cache = made.make_cache(**packing)
    stages = made.stages(mx.array(ids), cache)
    from mlx_tx_conformance.oracle.record import Recorder

    given = {name: np.array(x) for name, x in stages.items()}
    reference = expected(settings, ids, kv_quantisation=packing, record=Recorder(given))
    assert list(stages) == list(reference)
    for name, value in given.items():
        assert_close(value, reference[name], relative=1e-5)
    for steps in ([1] * 12, [5, 1, 4, 2]):
        # A code may flip where float32 differs by an ulp: half a step of a cache of few bits.
        assert_close(fed(made, ids, made.make_cache(**packing), steps), given["logits"], relative=1e-4)


@pytest.mark.parametrize("padding", ["left", "right"])
@pytest.mark.parametrize("window", [None, 4])
@pytest.mark.parametrize("size", [None, 6])
@pytest.mark.parametrize("position", ["learned", "longrope", "alibi"])
def test_a_text_alone_equals_the_text_in_a_batch_of_unequal_lengths(position, size, window, padding):
    settings = config(position=POSITIONS[position], attention={"num_heads": 2, "num_kv_heads": 1, "window": window})
    made = model(settings)
    length = {"rope_length": 30} if position == "longrope" else {}
    options = {"rotate_windows": False} if size is None else {"max_size": size}
    lengths, more = [3, 11, 7, 1], 6
    texts = [tokens(1, n + more, seed=n)[0] for n in lengths]
    alone = [fed(made, text[None], made.make_cache(**options), [len(text)], **length)[0] for text in texts]
    for pad in (0, -1):  # a bad id as padding turns the row to NaN: it must not count either
        got = [[] for _ in texts]
        if padding == "left":
            cache = made.make_cache(left_padding=[11 - n for n in lengths], **options)
            ids = np.array([[pad] * (11 - n) + text[:n].tolist() for n, text in zip(lengths, texts, strict=True)])
            out = fed(made, ids, cache, [5, 1, 5], **length)
            for b, n in enumerate(lengths):
                got[b].append(out[b, 11 - n :])
        else:
            cache = made.make_cache(left_padding=[0] * 4, **options)
            read = [0] * 4
            for N in (4, 3, 1, 3):
                takes = [min(N, n - r) for n, r in zip(lengths, read, strict=True)]
                ids = np.full((4, N), pad)
                for b, (text, r, n) in enumerate(zip(texts, read, takes, strict=True)):
                    ids[b, :n] = text[r : r + n]
                out = np.array(made(mx.array(ids), cache, lengths=takes, **length))
                for b, n in enumerate(takes):
                    got[b].append(out[b, :n])
                read = [r + n for r, n in zip(read, takes, strict=True)]
        assert cache[0].offset.tolist() == lengths
        ids = np.array([text[n:] for n, text in zip(lengths, texts, strict=True)])
        out = fed(made, ids, cache, [1, 3, 1, 1], **length)
        for b in range(4):
            assert_close(np.concatenate([*got[b], out[b]]), alone[b], relative=1e-4)


@pytest.mark.parametrize("options", [{}, {"max_size": 20, "keep": 2}, {"left_padding": [0, 3]},
                                     {"left_padding": [0, 3], "max_size": 20}, {"bits": 8, "group_size": 32}],
                         ids=str)  # fmt: skip
@pytest.mark.parametrize("position", ["rope", "learned", "alibi"])
def test_what_was_taken_back_was_never_fed(position, options):
    settings = config(d_model=64, position=POSITIONS[position], attention={"num_heads": 2, "num_kv_heads": 1})
    made, ids = model(settings), tokens(2, 20)
    never, back = made.make_cache(**options), made.make_cache(**options)
    fed(made, ids[:, :8], never, [5, 3])
    fed(made, ids[:, :8], back, [5, 3])
    fed(made, ids[:, 12:18], back, [4, 1, 1])
    assert all(cache.can_trim(6) for cache in back)
    assert [cache.rewind(8) for cache in back] == [6, 6]
    got, reference = (fed(made, ids[:, 8:14], cache, [1, 3, 1, 1]) for cache in (back, never))
    np.testing.assert_array_equal(got[0], reference[0])
    np.testing.assert_array_equal(got[1], reference[1])


def test_a_rotating_cache_keeps_its_memory_over_twenty_windows():
    W = 8
    made = model(config(attention={"num_heads": 2, "num_kv_heads": 1, "window": W}))
    cache = made.make_cache()
    held, peaks = [], []
    for n in range(20 * W):
        mx.reset_peak_memory()
        mx.eval(made(mx.array([[n % 50]]), cache))
        if n % W == W - 1:
            held.append(sum(layer.nbytes for layer in cache))
            peaks.append(mx.get_peak_memory())
    assert len(set(held)) == 1
    # 2 layers, keys and values, one head of 16 numbers of 4 bytes, W slots
    assert held[0] == 2 * 2 * W * 16 * 4
    # Whatever else this process holds; a cache that grew by a window at a time would add 19 times that.
    assert max(peaks[2:]) - min(peaks[2:]) < held[0]
