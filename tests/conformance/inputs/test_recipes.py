import numpy as np
import pytest

from mlx_tx_conformance.call import DTYPES
from mlx_tx_conformance.inputs.recipes import build_array, indices
from mlx_tx_conformance.spec.recipes import RECIPES

NAMES = {"B": 2, "N_q": 3, "T_q": 4, "T_kv": 5, "window": 2}
FULL = (2, 3, 4, 5)


def build(recipe, name="mask", shape=FULL, dtype="float32", seed=0):
    return build_array(name, recipe, shape=shape, dtype=dtype, rng=np.random.default_rng(seed), names=NAMES)


def test_where_is_a_boolean_by_expression_over_indices_dims_and_options():
    mask = build({"where": "j <= i + T_kv - T_q and j > i - window"})
    assert mask.dtype == bool
    assert mask.shape == FULL
    for b, h, i, j in np.ndindex(FULL):
        assert mask[b, h, i, j] == (j <= i + 1 and j > i - 2)


def test_where_may_depend_on_batch_and_head():
    mask = build({"where": "(b + h + j) % 2 == 0"})
    for b, h, i, j in np.ndindex(FULL):
        assert mask[b, h, i, j] == ((b + h + j) % 2 == 0)


def test_where_that_holds_everywhere_fills_the_shape():
    assert build({"where": "true"}).tolist() == np.ones(FULL, bool).tolist()


@pytest.mark.parametrize("shape", [[4, 5], ["T_q", "T_kv"], [1, 1, "T_q", "T_kv"], [2, 1, 1, 5], [3, 4, 1]])
def test_a_shape_of_its_own_keeps_the_meaning_of_the_indices(shape):
    mask = build({"where": "j < 3 and i > 0 and h < 2 and b == 0", "shape": shape})
    sizes = tuple(NAMES.get(size, size) for size in shape)
    assert mask.shape == sizes
    full = (1,) * (4 - len(sizes)) + sizes
    for b, h, i, j in np.ndindex(full):
        assert mask.reshape(full)[b, h, i, j] == (j < 3 and i > 0 and h < 2 and b == 0)


def test_additive_is_zero_where_it_holds_and_the_number_elsewhere():
    mask = build({"where": "j < 2", "additive": float("-inf"), "shape": [1, 5]}, dtype="bfloat16")
    assert mask.dtype == DTYPES["bfloat16"]
    assert mask.astype(float).tolist() == [[0.0, 0.0, -np.inf, -np.inf, -np.inf]]


def test_visible_is_the_number_where_an_additive_mask_holds():
    mask = build({"where": "j < 2", "additive": -4, "visible": "T_kv / 2", "shape": [1, 4]})
    assert mask.tolist() == [[2.5, 2.5, -4.0, -4.0]]


def test_a_formula_is_the_value_of_an_expression_element_by_element():
    bias = build({"formula": "b - 2 * h + i * j / 4"}, name="bias")
    for b, h, i, j in np.ndindex(FULL):
        assert bias[b, h, i, j] == b - 2 * h + i * j / 4
    assert build({"formula": "T_kv"}, name="bias").tolist() == np.full(FULL, 5.0).tolist()
    assert build({"formula": "i + 1", "shape": [4, 1]}, name="bias").tolist() == [[1.0], [2.0], [3.0], [4.0]]


def test_indices_of_axes_that_are_absent_are_zero():
    found = indices((4, 5))
    assert found["i"].tolist() == [[0], [1], [2], [3]]
    assert found["j"].tolist() == [[0, 1, 2, 3, 4]]
    assert found["b"].tolist() == found["h"].tolist() == [[0]]


def test_normal_has_the_standard_deviation_and_follows_the_generator():
    one, again, other = (build({"normal": 3.0}, shape=(100, 100), seed=seed) for seed in (0, 0, 1))
    assert one.std() == pytest.approx(3.0, rel=0.05)
    assert (one == again).all()
    assert (one != other).any()


def test_uniform_lies_between_its_ends():
    x = build({"uniform": [-2, "T_kv"]}, shape=(1000,))
    assert -2 <= x.min() < -1.9
    assert 4.9 < x.max() <= 5


def test_constant_fills_the_shape_with_a_number_or_an_expression():
    assert build({"constant": "T_kv // 2"}).tolist() == np.full(FULL, 2.0).tolist()


@pytest.mark.parametrize("recipe", [[[1, "T_kv"], [0.5, -1]], {"values": [[1, "T_kv"], [0.5, -1]]}])
def test_values_are_written_out_and_keep_their_own_shape(recipe):
    x = build(recipe, name="bias", dtype="float16")
    assert x.dtype == np.float16
    assert x.tolist() == [[1.0, 5.0], [0.5, -1.0]]


def test_booleans_written_out_are_a_boolean_mask_and_numbers_an_additive_one():
    assert build([[True, False]]).dtype == bool
    assert build([[0, -1]]).dtype == np.float32


def test_values_with_a_shape_take_it():
    assert build({"values": [1, 2, 3, 4], "shape": [2, 2]}).tolist() == [[1.0, 2.0], [3.0, 4.0]]


def test_lengths_are_segments_one_after_another_in_every_batch_row():
    ids = build({"lengths": [1, 0, 3]}, name="segments", shape=(2, 4))
    assert ids.dtype == np.int32
    assert ids.tolist() == [[0, 2, 2, 2], [0, 2, 2, 2]]


def test_lengths_may_differ_by_batch_row():
    ids = build({"lengths": [[4], [2, 2]]}, name="segments", shape=(2, 4))
    assert ids.tolist() == [[0, 0, 0, 0], [0, 0, 1, 1]]


@pytest.mark.parametrize("lengths", [[1, 2], [5, -1], [[4], [2, 2], [4]], []])
def test_lengths_that_do_not_fit_are_refused(lengths):
    with pytest.raises(ValueError, match="sum to 4 in each of 2"):
        build({"lengths": lengths}, name="segments", shape=(2, 4))


@pytest.mark.parametrize("name", ["kv_lengths", "q_offset", "segments", "q_segments", "kv_segments", "offset"])
def test_whole_numbers_are_int32(name):
    assert build([3, 5], name=name, dtype="float16").dtype == np.int32


@pytest.mark.parametrize("name", ["alibi", "d_lse"])
def test_what_is_float32_whatever_the_dtype(name):
    assert build({"normal": 1.0}, name=name, dtype="float16").dtype == np.float32


def test_a_dtype_of_its_own_goes_first():
    assert build({"normal": 1.0, "dtype": "float32"}, name="bias", dtype="float16").dtype == np.float32
    assert build({"constant": 1, "dtype": "int32"}).dtype == np.int32
    assert build({"where": "j < 2", "dtype": "float32"}).dtype == np.float32
    assert build({"where": "j < 2", "dtype": "int8"}).dtype == np.int8


def test_values_are_rounded_to_the_dtype_at_once():
    x = build({"constant": 1 + 2.0**-10}, name="bias", dtype="bfloat16")
    assert x.astype(float).max() == 1.0


@pytest.mark.parametrize("recipe", [{}, {"normal": 1.0, "constant": 1.0}, {"shape": [2]}])
def test_a_recipe_has_exactly_one_kind(recipe):
    with pytest.raises(ValueError, match=r"mask must have exactly one of where, .*lengths"):
        build(recipe)


def test_every_recipe_of_the_spec_can_be_built():
    arguments = {"where": "j < 2", "formula": "j + i", "normal": 1, "uniform": [0, 1], "constant": 2, "values": [1],
                 "lengths": [2, 2]}  # fmt: skip
    assert set(arguments) == set(RECIPES)
    for kind, argument in arguments.items():
        assert build({kind: argument}, name="segments" if kind == "lengths" else "bias", shape=(2, 4)).size
