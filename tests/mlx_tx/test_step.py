"""What a step tells its layers: positions, lengths, and what may be seen."""

import mlx.core as mx
import numpy as np
import pytest

from mlx_tx.cache.view import View, hide
from mlx_tx.config import AttentionConfig, PositionConfig
from mlx_tx.step import begin


def lengths_of(**options):
    length = begin("f", 2, 5, causal=True, **options).length
    return length.tolist() if isinstance(length, mx.array) else length


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, [5, 5]),
        ({"offset": 3}, [8, 8]),
        ({"offset": [3, 0]}, [8, 5]),
        ({"lengths": [2, 5]}, [2, 5]),
        ({"left_padding": [3, 0]}, [2, 5]),
        ({"positions": [[0, 9, 1, 2, 3], [0, 1, 2, 3, 4]]}, [10, 5]),
        ({"positions": [0, 1, 2, 3, 9], "lengths": [4, 5]}, [4, 10]),
        ({"rope_length": 7}, 7),
        ({"start": mx.array([-1, 4])}, [4, 9]),
    ],
)
def test_the_length_of_the_text_on_the_host_and_on_the_device(options, expected):
    assert lengths_of(**options) == expected
    on_device = {k: mx.array(v) if k in ("offset", "lengths", "left_padding") else v for k, v in options.items()}
    got = lengths_of(**on_device)
    assert got == expected or got * 2 == expected


def test_the_band_of_model_and_cache_is_the_narrower_one():
    view = View(N=1, T=9, first=8, window=5)
    assert view.options(3)["window"] == (2, 0)
    assert view.options(7)["window"] == (4, 0)
    assert view.options((None, 0))["window"] == (4, 0)
    assert view.options()["window"] == (4, None)
    assert View(N=1, T=4, first=3, window=5).options(None) == {"causal": True, "q_offset": 3}


def test_keys_out_of_order_are_masked_and_measured_by_slot():
    view = View(N=2, T=4, first=8, start=None, slots=np.array([0, 9, 7, 8]), window=2, keep=1)
    assert view.distances().tolist() == [[[-8, 1, -1, 0], [-9, 0, -2, -1]]]
    assert view.allowed().tolist() == [[[[True, False, True, True], [True, True, False, True]]]]


def test_a_mask_of_the_caller_joins_what_exists():
    exists = mx.array([True, False])
    assert hide(None, exists) is exists
    assert hide(mx.array([True, True]), exists).tolist() == [True, False]
    assert hide(mx.array([0.5, 0.5]), exists).tolist() == [0.5, float("-inf")]


def test_alibi_of_keys_out_of_order_is_a_bias():
    step = begin("f", 1, 1, causal=True, start=8)
    view = View(N=1, T=3, first=8, start=None, slots=np.array([6, 8, 7]))
    given = step.options(AttentionConfig(2, head_dim=4), PositionConfig(kind="alibi"), view)
    np.testing.assert_allclose(np.array(given["bias"])[0, :, 0], [[-2 / 16, 0, -1 / 16], [-2 / 256, 0, -1 / 256]])
    assert given["mask"] is None
