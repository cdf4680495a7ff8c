"""Caches in files: what is restored goes on as what was saved, and a file that lies is refused."""

import json
import struct
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest

from mlx_tx.cache import CacheList, KVCache, QuantizedKVCache, RotatingKVCache, load_cache, save_cache
from tests.mlx_tx.small import config, fed, model, tokens

KINDS = {
    "full": {},
    "sinks": {"max_size": 6, "keep": 2},
    "quantised": {"bits": 4, "group_size": 32},
    "batched": {"left_padding": [0, 3]},
    "batched-rotating": {"left_padding": [0, 3], "max_size": 6},
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("read", [0, 4, 11])
def test_restored_equals_continued(kind, read, tmp_path):
    made = model(config(d_model=64, attention={"num_heads": 2, "num_kv_heads": 1}))
    ids, cache = tokens(2, 20), made.make_cache(**KINDS[kind])
    if read:
        fed(made, ids[:, :read], cache, [read])
    path = tmp_path / "cache.safetensors"
    save_cache(path, cache, {"prompt": "hello"})
    restored, metadata = load_cache(path)
    assert metadata == {"prompt": "hello"}
    assert [type(c) for c in restored] == [type(c) for c in cache]
    assert [p.name for p in tmp_path.iterdir()] == ["cache.safetensors"]
    got, reference = (fed(made, ids[:, read : read + 6], c, [1, 3, 1, 1]) for c in (restored, cache))
    np.testing.assert_array_equal(got, reference)


def test_a_cross_cache_is_restored_with_the_padding_of_the_memory(tmp_path):
    made = model(config(kind="encoder_decoder"))
    cache = made.make_cache()
    memory = made.encode(mx.array(tokens(2, 5)), lengths=[5, 2])
    made.decode(mx.array(tokens(2, 3)), memory, cache, memory_lengths=[5, 2])
    save_cache(tmp_path / "c.safetensors", cache)
    restored, _ = load_cache(tmp_path / "c.safetensors")
    next_ids = mx.array(tokens(2, 2, seed=4))
    assert mx.array_equal(made.decode(next_ids, None, restored), made.decode(next_ids, None, cache)).item()


def test_a_failure_leaves_the_old_file_and_no_other(tmp_path):
    path = tmp_path / "c.safetensors"
    save_cache(path, [KVCache()])
    before = path.read_bytes()
    with pytest.raises(TypeError, match="caches must be of"):
        save_cache(path, [KVCache(), object()])
    assert path.read_bytes() == before
    with pytest.raises(ValueError, match=r"path must end in \.safetensors"):
        save_cache(tmp_path / "c.npz", [KVCache()])
    assert [p.name for p in tmp_path.iterdir()] == ["c.safetensors"]


def test_a_write_that_fails_half_way_leaves_the_old_file_and_no_other(tmp_path, monkeypatch):
    path = tmp_path / "c.safetensors"
    save_cache(path, [KVCache()])
    before = path.read_bytes()

    def full_disk(name, arrays, metadata):
        Path(name).write_bytes(b"half")
        raise OSError("no space left on device")

    monkeypatch.setattr(mx, "save_safetensors", full_disk)
    with pytest.raises(OSError, match="no space left"):
        save_cache(path, [KVCache()])
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["c.safetensors"]


def parts(path):
    raw = path.read_bytes()
    n = struct.unpack("<Q", raw[:8])[0]
    return json.loads(raw[8 : 8 + n]), raw[8 + n :]


def write(path, header, body):
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + body)


@pytest.fixture
def saved(tmp_path):
    cache = RotatingKVCache(4, keep=1)
    cache.update_and_fetch(mx.ones((1, 1, 6, 4)), mx.ones((1, 1, 6, 4)))
    few = QuantizedKVCache(32, 4)
    few.update_and_fetch(mx.ones((1, 1, 2, 32)), mx.ones((1, 1, 2, 32)))
    path = tmp_path / "c.safetensors"
    save_cache(path, [CacheList(cache, few)])
    return path


def described(header):
    return json.loads(header["__metadata__"]["mlx_tx_cache"])


def with_description(header, change):
    entry = described(header)
    change(entry)
    return {**header, "__metadata__": {"mlx_tx_cache": json.dumps(entry)}}


def inner(entry, n=0):
    return entry["caches"][0]["caches"][n]


HOSTILE = {
    "no-entry": lambda h: {**h, "__metadata__": {}},
    "not-json": lambda h: {**h, "__metadata__": {"mlx_tx_cache": "{"}},
    "a-list": lambda h: {**h, "__metadata__": {"mlx_tx_cache": "[]"}},
    "version": lambda h: with_description(h, lambda e: e.update(version=2)),
    "unknown-kind": lambda h: with_description(h, lambda e: inner(e).update(kind="os.system")),
    "too-many-arrays": lambda h: with_description(h, lambda e: inner(e).update(arrays=10**9)),
    "one-more-array": lambda h: with_description(h, lambda e: inner(e).update(arrays=3)),
    "negative-arrays": lambda h: with_description(h, lambda e: inner(e).update(arrays=-2)),
    "fewer-arrays": lambda h: with_description(h, lambda e: inner(e).update(arrays=0)),
    "nested-lists": lambda h: with_description(h, lambda e: e["caches"][0].update(caches=[e["caches"][0].copy()])),
    "no-caches": lambda h: with_description(h, lambda e: e.update(caches=3)),
    "meta-not-numbers": lambda h: with_description(h, lambda e: inner(e).update(meta=["1", "x", "6", "4"])),
    "meta-huge": lambda h: with_description(h, lambda e: inner(e).update(meta=["1", "9" * 400, "6", "4"])),
    "meta-index": lambda h: with_description(h, lambda e: inner(e).update(meta=["1", "4", "6", "9"])),
    "meta-size": lambda h: with_description(h, lambda e: inner(e).update(meta=["1", "5", "6", "5"])),
    "meta-bits": lambda h: with_description(h, lambda e: inner(e, 1).update(meta=["2", "32", "8"])),
}


@pytest.mark.parametrize("fault", HOSTILE)
def test_a_description_that_lies_is_refused(saved, fault):
    header, body = parts(saved)
    write(saved, HOSTILE[fault](header), body)
    with pytest.raises(ValueError, match="is no file of caches"):
        load_cache(saved)


def test_a_description_that_is_true_is_not(saved):
    header, body = parts(saved)
    write(saved, with_description(header, lambda entry: entry.update(metadata={"a": "b"})), body)
    caches, metadata = load_cache(saved)
    assert metadata == {"a": "b"}
    assert caches[0][0].offset == 6


def test_any_cut_of_the_file_is_refused(saved):
    raw = saved.read_bytes()
    for size in (0, 3, 8, 40, len(raw) // 2, len(raw) - 1):
        saved.write_bytes(raw[:size])
        with pytest.raises(ValueError, match="no sound safetensors file"):
            load_cache(saved)
