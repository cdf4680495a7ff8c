from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest

from mlx_tx_conformance.call import DTYPES
from mlx_tx_conformance.inputs import build_call, fingerprint, rng_for

DIMS = {"B": 2, "N_q": 4, "N_kv": 2, "T_q": 5, "T_kv": 7, "D": 8, "D_v": 6, "d_model": 32}


@dataclass(frozen=True)
class Case:
    """What building reads of a case."""

    id: str = "MSK-1/equals-oracle"
    dims: dict[str, int] = field(default_factory=lambda: dict(DIMS))
    dtype: str = "float32"
    call: dict[str, Any] = field(default_factory=lambda: {"op": "attention", "outputs": ("out",)})
    inputs: dict[str, Any] = field(default_factory=dict)
    layout: dict[str, str] = field(default_factory=dict)
    let: dict[str, Any] = field(default_factory=dict)
    seed: int = 0


def shapes(call):
    return {name: array.shape for name, array in call.arrays.items()}


def test_by_default_the_required_arrays_are_normal():
    call = build_call(Case())
    assert shapes(call) == {"q": (2, 4, 5, 8), "k": (2, 2, 7, 8), "v": (2, 2, 7, 6)}
    assert {array.dtype for array in call.arrays.values()} == {np.dtype(np.float32)}
    assert call.arrays["q"].std() == pytest.approx(1.0, abs=0.15)
    assert call.outputs == ("out",)
    assert call.options == {}


@pytest.mark.parametrize("dtype", DTYPES)
def test_arrays_have_the_dtype_of_the_case(dtype):
    call = build_call(Case(dtype=dtype, inputs={"bias": {"normal": 1.0}, "kv_lengths": [3, 7]}))
    assert call.dtype == dtype
    assert call.arrays["bias"].dtype == DTYPES[dtype]
    assert call.arrays["kv_lengths"].dtype == np.int32


def test_options_outputs_and_layout_pass_through():
    options = {"op": "attention", "outputs": ("out", "lse"), "causal": True, "window": 3, "scale": None}
    call = build_call(Case(call=options, layout={"k": "sliced"}))
    assert call.options == {"causal": True, "window": 3}
    assert call.outputs == ("out", "lse")
    assert call.layout == {"k": "sliced"}


def test_recipes_go_before_the_design():
    call = build_call(Case(inputs={"design": "zero_queries", "v": {"constant": 2.0}, "q": {"normal": 1.0}}))
    assert call.arrays["q"].any()
    assert (call.arrays["v"] == 2.0).all()


def test_a_design_has_parameters_and_may_bring_a_mask():
    call = build_call(Case(inputs={"design": {"private_channels": {"keys": ["first", "excluded"], "value": 256.0}}}))
    assert call.arrays["v"].max() == 256.0
    assert call.arrays["mask"].dtype == bool


def test_a_mask_of_the_case_goes_before_that_of_a_design():
    recipe = {"where": "j < 3", "shape": ["T_q", "T_kv"]}
    call = build_call(Case(inputs={"design": "one_live_key", "mask": recipe}))
    assert call.arrays["mask"].shape == (5, 7)


def test_an_array_that_lies_broadcast_repeats_along_the_batch():
    k = build_call(Case(layout={"k": "broadcast"})).arrays["k"]
    assert k.shape == (2, 2, 7, 8)
    assert (k[1] == k[0]).all()
    plain = build_call(Case()).arrays["k"]
    assert (plain[0] == k[0]).all()
    assert (plain[1] != k[1]).any()


@pytest.mark.parametrize("design", [{"spiky": {"std": 2}, "normal": {}}, "spiked", {"normal": {"sd": 1}}])
def test_a_bad_design_is_refused(design):
    with pytest.raises(ValueError, match=r"design|spiky|std"):
        build_call(Case(inputs={"design": design}))


def test_gradients_get_a_cotangent_and_another_only_when_asked():
    call = build_call(Case(call={"op": "attention_gradients"}))
    assert shapes(call)["d_out"] == (2, 4, 5, 6)
    assert "d_lse" not in call.arrays
    both = build_call(Case(call={"op": "attention_gradients"}, inputs={"d_lse": {"normal": 1.0}}))
    assert shapes(both)["d_lse"] == (2, 4, 5)


def test_weights_of_a_layer_keep_the_size_of_what_they_multiply():
    call = build_call(Case(call={"op": "attention_layer", "N_q": 4, "N_kv": 2}))
    assert shapes(call) == {"x": (2, 5, 32), "w_q": (32, 32), "w_k": (32, 16), "w_v": (32, 12), "w_o": (24, 32)}
    assert call.arrays["w_q"].std() == pytest.approx(32**-0.5, rel=0.1)
    assert call.options == {"N_q": 4, "N_kv": 2}


def test_other_operations_get_their_arrays():
    assert shapes(build_call(Case(call={"op": "rope"}))) == {"x": (2, 4, 5, 8)}
    assert shapes(build_call(Case(call={"op": "softmax"}))) == {"x": (2, 4, 5, 7)}
    assert shapes(build_call(Case(call={"op": "alibi_slopes", "n_heads": 3}))) == {}


def test_names_of_intermediate_values_are_no_options():
    case = Case(
        call={"op": "attention", "q": "rq", "mask": "causal", "softcap": 2.0},
        let={"rq": {"op": "rope", "x": "q"}},
    )
    assert build_call(case).options == {"mask": "causal", "softcap": 2.0}


def test_expressions_of_recipes_may_use_numeric_options():
    case = Case(call={"op": "attention", "window": 3}, inputs={"mask": {"where": "j > i - window"}})
    assert (
        build_call(case).arrays["mask"].sum()
        < build_call(Case(inputs={"mask": {"where": "true"}})).arrays["mask"].sum()
    )


class TestDeterminism:
    def test_the_same_case_gives_the_same_bytes(self):
        case = Case(inputs={"bias": {"normal": 1.0}})
        assert fingerprint(build_call(case)) == fingerprint(build_call(replace(case)))

    @pytest.mark.parametrize("change", [{"id": "MSK-1/other"}, {"seed": 1}, {"dtype": "float16"}])
    def test_another_id_seed_or_dtype_gives_others(self, change):
        assert fingerprint(build_call(Case())) != fingerprint(build_call(replace(Case(), **change)))

    def test_one_array_does_not_change_another(self):
        one = build_call(Case(inputs={"bias": {"normal": 1.0}, "sinks": {"normal": 1.0}}))
        other = build_call(Case(inputs={"bias": {"normal": 1.0}, "mask": {"where": "j < 3"}}))
        for name in ("q", "k", "v", "bias"):
            np.testing.assert_array_equal(one.arrays[name], other.arrays[name])

    def test_generators_are_those_of_name_id_and_seed(self):
        draws = {
            rng_for(case, seed, name).integers(2**62)
            for case in ("a", "b")
            for seed in (0, 1)
            for name in ("design", "bias")
        }
        assert len(draws) == 8
        assert rng_for("a", 0, "bias").bit_generator.state["bit_generator"] == "PCG64"

    def test_the_bytes_are_these_for_good(self):
        """Journals of different machines merge by fingerprint, so that the inputs of a case must never change."""
        call = build_call(Case(dims={**DIMS, "T_q": 2, "T_kv": 2}))
        assert call.arrays["q"][0, 0, 0, :2].tolist() == [-0.7073006629943848, 0.5971018075942993]
        assert fingerprint(call) == "810d30920331bec15e8ec8a254a2eab29d176f871be41b8de515e7b930875ca6"


class TestFingerprint:
    def call(self):
        return build_call(Case())

    def test_it_is_a_sha256(self):
        assert len(fingerprint(self.call())) == 64
        int(fingerprint(self.call()), 16)

    def test_it_depends_on_names_dtypes_shapes_and_bytes(self):
        call = self.call()
        q = call.arrays["q"]
        changed = q.copy()
        changed[0, 0, 0, 0] = np.nextafter(q[0, 0, 0, 0], np.float32(9), dtype=np.float32)
        others = [
            call.with_arrays(q=changed),
            call.with_arrays(q=q.reshape(2, 4, 8, 5)),
            call.with_arrays(q=q.view(np.int32)),
            call.with_arrays(q=None, r=q),
            call.with_arrays(q=None),
        ]
        assert len({fingerprint(call), *map(fingerprint, others)}) == 6

    def test_it_does_not_depend_on_the_order_or_the_strides(self):
        call = self.call()
        turned = {name: np.asfortranarray(call.arrays[name]) for name in ("v", "q", "k")}
        assert fingerprint(replace(call, arrays=turned)) == fingerprint(call)
