import numpy as np
import pytest

from mlx_tx_conformance.inputs.build import rng_for
from mlx_tx_conformance.inputs.weights import model_weights
from mlx_tx_conformance.oracle.parameters import parameter_shapes

CONFIG = {
    "kind": "decoder",
    "vocab_size": 40,
    "d_model": 64,
    "num_layers": 1,
    "attention": {"num_heads": 4},
    "norm": {"kind": "rms", "offset": 1.0},
    "mlp": {"kind": "swiglu", "d_ff": 128},
    "embedding_scale": "sqrt",
}


def weights(recipe=None, dtype="float32"):
    return model_weights(CONFIG, lambda name: rng_for("TST-1/a", 0, name), dtype, recipe)


def test_every_parameter_is_there_in_its_shape_and_dtype():
    made = weights(dtype="float16")
    assert {name: array.shape for name, array in made.items()} == parameter_shapes(CONFIG)
    assert all(array.dtype == np.float16 for array in made.values())


def test_sizes_stay_near_one():
    made = weights()
    assert made["layers.0.mlp.down_proj.weight"].std() == pytest.approx(128**-0.5, rel=0.1)
    assert made["embed_tokens.weight"].std() * 8 == pytest.approx(1.0, rel=0.1)
    assert abs(made["norm.weight"].mean()) < 0.1


def test_the_same_case_has_the_same_bits_and_another_name_others():
    one, again = weights(), weights()
    for name, array in one.items():
        np.testing.assert_array_equal(array, again[name])
    assert not np.array_equal(one["layers.0.self_attn.q_proj.weight"], one["layers.0.self_attn.k_proj.weight"])


def test_a_recipe_sets_scales_and_clears_by_name():
    row = [[1.0] * 64] * 40
    made = weights({"zero": ["*.o_proj.*"], "scale": {"*.q_proj.*": 2.0}, "set": {"embed_tokens.weight": row}})
    plain = weights()
    assert not made["layers.0.self_attn.o_proj.weight"].any()
    np.testing.assert_array_equal(
        made["layers.0.self_attn.q_proj.weight"], 2 * plain["layers.0.self_attn.q_proj.weight"]
    )
    assert np.all(made["embed_tokens.weight"] == 1)


def test_a_name_that_the_model_does_not_have_is_refused():
    with pytest.raises(ValueError, match=r"parameters of the model; got head\.weight"):
        weights({"set": {"head.weight": [[0.0]]}})
