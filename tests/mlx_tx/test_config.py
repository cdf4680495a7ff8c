"""The configuration checks itself and survives the way through plain dicts."""

import json
import re

import numpy as np
import pytest

from mlx_tx.config import (
    AttentionConfig,
    BlockConfig,
    LayerOverride,
    MLPConfig,
    ModelConfig,
    NormConfig,
    PositionConfig,
    RopeScaling,
)
from mlx_tx_conformance.oracle import settings

SMALL = {
    "kind": "decoder",
    "vocab_size": 50,
    "d_model": 32,
    "num_layers": 3,
    "attention": {"num_heads": 4, "num_kv_heads": 2},
    "mlp": {"kind": "swiglu", "d_ff": 48},
}


def with_(**changes):
    return {**SMALL, **changes}


RICH = with_(
    kind="encoder_decoder",
    num_encoder_layers=5,
    attention={"num_heads": 4, "num_kv_heads": 1, "head_dim": 6, "value_dim": 10, "softcap": 5.0, "window": [3, None]},
    position={"kind": "rope", "dims": 4, "scaling": {"kind": "yarn", "factor": 4.0, "original_max_positions": 64}},
    norm={"kind": "layer", "eps": 1e-6, "offset": 1.0},
    mlp={"kind": "moe", "d_ff": 8, "num_experts": 4, "top_k": 2},
    block={"placement": "sandwich", "dropout": 0.1},
    layers=[{}, {"window": 4, "position": {"kind": "none"}, "mlp": {"kind": "relu", "d_ff": 9}}],
    tie_embeddings=True,
    embedding_scale="sqrt",
    final_softcap=30.0,
)


@pytest.mark.parametrize("values", [SMALL, RICH], ids=["small", "rich"])
def test_dict_and_json_give_the_same_configuration_again(values):
    config = ModelConfig.from_dict(values)
    assert ModelConfig.from_dict(config.to_dict()) == config
    assert ModelConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config
    assert hash(config) == hash(ModelConfig.from_dict(config.to_dict()))


@pytest.mark.parametrize(
    "preset",
    [ModelConfig.original(64), ModelConfig.modern(64), ModelConfig.from_dict(RICH)],
    ids=["2017", "modern", "rich"],
)
def test_the_oracle_reads_the_same_settings(preset):
    read = settings.read(preset.to_dict())
    assert read.attention.head_dim == preset.attention.head_dim
    assert read.attention.value_dim == preset.attention.value_dim
    assert (read.final_norm, read.causal) == (preset.final_norm, preset.causal)
    assert (read.norm.kind, read.norm.bias) == (preset.norm.kind, preset.norm.bias)
    for mine, theirs in zip(preset.stack(), read.layers(preset.num_layers), strict=True):
        assert (mine.mlp.kind, mine.mlp.d_ff, mine.position.kind) == (
            theirs.mlp.kind,
            theirs.mlp.d_ff,
            theirs.position.kind,
        )
        assert (mine.attention.window is None) == (theirs.attention.window is None)


def test_defaults_follow_from_other_fields():
    config = ModelConfig.from_dict(with_(attention={"num_heads": 4}))
    assert (config.attention.num_kv_heads, config.attention.head_dim, config.attention.value_dim) == (4, 8, 8)
    assert (config.final_norm, config.causal, config.num_encoder_layers) == (True, True, None)
    post = ModelConfig.from_dict(with_(kind="encoder", block={"placement": "post"}))
    assert (post.final_norm, post.causal) == (False, False)
    assert ModelConfig.from_dict(with_(kind="encoder_decoder")).num_encoder_layers == 3
    assert NormConfig(kind="layer").bias is True
    assert NormConfig(kind="rms").bias is False
    assert AttentionConfig(2, head_dim=5).value_dim == 5


def test_a_pattern_of_layers_is_repeated():
    config = ModelConfig.from_dict(with_(num_layers=5, layers=[{"window": 3}, {"position": {"kind": "alibi"}}]))
    assert [layer.attention.window for layer in config.stack()] == [3, None, 3, None, 3]
    assert [layer.position.kind for layer in config.stack()] == ["none", "alibi", "none", "alibi", "none"]


def test_absent_and_none_are_the_same():
    assert ModelConfig.from_dict(with_(position=None, final_softcap=None)) == ModelConfig.from_dict(SMALL)


LONGROPE = {"kind": "longrope", "original_max_positions": 8, "factor": 2.0}
REFUSED = [
    ({"atention": {}}, ValueError, "[config] atention is no field; did you mean attention?"),
    ({"vocab_size": 0}, ValueError, "[config] vocab_size must be an integer >= 1; got 0"),
    ({"vocab_size": None}, ValueError, "[config] vocab_size must be given"),
    ({"d_model": 32.0}, TypeError, "[config] d_model must be an integer >= 1; got 32.0"),
    ({"num_layers": True}, TypeError, "[config] num_layers must be an integer in 1..10000; got True"),
    (
        {"kind": "decodr"},
        ValueError,
        "kind must be one of decoder, encoder, encoder_decoder; got 'decodr'; did you mean",
    ),
    (
        {"attention": {"num_heads": 4, "num_kv_heads": 3}},
        ValueError,
        "attention.num_kv_heads must divide num_heads=4; got 3",
    ),
    ({"attention": {"num_heads": 3}}, ValueError, "attention.head_dim must be given where num_heads=3 does not divide"),
    ({"attention": {"num_heads": 4, "softcap": 0}}, ValueError, "attention.softcap must be a finite number > 0; got 0"),
    (
        {"attention": {"num_heads": 4, "scale": float("nan")}},
        ValueError,
        "attention.scale must be a finite number; got nan",
    ),
    ({"attention": {"num_heads": 4, "window": 0}}, ValueError, "attention.window must be an integer >= 1; got 0"),
    ({"attention": {"num_heads": 4, "window": [1, 2, 3]}}, ValueError, "attention.window must be an integer or a pair"),
    ({"attention": {"num_heads": 4, "bias": 1}}, TypeError, "attention.bias must be True or False; got 1"),
    ({"attention": [4]}, TypeError, "attention must be a mapping; got [4]"),
    ({"position": {"kind": "rope", "dims": 3}}, ValueError, "position.dims must be even; got 3"),
    (
        {"position": {"kind": "rope", "dims": 10}},
        ValueError,
        "position.dims must be even and at most attention.head_dim=8; got 10",
    ),
    ({"position": {"kind": "learned"}}, ValueError, "position.max_positions must be given for kind 'learned'"),
    ({"position": {"kind": "rope", "base": -1}}, ValueError, "position.base must be a finite number > 0; got -1"),
    (
        {"position": {"kind": "alibi", "scaling": {"kind": "linear", "factor": 2}}},
        ValueError,
        "position.scaling must be absent",
    ),
    (
        {"position": {"kind": "rope", "scaling": {"kind": "linear"}}},
        ValueError,
        "position.scaling.factor must be given for kind 'linear'",
    ),
    (
        {"position": {"kind": "rope", "scaling": {"kind": "linear", "factor": 0.5}}},
        ValueError,
        "position.scaling.factor must be a finite number >= 1",
    ),
    (
        {"position": {"kind": "rope", "scaling": {"kind": "linear", "factor": 2, "mscale": 1}}},
        ValueError,
        "position.scaling.mscale must be absent for kind 'linear'",
    ),
    (
        {"position": {"kind": "rope", "scaling": {**LONGROPE, "short_factor": [1], "long_factor": [2, 2, 2, 2]}}},
        ValueError,
        "position.scaling.short_factor must hold one number for each of the 4 pairs; got 1",
    ),
    ({"position": {"kind": "t5", "max_distance": 8}}, ValueError, "position.max_distance must be > 16; got 8"),
    (
        {"kind": "encoder", "position": {"kind": "t5", "num_buckets": 7}},
        ValueError,
        "position.num_buckets must be >= 4 and even for t5; got 7",
    ),
    ({"norm": {"kind": "batch"}}, ValueError, "norm.kind must be one of rms, layer; got 'batch'"),
    ({"norm": {"eps": -1e-5}}, ValueError, "norm.eps must be a finite number >= 0"),
    ({"mlp": {"kind": "relu"}}, ValueError, "mlp.d_ff must be given"),
    (
        {"mlp": {"kind": "moe", "d_ff": 8, "num_experts": 4, "top_k": 5}},
        ValueError,
        "mlp.top_k must be an integer in 1..4; got 5",
    ),
    (
        {"mlp": {"kind": "relu", "d_ff": 8, "num_experts": 4}},
        ValueError,
        "mlp.num_experts must be 0 for kind 'relu'; got 4",
    ),
    (
        {"block": {"placement": "middle"}},
        ValueError,
        "block.placement must be one of pre, post, sandwich; got 'middle'",
    ),
    ({"block": {"dropout": 1.0}}, ValueError, "block.dropout must be < 1; got 1.0"),
    ({"layers": [{}, {"windw": 3}]}, ValueError, "layers[1].windw is no field; did you mean window?"),
    (
        {"layers": [{}, {"position": {"kind": "sinusoidal"}}]},
        ValueError,
        "layers[1].position.kind must be one of none, rope, alibi, t5",
    ),
    (
        {"layers": [{}, {"position": {"kind": "rope", "dims": 20}}]},
        ValueError,
        "layers[1].position.dims must be even and at most",
    ),
    ({"layers": {"window": 3}}, TypeError, "layers must be a list; got"),
    ({"embedding_scale": "root"}, ValueError, "embedding_scale must be a number or 'sqrt'; got 'root'"),
    ({"num_encoder_layers": 2}, ValueError, "num_encoder_layers must be absent for kind 'decoder'"),
    ({"final_softcap": -1.0}, ValueError, "final_softcap must be a finite number > 0; got -1.0"),
]


@pytest.mark.parametrize(("changes", "error", "message"), REFUSED, ids=[m.split("] ")[-1][:40] for _, _, m in REFUSED])
def test_a_bad_field_is_named_with_its_value(changes, error, message):
    with pytest.raises(error) as raised:
        ModelConfig.from_dict(with_(**changes))
    assert message in str(raised.value)


def test_t5_layers_share_one_table():
    layers = [{"position": {"kind": "t5"}}, {"position": {"kind": "t5", "num_buckets": 16}}]
    with pytest.raises(ValueError, match=r"layers must have one position\.num_buckets"):
        ModelConfig.from_dict(with_(layers=layers))


def test_sections_check_themselves_when_made_directly():
    for make, message in (
        (lambda: AttentionConfig(num_heads=0), r"attention\.num_heads"),
        (lambda: RopeScaling(kind="yarn", factor=2.0), r"scaling\.original_max_positions must be given"),
        (
            lambda: RopeScaling(kind="longrope", original_max_positions=4, short_factor=(1,), long_factor=(1,)),
            r"scaling\.factor must be given",
        ),
        (
            lambda: RopeScaling(
                kind="llama3", factor=2.0, original_max_positions=4, low_freq_factor=4, high_freq_factor=1
            ),
            r"scaling\.low_freq_factor must be less",
        ),
        (lambda: PositionConfig(kind="ropes"), r"position\.kind .* did you mean rope\?"),
        (lambda: MLPConfig(kind="relu", d_ff=0), r"mlp\.d_ff"),
        (lambda: BlockConfig(dropout=-0.1), r"block\.dropout"),
        (lambda: LayerOverride(window=-1), "window"),
    ):
        with pytest.raises(ValueError, match=message):
            make()


def test_a_section_of_the_wrong_kind_is_refused():
    with pytest.raises(TypeError, match="mlp must be a MLPConfig"):
        ModelConfig("decoder", 8, 8, 1, AttentionConfig(1), mlp=AttentionConfig(1))


def test_a_configuration_cannot_be_changed():
    with pytest.raises(AttributeError):
        ModelConfig.modern(8).d_model = 3


def rope(base=10000.0, **scaling):
    return {"position": {"kind": "rope", "base": base, "scaling": scaling}}


LONG = {"kind": "longrope", "factor": 2.0, "short_factor": [1.0] * 4, "long_factor": [1.0] * 4}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_layers": 10**9}, "num_layers must be an integer in 1..10000; got 1000000000"),
        ({"kind": "encoder_decoder", "num_encoder_layers": 10**9}, "num_encoder_layers must be an integer in 1..10000"),
        ({"vocab_size": 10**5000}, "vocab_size must be an integer >= 1 and < 2**31; got an integer of 16610 bits"),
        ({"num_layers": 10**5000}, "num_layers must be an integer in 1..10000; got an integer of 16610 bits"),
        ({"embedding_scale": 10**400}, "embedding_scale must be a finite number; got an integer of 1329 bits"),
        ({"norm": {"eps": -(10**400)}}, "norm.eps must be a finite number >= 0; got an integer of 1329 bits"),
        ({"attention": {"num_heads": 4, "scale": 1e300}}, "attention.scale must be a finite number in the range of"),
        ({"attention": {"num_heads": 4, "softcap": 1e300}}, "attention.softcap must be a finite number > 0 in the"),
        ({"attention": {"num_heads": 4, "softcap": 1e-300}}, "attention.softcap must be a finite number > 0 in the"),
        ({"final_softcap": 1e300}, "final_softcap must be a finite number > 0 in the range of float32; got 1e+300"),
        ({"position": {"kind": "t5", "max_distance": 10**8}}, "position.max_distance must be an integer in 1..1048576"),
        ({"position": {"kind": "t5", "num_buckets": 10**8}}, "position.num_buckets must be an integer in 2..1024"),
        (rope(**LONG, original_max_positions=1), "position.scaling.original_max_positions must be an integer >= 2"),
        (rope(1.0, kind="yarn", factor=2.0, original_max_positions=8), "position.base must be > 1 for scaling of kind"),
        (
            rope(kind="ntk", factor=1e300),
            "position.scaling.factor must be a finite number >= 1 and <= 1e+06; got 1e+30",
        ),
    ],
)
def test_a_field_that_no_model_could_be_made_with_is_refused_at_once(changes, message):
    with pytest.raises(ValueError, match=re.escape(f"[config] {message}")):
        ModelConfig.from_dict(with_(**changes))


def test_integers_of_numpy_become_plain_ones():
    plain = with_(
        attention={"num_heads": 4, "num_kv_heads": 2, "head_dim": 8, "value_dim": 6, "window": [5, 0]},
        mlp={"kind": "moe", "d_ff": 8, "num_experts": 4, "top_k": 2},
        position={"kind": "rope", "dims": 4, "max_positions": 9, "num_buckets": 8, "max_distance": 30},
        layers=[{"window": 3}, {"mlp": {"kind": "relu", "d_ff": 8, "num_experts": 0}}],
        kind="encoder_decoder",
        num_encoder_layers=3,
    )

    def as_numpy(value):
        if isinstance(value, dict):
            return {name: as_numpy(entry) for name, entry in value.items()}
        if isinstance(value, list):
            return [as_numpy(entry) for entry in value]
        return np.int64(value) if type(value) is int else value

    made = ModelConfig.from_dict(as_numpy(plain)).to_dict()
    assert json.loads(json.dumps(made)) == made == ModelConfig.from_dict(plain).to_dict()
