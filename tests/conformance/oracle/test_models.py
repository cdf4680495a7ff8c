"""Whole models against the naive derivation, stage by stage, and what must hold of every one of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mlx_tx_conformance.oracle.cache import Rule
from mlx_tx_conformance.oracle.models import decoder, encoder, encoder_decoder
from mlx_tx_conformance.oracle.quantise import quantised_values
from mlx_tx_conformance.oracle.record import Recorder

from .model_cases import CONFIGS, MODERN, ORIGINAL, model, tokens_of, weights_of
from .naive_models import Naive

CLOSE = {"rtol": 1e-10, "atol": 1e-12}

SINGLE = [name for name, config in CONFIGS.items() if config["kind"] != "encoder_decoder"]
PAIRS = [name for name, config in CONFIGS.items() if config["kind"] == "encoder_decoder"]
DECODERS = [name for name in SINGLE if CONFIGS[name]["kind"] == "decoder"]


def run(config: dict[str, Any], tokens: np.ndarray, **options: Any) -> dict[str, np.ndarray]:
    return (encoder if config["kind"] == "encoder" else decoder)(config, weights_of(config), tokens, **options)


def naive_row(config: dict[str, Any], tokens: list[int]) -> dict[str, list[Any]]:
    text = Naive(config, weights_of(config), causal=config["kind"] == "decoder")
    for x in text.run(tokens, list(range(len(tokens))), [True] * len(tokens)):
        text.logits(x)
    return text.stages


def assert_stages(got: dict[str, np.ndarray], expected: dict[str, list[Any]], row: int) -> None:
    assert set(got) == set(expected)
    for name, array in got.items():
        theirs = np.array(expected[name])
        if array.ndim == 4:  # [N, T, D] here, [T, N, D] there
            theirs = theirs.swapaxes(0, 1)
        np.testing.assert_allclose(array[row], theirs, err_msg=name, **CLOSE)


@pytest.mark.parametrize("name", SINGLE)
def test_every_stage_of_a_single_stack(name):
    config = CONFIGS[name]
    tokens = tokens_of(config, B=2, T=5)
    stages = run(config, tokens)
    for b in range(2):
        assert_stages(stages, naive_row(config, tokens[b].tolist()), b)


@pytest.mark.parametrize("name", PAIRS)
def test_every_stage_of_an_encoder_and_decoder(name):
    config = CONFIGS[name]
    weights = weights_of(config)
    source, target, lengths = tokens_of(config, T=4), tokens_of(config, T=5, seed=1), [4, 2]
    stages = encoder_decoder(config, weights, source, target, source_lengths=lengths)
    for b in range(2):
        there = [s < lengths[b] for s in range(4)]
        reading = Naive(config, weights, "encoder.", causal=False)
        memory = reading.run(source[b].tolist(), list(range(4)), there)
        writing = Naive(config, weights, "decoder.", stages=reading.stages)
        for x in writing.run(target[b].tolist(), list(range(5)), [True] * 5, (memory, there)):
            writing.logits(x)
        assert_stages(stages, writing.stages, b)


@pytest.mark.parametrize("name", list(CONFIGS))
@pytest.mark.parametrize(("B", "T"), [(2, 0), (0, 3), (1, 1)], ids=str)
def test_empty_batches_and_texts(name, B, T):
    config, tokens = CONFIGS[name], np.zeros((B, T), int)
    if name in PAIRS:
        logits = encoder_decoder(config, weights_of(config), np.zeros((B, 2), int), tokens)["decoder.logits"]
        encoder_decoder(config, weights_of(config), tokens, np.zeros((B, 2), int))
    else:
        logits = run(config, tokens)["logits"]
    assert logits.shape == (B, T, 13)
    assert np.isfinite(logits).all()


class TestOrder:
    """The stages come in the order of the computation, under the names that implementations use."""

    def test_pre_norm(self):
        assert list(run(model(num_layers=1, position={"kind": "rope"}), np.zeros((1, 2), int))) == [
            "embed",
            "layers.0.input_norm",
            "layers.0.self_attn.q",
            "layers.0.self_attn.k",
            "layers.0.self_attn.v",
            "layers.0.self_attn.q_rope",
            "layers.0.self_attn.k_rope",
            "layers.0.self_attn.out",
            "layers.0.self_attn.proj",
            "layers.0.self_attn.residual",
            "layers.0.mlp_norm",
            "layers.0.mlp.hidden",
            "layers.0.mlp.out",
            "layers.0.mlp.residual",
            "norm",
            "logits",
        ]

    def test_post_norm_with_an_encoder(self):
        config = {**ORIGINAL, "num_layers": 1}
        tokens = np.zeros((1, 2), int)
        stages = list(encoder_decoder(config, weights_of(config), tokens, tokens))
        block = ["self_attn.q", "self_attn.k", "self_attn.v", "self_attn.out", "self_attn.proj", "self_attn.residual"]
        mlp = ["mlp.hidden", "mlp.out", "mlp.residual", "mlp_norm"]
        cross = [*(stage.replace("self", "cross") for stage in block), "cross_attn_norm"]
        assert stages == [
            "encoder.embed",
            *(f"encoder.layers.0.{stage}" for stage in [*block, "input_norm", *mlp]),
            "decoder.embed",
            *(f"decoder.layers.0.{stage}" for stage in [*block, "input_norm", *cross, *mlp]),
            "decoder.logits",
        ]

    def test_sandwich_qk_norm_and_experts(self):
        config = model(
            num_layers=1,
            attention={"num_heads": 3, "qk_norm": True},
            block={"placement": "sandwich"},
            mlp={"kind": "moe", "d_ff": 4, "num_experts": 2, "top_k": 1},
        )
        stages = list(run(config, np.zeros((1, 2), int)))
        assert stages[5:7] == ["layers.0.self_attn.q_norm", "layers.0.self_attn.k_norm"]
        assert stages[8:11] == [
            "layers.0.self_attn.proj",
            "layers.0.post_self_attn_norm",
            "layers.0.self_attn.residual",
        ]
        assert stages[12:17] == [f"layers.0.mlp.{s}" for s in ("router", "routing", "out")] + [
            "layers.0.post_mlp_norm",
            "layers.0.mlp.residual",
        ]


class TestVisibility:
    @pytest.mark.parametrize("name", DECODERS)
    def test_a_later_token_changes_nothing_before_it(self, name):
        config = CONFIGS[name]
        tokens = tokens_of(config)
        changed = tokens.copy()
        changed[:, 4] = (changed[:, 4] + 1) % config["vocab_size"]
        before, after = run(config, tokens)["logits"], run(config, changed)["logits"]
        np.testing.assert_array_equal(before[:, :4], after[:, :4])
        assert (before[:, 4] != after[:, 4]).any()

    def test_an_encoder_sees_both_ways(self):
        config = CONFIGS["encoder"]
        tokens = tokens_of(config)
        changed = tokens.copy()
        changed[:, 4] = (changed[:, 4] + 1) % config["vocab_size"]
        assert (run(config, tokens)["logits"][:, 0] != run(config, changed)["logits"][:, 0]).all()

    def test_the_encoder_does_not_see_the_decoder_and_is_seen(self):
        weights = weights_of(ORIGINAL)
        source, target = tokens_of(ORIGINAL, T=4), tokens_of(ORIGINAL, T=3, seed=1)
        stages = encoder_decoder(ORIGINAL, weights, source, target)
        other = encoder_decoder(ORIGINAL, weights, source, (target + 1) % 13)
        moved = encoder_decoder(ORIGINAL, weights, (source + 1) % 13, target)
        for name, array in stages.items():
            if name.startswith("encoder."):
                np.testing.assert_array_equal(array, other[name])
        assert (stages["decoder.logits"] != moved["decoder.logits"]).all()

    def test_without_positions_an_encoder_is_permutation_equivariant(self):
        config = model("encoder")
        tokens, order = tokens_of(config, T=6), [3, 0, 5, 1, 4, 2]
        moved = run(config, tokens[:, order])["logits"]
        np.testing.assert_allclose(moved, run(config, tokens)["logits"][:, order], **CLOSE)
        with_positions = model("encoder", position={"kind": "rope"})
        moved = run(with_positions, tokens[:, order])["logits"]
        assert not np.allclose(moved, run(with_positions, tokens)["logits"][:, order], atol=1e-3)

    def test_layers_of_a_window_reach_that_far_back_and_no_further(self):
        config = model(num_layers=2, attention={"num_heads": 3, "window": 3})
        tokens = tokens_of(config, B=1, T=9)
        base = run(config, tokens)["logits"]
        changed = tokens.copy()
        changed[0, 2] = (changed[0, 2] + 1) % 13
        differs = (run(config, changed)["logits"] != base).any(axis=-1)[0]
        # Two layers see 2 * (3 - 1) = 4 tokens back.
        assert differs.tolist() == [False] * 2 + [True] * 5 + [False] * 2


class TestPadding:
    @pytest.mark.parametrize("name", SINGLE)
    def test_right_padding(self, name):
        config = CONFIGS[name]
        tokens, lengths = tokens_of(config, B=3), [6, 2, 4]
        padded = tokens.copy()
        padded[1, 2:], padded[2, 4:] = -7, 99  # not in the vocabulary: NaN, which must not spread
        stages = run(config, padded, lengths=lengths)
        for b, length in enumerate(lengths):
            alone = run(config, tokens[b : b + 1, :length])
            np.testing.assert_allclose(stages["logits"][b, :length], alone["logits"][0], **CLOSE)

    @pytest.mark.parametrize("name", SINGLE)
    def test_left_padding(self, name):
        config = CONFIGS[name]
        tokens, pads = tokens_of(config, B=3), [0, 4, 1]
        padded = tokens.copy()
        padded[1, :4], padded[2, :1] = -7, 99
        stages = run(config, padded, left_padding=pads)
        for b, pad in enumerate(pads):
            alone = run(config, tokens[b : b + 1, pad:])
            np.testing.assert_allclose(stages["logits"][b, pad:], alone["logits"][0], **CLOSE)

    @pytest.mark.parametrize("name", PAIRS)
    @pytest.mark.parametrize("side", ["right", "left"])
    def test_of_the_source_and_of_the_target(self, name, side):
        config, weights = CONFIGS[name], weights_of(CONFIGS[name])
        source, target = tokens_of(config, T=5), tokens_of(config, T=4, seed=1)
        alone = encoder_decoder(config, weights, source[1:, :3], target[1:, :2])["decoder.logits"][0]
        if side == "right":
            options = {"source_lengths": [5, 3], "lengths": [4, 2]}
            source[1, 3:], target[1, 2:] = 99, -1
            rows = slice(0, 2)
        else:
            options = {"source_left_padding": [0, 2], "left_padding": [0, 2]}
            source[1], target[1] = np.roll(source[1], 2), np.roll(target[1], 2)
            source[1, :2] = target[1, :2] = 99
            rows = slice(2, 4)
        together = encoder_decoder(config, weights, source, target, **options)["decoder.logits"]
        np.testing.assert_allclose(together[1, rows], alone, **CLOSE)

    def test_left_padding_joins_a_given_mask_boolean_or_additive(self):
        tokens = tokens_of(MODERN, B=2)
        visible = np.random.default_rng(3).random((2, 1, 6, 6)) < 0.7
        for mask in (visible, np.where(visible, 0.25, -np.inf)):
            alone = run(MODERN, tokens[1:, 2:], mask=mask[1:, :, 2:, 2:])["logits"]
            together = run(MODERN, tokens, mask=mask, left_padding=[0, 2])["logits"]
            np.testing.assert_allclose(together[1, 2:], alone[0], **CLOSE)


class TestPositions:
    @pytest.mark.parametrize("name", ["modern", "sinusoidal", "learned", "rope-yarn"])
    def test_offsets_move_the_text(self, name):
        config = CONFIGS[name]
        tokens = tokens_of(config, B=2, T=4)
        moved = run(config, tokens, offset=[0, 3])
        explicit = run(config, tokens, positions=[[0, 1, 2, 3], [3, 4, 5, 6]])
        np.testing.assert_array_equal(moved["logits"], explicit["logits"])
        np.testing.assert_array_equal(moved["logits"][0], run(config, tokens)["logits"][0])
        # Rotation is relative, tables are not.
        same = np.allclose(moved["logits"][1], run(config, tokens)["logits"][1], rtol=1e-9, atol=1e-11)
        assert same == (config["position"]["kind"] == "rope")

    def test_a_learned_table_ends(self):
        config = CONFIGS["learned"]
        run(config, tokens_of(config, T=9))
        with pytest.raises(ValueError, match=r"\[learned_positions\] positions must lie in 0..8; got 9"):
            run(config, tokens_of(config, T=10))
        with pytest.raises(ValueError, match=r"positions must lie in 0..8; got 9"):
            run(config, tokens_of(config, T=2), offset=9)

    def test_packed_texts_are_the_texts(self):
        tokens = tokens_of(MODERN, B=1, T=7)
        packed = run(MODERN, tokens, segments=[[0, 0, 0, 1, 1, 1, 1]], positions=[[0, 1, 2, 0, 1, 2, 3]])["logits"]
        for part in (slice(0, 3), slice(3, 7)):
            np.testing.assert_allclose(packed[:, part], run(MODERN, tokens[:, part])["logits"], **CLOSE)

    def test_the_recipes_take_the_length_of_each_row(self):
        scaling = {"kind": "dynamic", "factor": 2.0, "original_max_positions": 4}
        config = model(position={"kind": "rope", "scaling": scaling, "base": 100.0})
        tokens = tokens_of(config, B=2, T=6)
        for options, row, part in (
            ({"lengths": [6, 4]}, 1, slice(0, 4)),
            ({"left_padding": [0, 2]}, 1, slice(2, 6)),
        ):
            together = run(config, tokens, **options)["logits"]
            alone = run(config, tokens[row : row + 1, part])["logits"]
            np.testing.assert_allclose(together[row, part], alone[0], **CLOSE)

    @pytest.mark.parametrize(
        ("options", "expected"),
        [
            ({}, [6, 6]),
            ({"lengths": [6, 4]}, [6, 4]),
            ({"left_padding": [0, 2]}, [6, 4]),
            ({"offset": [0, 9]}, [6, 15]),
        ],
        ids=str,
    )
    def test_the_length_of_a_row_is_one_more_than_its_last_position(self, options, expected):
        record = Recorder()
        run(MODERN, tokens_of(MODERN), record=record, **options)
        assert record.steps["layers.1.self_attn.k_rope"].options["length"].tolist() == expected


def test_rotating_caches_are_masks():
    """The rule of a rotating cache without sinks is the window of the configuration."""
    tokens = tokens_of(MODERN, B=2, T=8)
    windowed = {**MODERN, "attention": {**MODERN["attention"], "window": 3}}
    np.testing.assert_allclose(
        run(MODERN, tokens, mask=Rule(3).mask(8))["logits"], run(windowed, tokens)["logits"], **CLOSE
    )


def test_a_quantised_cache_stores_rotated_keys_and_values():
    config = model(d_model=64, attention={"num_heads": 2, "num_kv_heads": 1}, position={"kind": "rope"})
    stored = {"bits": 8, "group_size": 32}
    tokens = tokens_of(config)
    stages = run(config, tokens, kv_quantisation=stored)
    at = "layers.0.self_attn."
    for name, source in (("k_cache", "k_rope"), ("v_cache", "v")):
        np.testing.assert_array_equal(stages[at + name], quantised_values(stages[at + source], **stored))
    plain = run(config, tokens)
    assert 0 < np.abs(stages["logits"] - plain["logits"]).max() < 0.2


class TestGivenStages:
    """Feeding another implementation's stages: each error stays in its own stage."""

    def test_every_stage_given_as_computed_changes_nothing(self):
        tokens = tokens_of(MODERN)
        stages = run(MODERN, tokens)
        again = run(MODERN, tokens, record=Recorder(stages))
        for name, array in stages.items():
            np.testing.assert_array_equal(again[name], array)

    @pytest.mark.parametrize("name", ["modern", "moe", "post-norm", "sandwich-offset", "t5"])
    def test_a_wrong_stage_shows_there_and_in_what_reads_it_and_nowhere_else(self, name):
        config = CONFIGS[name]
        tokens = tokens_of(config)
        record = Recorder()
        stages = run(config, tokens, record=record)
        for wrong in stages:
            given = {**stages, wrong: stages[wrong] + 0.5}
            again = run(config, tokens, record=Recorder(given))
            differs = {stage for stage in stages if not np.array_equal(again[stage], stages[stage])}
            readers = {stage for stage, step in record.steps.items() if wrong in step.inputs}
            # A shift may vanish in a norm of differences, but never shows in a stage that does not read it.
            assert differs <= readers
            assert differs or not readers or wrong.endswith(("router", "routing"))

    def test_steps_tell_weights_and_inputs(self):
        record = Recorder()
        run(MODERN, tokens_of(MODERN), record=record)
        step = record.steps["layers.1.mlp.hidden"]
        assert (step.op, step.inputs, step.options) == ("hidden", ("layers.1.mlp_norm",), {"kind": "swiglu"})
        assert step.weights == ("layers.1.mlp.gate_proj.weight", "layers.1.mlp.up_proj.weight")
        used = {name for step in record.steps.values() for name in step.weights}
        assert used == set(weights_of(MODERN))
        assert record.steps["layers.0.self_attn.residual"].inputs == ("embed", "layers.0.self_attn.proj")
        assert record.steps["layers.0.self_attn.proj"].op == "join"
        assert record.steps["embed"].options["ids"].shape == (2, 6)

    @pytest.mark.parametrize("name", list(CONFIGS))
    def test_steps_name_every_weight_and_read_only_what_came_before(self, name):
        config, record = CONFIGS[name], Recorder()
        weights, tokens = weights_of(config), tokens_of(config)
        if name in PAIRS:
            encoder_decoder(config, weights, tokens, tokens, record=record)
        else:
            run(config, tokens, record=record)
        seen: set[str] = set()
        for stage, step in record.steps.items():
            assert set(step.inputs) <= seen, stage
            seen.add(stage)
        assert {weight for step in record.steps.values() for weight in step.weights} == set(weights)
        with_bias = {stage for stage, step in record.steps.items() if "relative_bias" in str(step.weights)}
        assert with_bias == {stage for stage, step in record.steps.items() if "bias" in step.options}
        assert all("self_attn.out" in stage for stage in with_bias)

    def test_attentions_hold_the_weights_of_every_layer_and_head(self):
        record = Recorder()
        run(MODERN, tokens_of(MODERN), record=record)
        assert list(record.attentions) == ["layers.0.self_attn.out", "layers.1.self_attn.out"]
        weights = record.attentions["layers.1.self_attn.out"].weights
        assert weights.shape == (2, 4, 6, 6)
        np.testing.assert_allclose(weights.sum(axis=-1), 1, rtol=1e-14)

    def test_an_unknown_stage_is_refused(self):
        with pytest.raises(ValueError, match=r"\[oracle\] given stage layers.9.mlp.out must be one of embed, "):
            run(MODERN, tokens_of(MODERN), record=Recorder({"layers.9.mlp.out": np.zeros(1)}))


@pytest.mark.parametrize(
    ("function", "config", "options", "message"),
    [
        (encoder, MODERN, {}, r"\[encoder\] config.kind must be 'encoder'; got 'decoder'"),
        (decoder, CONFIGS["encoder"], {}, r"\[decoder\] config.kind must be 'decoder'; got 'encoder'"),
        (decoder, MODERN, {"positions": [[0, 1]]}, r"\[decoder\] positions must have shape \(2, 6\); got \(1, 2\)"),
    ],
    ids=["not-an-encoder", "not-a-decoder", "positions"],
)
def test_refuses(function, config, options, message):
    with pytest.raises(ValueError, match=message):
        function(config, weights_of(config), tokens_of(config), **options)


def test_refuses_tokens_without_a_batch_and_weights_of_another_model():
    with pytest.raises(ValueError, match=r"\[decoder\] tokens must have shape \[B, T\]; got \(3,\)"):
        decoder(MODERN, weights_of(MODERN), [1, 2, 3])
    with pytest.raises(ValueError, match=r"missing \[\], unknown \['lm_head.weight'\]"):
        decoder(MODERN, {**weights_of(MODERN), "lm_head.weight": np.zeros((13, 12))}, [[1]])
