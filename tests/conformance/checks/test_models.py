"""The checks of whole models: right on mlx_tx, and failing by name where one thing is wrong."""

import numpy as np
import pytest

from mlx_tx_conformance.targets import open_target

from .altered import Altered, stage

CONFIG = (
    "config: {kind: decoder, vocab_size: 13, d_model: 16, num_layers: 2, attention: {num_heads: 2}, "
    "position: {kind: %s}, mlp: {kind: relu, d_ff: 24}%s}"
)


def case(check, op="model", position="rope", more="", rest=""):
    config = CONFIG % (position, more)
    return f"shapes: {{B: 2, T: 6, vocab: 13}}\ncall: {{op: {op}, {config}{rest}}}\ncheck: {check}\n"


TARGET = open_target("mlx_tx:composed")


def bump(array):
    array[(0,) * array.ndim] += 0.25
    return array


@pytest.mark.parametrize("name", ["embed", "layers.0.self_attn.q_rope", "layers.1.mlp.hidden", "norm"])
def test_a_wrong_stage_is_named(verdict, name):
    found, message = verdict(case("stages_equal_oracle"), Altered(stage(name, bump)))
    assert found == "fail"
    assert message.startswith(f"stage {name}[0,0,0")


def test_a_missing_stage_is_named(verdict):
    after = lambda outputs, call: {n: a for n, a in outputs.items() if n != "layers.1.mlp.out"}  # noqa: E731
    assert verdict(case("stages_equal_oracle"), Altered(after)) == (
        "fail",
        verdict(case("stages_equal_oracle"), Altered(after))[1],
    )
    assert "there is no stage layers.1.mlp.out" in verdict(case("stages_equal_oracle"), Altered(after))[1]


def test_stages_right_by_themselves_and_an_end_that_is_not(verdict):
    # Other weights than those of the call, consistently: only the end can tell when stages are not asked.
    def after(outputs, call):
        return {**outputs, "logits": outputs["logits"] + np.float32(1e-3) * np.sign(outputs["logits"])}

    assert verdict(case("stages_equal_oracle"), TARGET)[0] == "pass"
    assert verdict(case("stages_equal_oracle"), Altered(after))[0] == "fail"


def test_rows_of_padding_may_hold_anything(verdict):
    def after(outputs, call):
        return {
            n: np.where(np.arange(a.shape[-2])[:, None] >= 4, np.nan, a).astype(a.dtype) for n, a in outputs.items()
        }

    text = case("{stages_equal_oracle: {end: false}}") + "inputs: {lengths: [4, 4]}\n"
    assert verdict(text, Altered(after))[0] == "pass"
    assert verdict(case("{stages_equal_oracle: {end: false}}"), Altered(after))[0] != "pass"


def test_dependence_on_tokens(verdict):
    right = case('{token_dependence: {changed: "i >= p", unchanged: "i < p"}}')
    assert verdict(right, TARGET)[0] == "pass"
    for wrong in ('changed: "i >= 0"', 'unchanged: "i <= p"', 'stage: "no.*"'):
        assert verdict(case(f"{{token_dependence: {{{wrong}}}}}"), TARGET)[0] == "fail"


def test_order(verdict):
    encoder = ", causal: false"
    assert verdict(case("{order_matters: {expected: false}}", position="none", more=encoder), TARGET)[0] == "pass"
    assert verdict(case("{order_matters: {expected: true}}", more=encoder), TARGET)[0] == "pass"
    assert verdict(case("{order_matters: {expected: true}}", position="none", more=encoder), TARGET)[0] == "fail"
    assert verdict(case("{order_matters: {expected: false}}", more=encoder), TARGET)[0] == "fail"


def test_stages_that_must_be_alike(verdict):
    zero = ', weights: {zero: ["*.o_proj.*", "*.down_proj.*"]}'
    check = "{stages_alike: {first: embed, others: [layers.0.self_attn.residual, layers.1.mlp.residual]}}"
    assert verdict(case(check, rest=zero), TARGET)[0] == "pass"
    found, message = verdict(case(check), TARGET)
    assert found == "fail"
    assert "layers.0.self_attn.residual must equal embed" in message


def test_attention_weights_read_out(verdict):
    check = "{attends: {layer: 0, head: 0, query: 0, key: 0, at_least: 0.99}}"
    assert verdict(case(check), TARGET)[0] == "pass"
    beyond = "{attends: {layer: 0, head: 1, query: 5, key: 3, at_least: 0.999}}"
    found, message = verdict(case(beyond), TARGET)
    assert found == "fail"
    assert "expected at least 0.999 on 3" in message


def test_parameters_and_the_rows_that_a_gradient_reaches(verdict):
    def on(check, target=TARGET, **more):
        return verdict(case(check, op="model_gradients", **more), target)

    assert on("{parameters_are: {absent: ['*rope*'], present: ['embed_tokens.weight']}}")[0] == "pass"
    assert on("{parameters_are: {absent: ['embed*']}}")[0] == "fail"
    assert on("{parameters_are: {present: ['position.weight']}}")[0] == "fail"
    extra = Altered(lambda outputs, call: {**outputs, "layers.0.inv_freq": np.ones(3)})
    assert "unknown ['layers.0.inv_freq']" in on("parameters_are", extra)[1]
    assert on("{gradient_rows: {of: embed_tokens.weight}}")[0] == "pass"
    wrong = Altered(lambda outputs, call: {n: np.ones_like(a) for n, a in outputs.items()})
    text = case("{gradient_rows: {of: embed_tokens.weight}}", op="model_gradients")
    assert verdict(text + "inputs: {tokens: {constant: 1}}\n", wrong)[0] == "fail"


@pytest.mark.parametrize("factor", [1.0, 1.01, 0.0])
def test_gradients_held_to_a_difference(verdict, factor):
    target = Altered(lambda outputs, call: {n: (a * factor).astype(a.dtype) for n, a in outputs.items()})
    found, _ = verdict(case("gradient_equals_difference", op="model_gradients"), target)
    assert (found == "pass") == (factor == 1.0)


def test_gradients_over_depth(verdict):
    def on(placement, limits):
        more = f", block: {{placement: {placement}}}"
        check = f"{{gradient_with_depth: {{layers: [1, 8], {limits}}}}}"
        return verdict(case(check, op="model_gradients", more=more), TARGET)[0]

    assert on("pre", "at_most: 6.0, at_least: 0.05") == "pass"
    assert on("pre", "at_least: 100.0") == "fail"
    assert on("pre", "at_most: 0.0001") == "fail"
