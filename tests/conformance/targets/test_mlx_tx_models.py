"""The adapters of mlx_tx's parts, models and caches: what they put in, and what they give back."""

from __future__ import annotations

import numpy as np
import pytest

from mlx_tx_conformance.call import Call
from mlx_tx_conformance.inputs.weights import model_weights
from mlx_tx_conformance.oracle.rnn import rnn
from mlx_tx_conformance.targets import open_target

RNG = np.random.default_rng(6)
TARGET = open_target("mlx_tx:composed")
CONFIG = {
    "kind": "decoder",
    "vocab_size": 11,
    "d_model": 16,
    "num_layers": 2,
    "attention": {"num_heads": 2},
    "position": {"kind": "rope"},
    "mlp": {"kind": "swiglu", "d_ff": 16},
}
BOTH = {**CONFIG, "kind": "encoder_decoder"}


def call(config=CONFIG, op="model", T=7, more=None, **options):
    weights = model_weights(config, lambda name: np.random.default_rng(len(name)), "float32")
    tokens = {"tokens": RNG.integers(0, 11, (2, T)).astype(np.int32), **(more or {})}
    return Call(op, {**tokens, **weights}, {"config": config, **options}, outputs=())


def test_stages_come_back_by_name_and_logits_alone_otherwise():
    assert list(TARGET.run(call()).outputs) == ["logits"]
    outputs = TARGET.run(call(stages=True)).outputs
    assert {"embed", "layers.0.self_attn.q_rope", "layers.1.mlp.residual", "norm", "logits"} <= set(outputs)


@pytest.mark.parametrize("path", ["composed", "blockwise"])
def test_a_model_runs_on_the_path_of_its_target(path):
    assert open_target(f"mlx_tx:{path}").run(call()).path == path


@pytest.mark.parametrize("cache", [{"kind": "full"}, {"kind": "rotating", "max_size": 7}, {"kind": "batched"}])
def test_stages_of_chunks_are_joined_along_the_tokens(cache):
    given = call(stages=True)
    whole = TARGET.run(given).outputs
    parts = TARGET.run(given.with_options(cache=cache, chunks=[3, 1, 3])).outputs
    assert {n: a.shape for n, a in parts.items()} == {n: a.shape for n, a in whole.items()}
    np.testing.assert_allclose(parts["logits"], whole["logits"], atol=1e-4)


def test_a_memory_is_fed_once():
    source = {"source": RNG.integers(0, 11, (2, 4)).astype(np.int32)}
    given = call(BOTH, stages=True, more=source)
    whole = TARGET.run(given).outputs
    parts = TARGET.run(given.with_options(cache={"kind": "full"}, chunks=[3, 4])).outputs
    assert parts["decoder.layers.0.cross_attn.k"].shape == whole["decoder.layers.0.cross_attn.k"].shape
    np.testing.assert_allclose(parts["logits"], whole["logits"], atol=1e-4)


def test_gradients_have_the_names_of_parameters():
    d_logits = RNG.standard_normal((2, 7, 11)).astype(np.float32)
    outputs = TARGET.run(call(op="model_gradients", more={"d_logits": d_logits})).outputs
    assert outputs["embedded"].shape == (2, 7, 16)
    assert outputs["embed_tokens.weight"].shape == (11, 16)


def test_the_attention_of_models_is_left_as_it_was():
    from mlx_tx import attention, attention_layers

    TARGET.run(call())
    assert attention_layers.scaled_dot_product_attention is attention.scaled_dot_product_attention


def test_a_cache_says_what_a_step_gets_back():
    arrays = {f"{name}.{n}": RNG.standard_normal((1, 1, 2, 4)).astype(np.float32)
              for name in ("keys", "values") for n in range(2)}  # fmt: skip
    operations = [["update", 2], ["trim", 1], ["restore", "file"], ["update", 2]]
    given = Call("cache", arrays, {"cache": {"kind": "full"}, "operations": operations, "B": 1}, outputs=())
    outputs = TARGET.run(given).outputs
    assert outputs["offset.1"].tolist() == [1]
    assert int(outputs["returned.1"]) == 1
    assert outputs["allowed.1"][0, 0].tolist() == [[True, True, False], [True, True, True]]
    np.testing.assert_array_equal(outputs["keys.1"][:, :, 1:], arrays["keys.1"])


def test_what_a_model_holds_while_it_is_fed():
    given = call(cache={"kind": "rotating", "max_size": 3}, T=12)
    assert TARGET.figure(given, "cache_bytes") == 2 * 2 * 2 * 3 * 16 * 4
    assert TARGET.figure(given, "step_bytes") >= TARGET.figure(given, "cache_bytes")


def test_the_recurrent_baseline_is_the_oracles():
    x, w_x, w_h = (RNG.standard_normal(shape).astype(np.float32) for shape in ((2, 5, 3), (3, 3), (3, 3)))
    outputs = TARGET.run(Call("rnn", {"x": x, "w_x": w_x, "w_h": w_h})).outputs
    np.testing.assert_allclose(outputs["out"], rnn(x, w_x, w_h), atol=1e-5)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_parts_take_the_suites_orientation(dtype):
    x, w_up, w_down = (RNG.standard_normal(s).astype(dtype) for s in ((1, 2, 3), (3, 5), (5, 3)))
    arrays = {"x": x, "w_up": w_up, "w_gate": w_up, "w_down": w_down}
    outputs = TARGET.run(Call("mlp", arrays, {"kind": "relu"})).outputs
    wide = [array.astype(np.float64) for array in (x, w_up, w_down)]
    np.testing.assert_allclose(outputs["out"], np.maximum(wide[0] @ wide[1], 0) @ wide[2], rtol=0.02, atol=0.02)
