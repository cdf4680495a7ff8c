"""Which cache a layer gets."""

import pytest

from mlx_tx.cache import BatchKVCache, BatchRotatingKVCache, KVCache, QuantizedKVCache, RotatingKVCache
from mlx_tx.cache.make import make_caches
from tests.mlx_tx.small import config

LAYERS = config(num_layers=3, layers=[{}, {"window": 4}, {"window": [6, 0]}]).stack()


def kinds(**options):
    return [(type(c), getattr(c, "max_size", None)) for c in make_caches(LAYERS, **options)]


def test_a_layer_with_a_window_remembers_the_window():
    assert kinds() == [(KVCache, None), (RotatingKVCache, 4), (RotatingKVCache, 7)]
    assert kinds(rotate_windows=False) == [(KVCache, None)] * 3
    assert kinds(max_size=9, keep=2) == [(RotatingKVCache, 9)] * 3


def test_batches_and_bits():
    assert kinds(left_padding=[0, 1]) == [(BatchKVCache, None), (BatchRotatingKVCache, 4), (BatchRotatingKVCache, 7)]
    assert kinds(left_padding=[0, 1], max_size=5) == [(BatchRotatingKVCache, 5)] * 3
    assert kinds(bits=4, group_size=32) == [(QuantizedKVCache, None)] * 3


def test_no_two_layers_share_a_cache():
    assert len({id(c) for c in make_caches(LAYERS)}) == 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"bits": 4, "max_size": 5}, "bits must be None with max_size or left_padding; got 4"),
        ({"keep": 2}, "keep must be 0 without max_size; got 2"),
        ({"keep": 2, "max_size": 5, "left_padding": [0]}, "keep must be 0 with left_padding"),
    ],
)
def test_what_cannot_be_combined_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        make_caches(LAYERS, **options)
