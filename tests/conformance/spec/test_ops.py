import pytest

from mlx_tx_conformance.call import LAYOUTS
from mlx_tx_conformance.spec.expr import evaluate, parse
from mlx_tx_conformance.spec.ops import DEFAULT_OP, DIM_HELP, DIMS, OPS

from .conftest import only


def test_the_ops_are_those_that_targets_know():
    of_attention = ["attention", "attention_gradients", "rope", "alibi_slopes", "attention_layer", "softmax"]
    tables = ["embedding", "sinusoidal", "learned_positions", "relative_bias"]
    networks = ["rms_norm", "layer_norm", "mlp", "moe"]
    models = ["model", "model_gradients", "model_steps", "cache", "rnn"]
    assert list(OPS) == of_attention + tables + networks + models
    assert DEFAULT_OP in OPS


@pytest.mark.parametrize("name", OPS)
def test_shapes_are_given_in_dims(name):
    for array in OPS[name].arrays.values():
        for size in array.shape:
            assert set(parse(size).names) <= set(DIMS)


@pytest.mark.parametrize("name", OPS)
def test_an_op_is_described_whole(name):
    op = OPS[name]
    assert op.help
    assert all(item.help for item in (*op.arrays.values(), *op.options.values()))
    assert set(op.default_outputs) <= set(op.outputs)
    assert set(op.laid_out) <= set(op.arrays)
    assert op.features
    assert len({feature.name for feature in op.features}) == len(op.features)


def test_every_dim_has_a_default_and_an_explanation():
    values = {}
    for name, default in DIMS.items():
        values[name] = evaluate(default, values)
    assert set(DIM_HELP) == {*DIMS, "T"}


@pytest.mark.parametrize("name", OPS)
def test_the_plainest_case_of_every_op_can_be_built(name):
    case = only(f"- {{id: a, call: {{op: {name}}}, check: equals_oracle}}")
    assert case.call["outputs"] == OPS[name].default_outputs
    for feature in OPS[name].features:
        assert set(feature.found(case)) <= {*feature.values, "causal"}


def test_features_ask_for_every_layout():
    (layout,) = (feature for feature in OPS["attention"].features if feature.name == "layout")
    assert layout.values == LAYOUTS
