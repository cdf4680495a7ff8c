"""Whole models equal the oracle stage by stage, for every position, placement and kind (BLK-1, ENC-1, DEC-1, PRE-1)."""

import mlx.core as mx
import numpy as np
import pytest
from mlx import nn, optimizers
from mlx.utils import tree_flatten

from mlx_tx import Decoder, Encoder, EncoderDecoder, ModelConfig, make_model, record_stages, with_weights
from mlx_tx_conformance.oracle.parameters import parameter_shapes
from mlx_tx_conformance.oracle.record import Recorder
from tests.mlx_tx.small import POSITIONS, assert_close, config, expected, fed, model, tokens, weights

KINDS = ("decoder", "encoder", "encoder_decoder")


def check_all_stages(settings, *ids):
    """Each stage equals the oracle's, which is fed with the model's own previous stages; and end to end, roughly."""
    stages = {name: np.array(x) for name, x in model(settings).stages(*(mx.array(i) for i in ids)).items()}
    reference = expected(settings, *ids, record=Recorder(stages))
    assert list(stages) == list(reference)
    for name, value in stages.items():
        # One operation: at most a hundred products of numbers up to the largest of the stage before.
        assert_close(value, reference[name], relative=1e-5)
    last = list(stages)[-1]
    assert_close(stages[last], expected(settings, *ids)[last], relative=1e-3)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("placement", ["pre", "post", "sandwich"])
@pytest.mark.parametrize("position", POSITIONS)
def test_every_stage_equals_the_oracle(position, placement, kind):
    settings = config(kind=kind, position=POSITIONS[position], block={"placement": placement})
    ids = (tokens(2, 7), tokens(2, 9, seed=1)) if kind == "encoder_decoder" else (tokens(2, 9),)
    check_all_stages(settings, *ids)


RICH_ATTENTION = {
    "num_heads": 4, "num_kv_heads": 1, "head_dim": 6, "value_dim": 10, "bias": True, "out_bias": True, "scale": 0.5,
    "softcap": 3.0, "qk_norm": True, "sinks": True, "window": 4,
}  # fmt: skip
VARIANTS = {
    "rich-attention": {"attention": RICH_ATTENTION},
    "layer-norm-qk": {"attention": RICH_ATTENTION, "norm": {"kind": "layer", "offset": 1.0, "eps": 1e-3}},
    "rms-with-bias": {"norm": {"kind": "rms", "bias": True}},
    "mixture": {"mlp": {"kind": "moe", "d_ff": 20, "num_experts": 5, "top_k": 2}},
    "relu-with-bias": {"mlp": {"kind": "relu", "d_ff": 20, "bias": True}},
    "tied-scaled-capped": {"tie_embeddings": True, "embedding_scale": "sqrt", "final_softcap": 2.0},
    "no-final-norm": {"final_norm": False, "embedding_scale": 0.5},
    "pattern": {
        "num_layers": 4,
        "layers": [{"window": [2, 1], "position": {"kind": "alibi"}}, {"mlp": {"kind": "geglu", "d_ff": 9}}, {}],
    },
    "t5-in-one-layer": {"layers": [{}, {"position": POSITIONS["t5"]}]},
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("variant", VARIANTS)
def test_variants_equal_the_oracle(variant, kind):
    settings = config(kind=kind, **VARIANTS[variant])
    ids = (tokens(2, 7), tokens(2, 9, seed=1)) if kind == "encoder_decoder" else (tokens(2, 9),)
    check_all_stages(settings, *ids)


@pytest.mark.parametrize(
    "options",
    [
        {"offset": 40},
        {"offset": [3, 50]},
        {"lengths": [4, 9]},
        {"left_padding": [5, 0]},
        {"segments": np.array([[0, 0, 1, 1, 1, 2, 2, 2, 2]] * 2)},
        {"positions": np.array([[0, 1, 0, 1, 2, 0, 1, 2, 3]] * 2)},
        {"mask": np.random.default_rng(5).random((2, 1, 9, 9)) > 0.3},
        {"mask": np.random.default_rng(6).normal(size=(4, 9, 9)).astype(np.float32), "left_padding": [2, 0]},
    ],
    ids="-".join,
)
@pytest.mark.parametrize("position", ["learned", "rope", "dynamic", "alibi"])
def test_padding_offsets_and_masks_equal_the_oracle(position, options):
    settings = config(position=POSITIONS[position])
    ids = tokens(2, 9)
    ours = {k: mx.array(v) if isinstance(v, np.ndarray) else v for k, v in options.items()}
    got = np.array(model(settings)(mx.array(ids), **ours))
    reference = expected(settings, ids, **options)["logits"]
    for b in range(2):  # rows of padding mean nothing
        start = options.get("left_padding", [0, 0])[b]
        end = options.get("lengths", [9, 9])[b]
        assert_close(got[b, start:end], reference[b, start:end])


def test_padding_of_the_source_reaches_nobody():
    settings = config(kind="encoder_decoder")
    source, target = tokens(2, 7), tokens(2, 5, seed=1)
    made = model(settings)
    for padding in ({"source_lengths": [3, 7]}, {"source_left_padding": [4, 0]}):
        got = np.array(made(mx.array(source), mx.array(target), **padding))
        assert_close(got, expected(settings, source, target, **padding)["decoder.logits"])
        other = source.copy()
        other[0, 3:] = 0 if "source_lengths" in padding else other[0, 3:]
        other[0, :4] = 0 if "source_left_padding" in padding else other[0, :4]
        assert_close(np.array(made(mx.array(other), mx.array(target), **padding)), got)


@pytest.mark.parametrize("kind", KINDS)
def test_the_presets_equal_the_oracle(kind):
    settings = {
        "decoder": ModelConfig.modern(50, d_model=32, num_layers=2, num_heads=4, num_kv_heads=2, qk_norm=True),
        "encoder": config(kind="encoder", norm={"kind": "layer"}),
        "encoder_decoder": ModelConfig.original(50, d_model=32, num_layers=2, num_heads=4, d_ff=40),
    }[kind]
    ids = (tokens(2, 7), tokens(2, 9, seed=1)) if kind == "encoder_decoder" else (tokens(2, 9),)
    check_all_stages(settings, *ids)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("position", POSITIONS)
@pytest.mark.parametrize("variant", ["rich-attention", "mixture", "tied-scaled-capped", "pattern"])
def test_names_and_shapes_of_the_parameters_are_those_of_the_configuration(kind, position, variant):
    changes = {"position": POSITIONS[position], **VARIANTS[variant]}
    settings = config(kind=kind, block={"placement": "sandwich"}, **changes)
    own = {name: w.shape for name, w in tree_flatten(make_model(settings).parameters())}
    assert own == parameter_shapes(settings.to_dict())


def test_a_decoder_has_no_cross_attention_and_fixed_positions_no_parameters():
    for position in ("none", "sinusoidal", "rope", "alibi"):
        names = [name for name, _ in tree_flatten(make_model(config(position=POSITIONS[position])).parameters())]
        assert not any("cross" in name or "position" in name or "bias" in name for name in names)
    assert "position" in make_model(config(position=POSITIONS["learned"]))


@pytest.mark.parametrize("position", ["none", "rope", "learned", "alibi", "t5"])
def test_without_positions_an_encoder_is_permutation_equivariant_and_with_them_it_is_not(position):
    made = model(config(kind="encoder", position=POSITIONS[position]))
    ids, order = tokens(1, 8), np.array([3, 0, 7, 1, 5, 2, 4, 6])
    straight, permuted = np.array(made(mx.array(ids))), np.array(made(mx.array(ids[:, order])))
    error = np.abs(permuted - straight[:, order]).max()
    assert error < 1e-4 if position == "none" else error > 1e-2


@pytest.mark.parametrize("position", POSITIONS)
def test_a_later_token_changes_no_earlier_logit(position):
    made = model(config(position=POSITIONS[position]))
    ids = tokens(1, 8)
    before = np.array(made(mx.array(ids)))
    ids[0, 5] = (ids[0, 5] + 1) % 50
    after = np.array(made(mx.array(ids)))
    np.testing.assert_array_equal(before[:, :5], after[:, :5])
    assert np.abs(before[:, 5:] - after[:, 5:]).max() > 1e-3


def test_windows_of_several_layers_reach_back_exactly_their_sum():
    made = model(config(num_layers=3, attention={"num_heads": 4, "num_kv_heads": 2, "window": 4}))
    rows = mx.random.normal((1, 20, 32))
    ids = mx.zeros((1, 20), dtype=mx.int32)
    gradient = mx.grad(lambda e: mx.sum(made(ids, input_embeddings=e)[0, -1] ** 2))(rows)
    reached = np.array(mx.abs(gradient).sum(-1))[0] > 0
    assert reached.tolist() == [False] * (19 - 9) + [True] * 10


def test_the_encoder_does_not_see_the_decoder_and_the_decoder_sees_all_of_the_encoder():
    made = model(config(kind="encoder_decoder"))
    source, target = tokens(1, 5), tokens(1, 4, seed=1)
    stages = made.stages(mx.array(source), mx.array(target))
    other = made.stages(mx.array(source), mx.array(target[:, ::-1].copy()))
    for name in stages:
        if name.startswith("encoder."):
            assert mx.array_equal(stages[name], other[name]).item()
    memory = stages["encoder.norm"]
    gradient = mx.grad(lambda m: made.decode(mx.array(target), m)[0, 0].sum())(memory)
    assert (np.abs(np.array(gradient)).sum(-1) > 0).all()


def test_bad_ids_give_nan_in_their_own_row_and_are_named_when_checked():
    made = model(config())
    ids = tokens(2, 5)
    clean = np.array(made(mx.array(ids)))
    ids[0, 4] = 50
    got = np.array(made(mx.array(ids)))
    assert np.isnan(got[0, 4]).all()
    np.testing.assert_array_equal(got[1], clean[1])
    with pytest.raises(ValueError, match=r"ids must lie in 0\.\.49; got 50"):
        made(mx.array(ids), check=True)


def test_positions_beyond_a_learned_table_are_an_error_or_nan():
    made = model(config(position={"kind": "learned", "max_positions": 6}))
    ids = mx.array(tokens(1, 4))
    assert not mx.any(mx.isnan(made(ids, offset=2))).item()
    with pytest.raises(ValueError, match=r"positions must lie in 0\.\.max_positions - 1 = 5; got 6"):
        made(ids, offset=3)
    got = made(ids, offset=mx.array(3))
    assert mx.all(mx.isnan(got[0, 3])).item()
    with pytest.raises(ValueError, match=r"positions must lie in 0\.\.5; got 6"):
        made(ids, offset=mx.array(3), check=True)
    cache = made.make_cache()
    made(ids, cache)
    with pytest.raises(ValueError, match="max_positions"):
        made(ids, cache)


def test_arguments_that_do_not_fit_are_named():
    made = model(config())
    ids = mx.array(tokens(2, 4))
    for options, error, message in (
        ({"lengths": [1, 5]}, ValueError, r"lengths must be in 0\.\.T=4; got 5"),
        ({"lengths": [1]}, ValueError, "lengths must be one integer for each of the B=2 rows"),
        ({"left_padding": [-1, 0]}, ValueError, r"left_padding must be in 0\.\.T=4; got -1"),
        ({"offset": 1.5}, TypeError, "offset must be an integer"),
        ({"positions": [[0.5] * 4]}, ValueError, "positions must be integers"),
        ({"positions": [0, 1, 2, 3], "offset": 1}, ValueError, "positions must come without offset"),
        ({"rope_length": 0}, ValueError, "rope_length must be an integer >= 1; got 0"),
        ({"cache": made.make_cache(), "offset": 3}, ValueError, "offset must be absent with a cache"),
        ({"cache": made.make_cache()[:1]}, ValueError, "cache must hold one for each of 2 layers; got 1"),
        ({"cache": made.make_cache(), "lengths": [1, 2]}, ValueError, "lengths need a batched cache"),
        ({"lengths": mx.array([0.5, 1.0])}, ValueError, "lengths must be integers"),
    ):
        with pytest.raises(error, match=message):
            made(ids, **options)
    with pytest.raises(TypeError, match="tokens must hold integers"):
        made(mx.zeros((2, 4)))
    with pytest.raises(ValueError, match=r"tokens must have shape \[B, T\]"):
        made(ids[0])
    with pytest.raises(ValueError, match="cache must be None where attention is not causal"):
        model(config(kind="encoder"))(ids, made.make_cache())
    with pytest.raises(ValueError, match=r"config\.kind must be 'decoder'; got 'encoder'"):
        Decoder(config(kind="encoder"))
    with pytest.raises(TypeError, match="config must be a ModelConfig"):
        Encoder({"kind": "encoder"})
    with pytest.raises(ValueError, match="memory must be given"):
        model(config(kind="encoder_decoder")).decode(ids, None)


def test_weights_must_be_exactly_those_of_the_model():
    settings = config()
    good = weights(settings)
    with pytest.raises(ValueError, match=r"missing \['norm\.weight'\], unknown \[\]"):
        with_weights(make_model(settings), {n: w for n, w in good.items() if n != "norm.weight"})
    with pytest.raises(ValueError, match=r"unknown \['extra'\]"):
        with_weights(make_model(settings), {**good, "extra": np.zeros(1)})
    with pytest.raises(ValueError, match=r"norm\.weight must have shape \(32,\); got \(31,\)"):
        with_weights(make_model(settings), {**good, "norm.weight": np.ones(31, dtype=np.float32)})
    half = with_weights(make_model(settings), good, dtype=mx.bfloat16)
    assert {w.dtype for _, w in tree_flatten(half.parameters())} == {mx.bfloat16}


@pytest.mark.parametrize("dtype", [mx.float16, mx.bfloat16])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("position", POSITIONS)
def test_half_precision_stays_half_and_near_float32(kind, position, dtype):
    settings = config(kind=kind, position=POSITIONS[position])
    ids = (mx.array(tokens(2, 5)),) * (2 if kind == "encoder_decoder" else 1)
    made = model(settings)
    reference = np.array(made(*ids))
    made.set_dtype(dtype)
    stages = made.stages(*ids)
    assert {value.dtype for value in stages.values()} == {dtype}
    error = np.abs(np.array(made(*ids).astype(mx.float32)) - reference).max() / np.abs(reference).max()
    assert error < (0.02 if dtype == mx.float16 else 0.15)


def test_dropout_acts_while_training_only():
    settings = config(block={"dropout": 0.5})
    made = model(settings)
    ids = mx.array(tokens(1, 6))
    assert mx.array_equal(made(ids), made(ids)).item()
    assert_close(np.array(made(ids)), expected(settings, tokens(1, 6))["logits"])
    made.train()
    assert not mx.array_equal(made(ids), made(ids)).item()


def test_recorded_attention_weights_are_the_oracle_s():
    settings = config(kind="encoder_decoder", attention={"num_heads": 4, "num_kv_heads": 2, "sinks": True})
    source, target = tokens(1, 5), tokens(1, 6, seed=1)
    stages = model(settings).stages(mx.array(source), mx.array(target), weights=True)
    record = Recorder()
    expected(settings, source, target, record=record)
    for stage, attention in record.attentions.items():
        name = stage.removesuffix("out") + "weights"
        assert_close(np.array(stages[name]), np.broadcast_to(attention.weights, stages[name].shape))


def test_stages_are_recorded_only_inside_the_block():
    made = model(config())
    with record_stages() as outer:
        made(mx.array(tokens(1, 3)))
        with record_stages() as inner:
            made(mx.array(tokens(1, 4)))
    made(mx.array(tokens(1, 5)))
    assert outer["logits"].shape == inner["logits"].shape == (1, 4, 50)


@pytest.mark.parametrize("kind", ["decoder", "encoder_decoder"])
def test_gradients_of_weights_agree_with_differences_of_the_oracle(kind):
    settings = config(kind=kind, position=POSITIONS["t5"], num_layers=1)
    ids = (tokens(1, 5), tokens(1, 4, seed=1)) if kind == "encoder_decoder" else (tokens(1, 5),)
    made = model(settings)
    d_out = np.random.default_rng(9).normal(size=(1, ids[-1].shape[1], 50)).astype(np.float32)
    stage = "decoder.logits" if kind == "encoder_decoder" else "logits"

    def total(model):
        return mx.sum(model(*(mx.array(i) for i in ids)) * mx.array(d_out))

    _, gradients = nn.value_and_grad(made, total)(made)
    gradients = dict(tree_flatten(gradients))
    rng = np.random.default_rng(1)
    base, step = weights(settings), 1e-4
    from tests.mlx_tx.small import oracle

    run = {"decoder": oracle.decoder, "encoder_decoder": oracle.encoder_decoder}[kind]
    for name, w in base.items():
        direction = rng.normal(size=w.shape)
        ends = [run(settings.to_dict(), {**base, name: w + s * step * direction}, *ids)[stage] for s in (1, -1)]
        slope = ((ends[0] - ends[1]) * d_out).sum() / (2 * step)
        got = (np.array(gradients[name]).astype(np.float64) * direction).sum()
        scale = np.linalg.norm(np.array(gradients[name])) * np.linalg.norm(direction) + 1e-3
        assert abs(got - slope) < 1e-4 * scale, name


@pytest.mark.parametrize("kind", KINDS)
def test_training_learns_a_toy_task(kind):
    mx.random.seed(0)
    small = {"vocab_size": 16, "num_layers": 1, "tie_embeddings": False}
    made = make_model(config(kind=kind, **small))
    starts = mx.random.randint(0, 16, (16, 1))
    text = (starts + 3 * mx.arange(7)) % 16
    inputs = {"decoder": (text[:, :-1],), "encoder": (text[:, :-1],), "encoder_decoder": (text[:, :1], text[:, :-1])}

    def loss(model):
        return nn.losses.cross_entropy(model(*inputs[kind]), text[:, 1:], reduction="mean")

    step, optimizer = nn.value_and_grad(made, loss), optimizers.Adam(1e-2)
    losses = []
    for _ in range(25):
        value, gradients = step(made)
        optimizer.update(made, gradients)
        mx.eval(made.parameters(), optimizer.state)
        losses.append(value.item())
    assert losses[0] > 2
    assert losses[-1] < 0.3 * losses[0]


def test_a_cache_is_filled_once_for_the_memory():
    settings = config(kind="encoder_decoder")
    made = model(settings)
    source, target = tokens(2, 6), tokens(2, 7, seed=1)
    whole = np.array(made(mx.array(source), mx.array(target), source_lengths=[6, 2]))
    cache = made.make_cache()
    memory = made.encode(mx.array(source), lengths=[6, 2])
    first = np.array(made.decode(mx.array(target[:, :3]), memory, cache, memory_lengths=[6, 2]))
    rest = [np.array(made.decode(mx.array(target[:, i : i + 1]), None, cache)) for i in range(3, 7)]
    assert_close(np.concatenate([first, *rest], axis=1), whole)


def test_ten_lines_make_a_model_that_runs():
    model = Decoder(ModelConfig.modern(vocab_size=64, d_model=32, num_layers=2, num_heads=4, num_kv_heads=2))
    text = mx.array([[1, 2, 3, 4]])
    cache = model.make_cache()
    logits = model(text, cache)
    for _ in range(3):
        token = mx.argmax(logits[:, -1:], axis=-1)
        text = mx.concatenate([text, token], axis=1)
        logits = model(token, cache)
    assert text.shape == (1, 7)
    assert_close(np.array(logits[:, -1]), np.array(model(text)[:, -1]))
    assert isinstance(
        make_model(ModelConfig.original(20, d_model=16, num_layers=1, num_heads=2, d_ff=8)), EncoderDecoder
    )


def test_compiled_it_gives_the_same():
    made = model(config(num_layers=1, mlp={"kind": "relu", "d_ff": 8}))
    ids = mx.array(tokens(2, 6))
    assert_close(np.array(mx.compile(made)(ids)), np.array(made(ids)))


def test_a_text_read_in_steps_is_the_text_read_at_once_for_scalings_that_depend_on_its_length():
    for position in ("dynamic", "longrope"):
        made = model(config(position=POSITIONS[position]))
        ids = tokens(2, 12)
        whole = np.array(made(mx.array(ids), rope_length=12))
        assert_close(fed(made, ids, made.make_cache(), [5, 1, 1, 3, 2], rope_length=12), whole)
        assert_close(whole, np.array(made(mx.array(ids))))
        assert np.abs(whole - np.array(made(mx.array(ids), rope_length=4))).max() > 1e-2


@pytest.mark.parametrize("bad", [{"segments": mx.zeros((2, 7), dtype=mx.int32)}, {"rope_length": 0}, {"offset": 1}])
@pytest.mark.parametrize("kind", ["decoder", "encoder_decoder"])
def test_a_refused_call_leaves_a_batched_cache_as_it_was(kind, bad):
    made, ids = model(config(kind=kind)), mx.array(tokens(2, 7))
    before = {} if kind == "decoder" else {"memory": made.encode(ids)}
    run = made if kind == "decoder" else made.decode
    cache, untouched = made.make_cache(left_padding=[0, 0]), made.make_cache(left_padding=[0, 0])
    with pytest.raises(ValueError, match=next(iter(bad))):
        run(ids, cache=cache, lengths=[3, 7], **before, **bad)
    if kind == "encoder_decoder":
        with pytest.raises(ValueError, match="memory must be given where no cache holds it"):
            run(ids, None, cache, lengths=[3, 7])
    assert mx.array_equal(run(ids, cache=cache, **before), run(ids, cache=untouched, **before)).item()


@pytest.mark.parametrize("shape", [(0, 3), (2, 0), (0, 0)])
def test_tokens_of_which_there_are_none_are_refused_by_name(shape):
    none, some, message = mx.zeros(shape, dtype=mx.int32), mx.array(tokens(2, 3)), r"must have B >= 1 and T >= 1; got"
    for kind in ("decoder", "encoder"):
        for position in POSITIONS.values():
            with pytest.raises(ValueError, match=rf"tokens {message} shape \({shape[0]}, {shape[1]}\)"):
                model(config(kind=kind, position=position))(none)
    both = model(config(kind="encoder_decoder"))
    for ids, name in (((none, some), "source"), ((some, none), "target")):
        with pytest.raises(ValueError, match=f"{name} {message}"):
            both(*ids)
    with pytest.raises(ValueError, match=r"memory must have shape \[B, S, d_model\], B and S at least 1; got"):
        both.decode(some, mx.zeros((*shape, 32)))
