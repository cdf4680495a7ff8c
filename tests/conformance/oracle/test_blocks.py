"""Blocks by themselves: residuals, placements of the norms, and what passes between positions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mlx_tx_conformance.oracle.models import decoder, encoder_decoder
from mlx_tx_conformance.oracle.norms import layer_norm, rms_norm
from mlx_tx_conformance.oracle.record import Recorder
from mlx_tx_conformance.oracle.relative_bias import relative_bias

from .model_cases import MOE, Config, model, tokens_of, weights_of

PLACEMENTS = ["pre", "post", "sandwich"]


def stages_of(config: Config, x: np.ndarray, weights: dict[str, np.ndarray] | None = None) -> dict[str, np.ndarray]:
    """The stages of a decoder whose embedding is ``x``."""
    weights = weights_of(config) if weights is None else weights
    return decoder(config, weights, np.zeros(x.shape[:2], int), record=Recorder({"embed": x}))


def stream(B: int = 2, T: int = 4, seed: int = 5) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(B, T, 12))


def silent(config: Config) -> dict[str, np.ndarray]:
    """Weights with which no sub-layer adds anything."""
    return {
        name: np.zeros_like(w) if "o_proj" in name or "down_proj" in name else w
        for name, w in weights_of(config).items()
    }


@pytest.mark.parametrize("mlp", [{"kind": "gelu", "d_ff": 5}, MOE], ids=["plain", "moe"])
def test_with_silent_sublayers_a_pre_norm_block_is_the_identity(mlp):
    config, x = model(mlp=mlp), stream()
    stages = stages_of(config, x, silent(config))
    np.testing.assert_array_equal(stages["layers.1.mlp.residual"], x)
    np.testing.assert_array_equal(stages["norm"], rms_norm(x, weights_of(config)["norm.weight"]))


def test_with_silent_sublayers_a_post_norm_block_is_its_norms():
    config = model(num_layers=1, block={"placement": "post"}, norm={"kind": "layer"})
    weights, x = silent(config), stream()
    first = layer_norm(x, *(weights[f"layers.0.input_layernorm.{p}"] for p in ("weight", "bias")))
    second = layer_norm(first, *(weights[f"layers.0.post_attention_layernorm.{p}"] for p in ("weight", "bias")))
    np.testing.assert_allclose(stages_of(config, x, weights)["layers.0.mlp_norm"], second, rtol=1e-13)


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_where_the_norms_stand(placement):
    config = model(num_layers=1, block={"placement": placement})
    x, weights = stream(), weights_of(config)
    stages = stages_of(config, x, weights)

    def norm(name: str, y: np.ndarray) -> np.ndarray:
        return rms_norm(y, weights[f"layers.0.{name}.weight"])

    for sublayer, out, stage, before, after in (
        ("self_attn", "proj", "input_norm", "input_layernorm", "post_self_attn_norm"),
        ("mlp", "out", "mlp_norm", "post_attention_layernorm", "post_mlp_norm"),
    ):
        f = stages[f"layers.0.{sublayer}.{out}"]
        residual = stages[f"layers.0.{sublayer}.residual"]
        if placement == "post":
            np.testing.assert_array_equal(residual, x + f)
            x = norm(before, x + f)
            np.testing.assert_array_equal(stages[f"layers.0.{stage}"], x)
        else:
            np.testing.assert_array_equal(stages[f"layers.0.{stage}"], norm(before, x))
            x = x + (norm(after, f) if placement == "sandwich" else f)
            np.testing.assert_array_equal(residual, x)


def test_placements_differ():
    x = stream()
    outs = [stages_of(model(block={"placement": p}), x)["logits"] for p in PLACEMENTS]
    assert all(np.abs(a - b).min() > 0 for n, a in enumerate(outs) for b in outs[:n])


@pytest.mark.parametrize("mlp", [{"kind": "swiglu", "d_ff": 5}, MOE], ids=["gated", "moe"])
def test_the_mlp_knows_one_position_at_a_time(mlp):
    config, x = model(num_layers=1, mlp=mlp), stream(B=1)
    base = stages_of(config, x)

    def with_normed(array: np.ndarray) -> np.ndarray:
        record = Recorder({"embed": x, "layers.0.mlp_norm": array})
        return decoder(config, weights_of(config), np.zeros((1, 4), int), record=record)["layers.0.mlp.out"]

    normed = base["layers.0.mlp_norm"]
    np.testing.assert_allclose(
        with_normed(normed[:, [2, 0, 3, 1]]), base["layers.0.mlp.out"][:, [2, 0, 3, 1]], rtol=1e-13
    )
    changed = normed.copy()
    changed[0, 1] += 1
    # Experts take their tokens together, and sums of other lengths may round otherwise.
    differs = (np.abs(with_normed(changed) - base["layers.0.mlp.out"]) > 1e-9).any(axis=-1)[0]
    assert differs.tolist() == [False, True, False, False]


def test_heads_are_groups_of_columns_in_order():
    """Silencing the columns of one head in the output projection silences that head."""
    config = model(num_layers=1)
    weights, x = weights_of(config), stream()
    out = stages_of(config, x)["layers.0.self_attn.out"]
    for h in range(4):
        only = np.zeros_like(weights["layers.0.self_attn.o_proj.weight"])
        columns = slice(4 * h, 4 * h + 4)
        only[:, columns] = weights["layers.0.self_attn.o_proj.weight"][:, columns]
        proj = stages_of(config, x, {**weights, "layers.0.self_attn.o_proj.weight": only})["layers.0.self_attn.proj"]
        np.testing.assert_allclose(proj, out[:, h] @ only[:, columns].T, rtol=1e-12, atol=1e-14)


def test_query_heads_share_in_consecutive_groups():
    """Four query heads on two key heads: with equal queries, heads 0 and 1 agree, and 2 and 3."""
    config = model(num_layers=1)
    weights = weights_of(config)
    q = weights["layers.0.self_attn.q_proj.weight"]
    weights["layers.0.self_attn.q_proj.weight"] = np.tile(q[:4], (4, 1))
    out = stages_of(config, stream(), weights)["layers.0.self_attn.out"]
    np.testing.assert_array_equal(out[:, 0], out[:, 1])
    np.testing.assert_array_equal(out[:, 2], out[:, 3])
    assert (out[:, 1] != out[:, 2]).any()


def biases_of(config: Config) -> dict[str, np.ndarray]:
    """The bias that every attention was given, by stack."""
    record, tokens = Recorder(), tokens_of(config, T=5)
    if config["kind"] == "encoder_decoder":
        encoder_decoder(config, weights_of(config), tokens, tokens, record=record)
    else:
        decoder(config, weights_of(config), tokens, record=record)
    steps = {name: step for name, step in record.steps.items() if name.endswith("layers.0.self_attn.out")}
    return {name.split(".", maxsplit=1)[0]: step.options["bias"] for name, step in steps.items()}


@pytest.mark.parametrize(("asked", "meant"), [(None, False), (True, True), (False, False)], ids=str)
def test_buckets_of_a_decoder_look_back_unless_asked_to_look_both_ways(asked, meant):
    config = model(position={"kind": "t5", "num_buckets": 8, "max_distance": 6, "bidirectional": asked})
    table = weights_of(config)["relative_bias.weight"]
    expected = relative_bias(table, 5, 5, bidirectional=meant, max_distance=6)
    np.testing.assert_array_equal(biases_of(config)["layers"], expected)


@pytest.mark.parametrize("asked", [None, True, False], ids=str)
def test_buckets_of_an_encoder_look_both_ways_and_those_of_its_decoder_back(asked):
    position = {"kind": "t5", "num_buckets": 8, "max_distance": 6, "bidirectional": asked}
    config = model("encoder_decoder", position=position)
    biases = biases_of(config)
    for stack, both_ways in (("encoder", True), ("decoder", False)):
        table = weights_of(config)[f"{stack}.relative_bias.weight"]
        expected = relative_bias(table, 5, 5, bidirectional=both_ways, max_distance=6)
        np.testing.assert_array_equal(biases[stack], expected)


def given_stages(config: Config, **stages: Any) -> dict[str, np.ndarray]:
    source, target = tokens_of(config, T=4), tokens_of(config, T=3, seed=1)
    return encoder_decoder(config, weights_of(config), source, target, record=Recorder(stages))


def test_cross_attention_asks_with_the_decoder_and_reads_the_encoder():
    config = model("encoder_decoder", num_layers=1, position={"kind": "alibi"})
    base = given_stages(config)
    moved = given_stages(config, **{"encoder.norm": base["encoder.norm"] + 1})
    at = "decoder.layers.0.cross_attn."
    np.testing.assert_array_equal(moved[f"{at}q"], base[f"{at}q"])
    assert (moved[f"{at}k"] != base[f"{at}k"]).all()
    assert (moved[f"{at}v"] != base[f"{at}v"]).all()
    asked = given_stages(config, **{"decoder.layers.0.cross_attn_norm": base["decoder.layers.0.cross_attn_norm"] + 1})
    assert (asked[f"{at}q"] != base[f"{at}q"]).all()
    np.testing.assert_array_equal(asked[f"{at}k"], base[f"{at}k"])


def test_cross_attention_sees_all_of_the_memory_whatever_its_order():
    """No causality, window or position lies between decoder and encoder."""
    config = model("encoder_decoder", num_layers=1, position={"kind": "rope"}, attention={"num_heads": 3, "window": 1})
    base = given_stages(config)
    turned = given_stages(config, **{"encoder.norm": base["encoder.norm"][:, ::-1]})
    np.testing.assert_allclose(turned["decoder.logits"], base["decoder.logits"], rtol=1e-12)
