"""mlx-lm's llama, unchanged, through the plugin: its own logits, in one pass and token by token with its own cache."""

from __future__ import annotations

import mlx.core as mx
import numpy as np
import pytest
from mlx_lm.models.cache import make_prompt_cache
from mlx_lm.models.llama import Model, ModelArgs

from mlx_tx import plugin, record_paths
from mlx_tx_conformance import emulator

TOKENS = mx.array([[5, 17, 2, 60, 33, 8, 41, 12, 9, 3, 27]])
LAYERS = 2


@pytest.fixture(scope="module")
def llama():
    mx.random.seed(7)
    arguments = {
        "model_type": "llama",
        "hidden_size": 32,
        "num_hidden_layers": LAYERS,
        "intermediate_size": 48,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "rms_norm_eps": 1e-5,
        "vocab_size": 64,
    }
    return Model(ModelArgs(**arguments))


def logits(model) -> np.ndarray:
    return np.asarray(model(TOKENS))


def decoded(model) -> np.ndarray:
    """A prompt of six tokens, the others one by one."""
    cache = make_prompt_cache(model)
    steps = [model(TOKENS[:, :6], cache=cache)]
    for t in range(6, TOKENS.shape[1]):
        steps.append(model(TOKENS[:, t : t + 1], cache=cache))
        mx.eval(steps)
    return np.asarray(mx.concatenate(steps, axis=1))


def agree(found: np.ndarray, expected: np.ndarray) -> None:
    # Thirty roundings of the largest logit: sums in another order, twice through two layers.
    limit = 30 * np.finfo(np.float32).eps * np.abs(expected).max()
    assert np.abs(found - expected).max() <= limit


@pytest.mark.parametrize("run", [logits, decoded])
@pytest.mark.parametrize("path", ["auto", "composed", "blockwise"])
def test_logits_are_its_own(llama, run, path):
    expected = run(llama)
    with plugin.installed(path), record_paths() as calls:
        agree(run(llama), expected)
    assert len(calls) == (LAYERS if run is logits else 6 * LAYERS)


@pytest.mark.parametrize("run", [logits, decoded])
def test_logits_are_its_own_on_the_emulated_device(llama, run):
    with mx.stream(mx.cpu):
        expected = run(llama)
        with emulator.device() as device, plugin.installed("fused"), record_paths() as calls:
            agree(run(llama), expected)
    assert {call.path for call in calls} == {"fused"}
    assert device.counts["attention_forward"].mma > 0


def test_afterwards_mlx_lm_is_as_it_was(llama):
    with record_paths() as calls:
        logits(llama)
    assert not calls


def test_decoding_after_a_long_prompt_takes_the_decode_kernel(llama):
    tokens = mx.arange(262)[None] * 7 % 64

    def run() -> np.ndarray:
        cache = make_prompt_cache(llama)
        mx.eval(llama(tokens[:, :260], cache=cache))
        steps = [llama(tokens[:, t : t + 1], cache=cache) for t in (260, 261)]
        return np.asarray(mx.concatenate(steps, axis=1))

    with mx.stream(mx.cpu):
        expected = run()
        with emulator.device() as device, plugin.installed("fused"):
            agree(run(), expected)
    assert device.counts["attention_decode"].mma > 0
