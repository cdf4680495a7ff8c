import pytest

from mlx_tx_conformance.spec.merge import OWN, merge, set_path, spelled_out


def test_sections_are_merged_key_by_key_and_the_rest_is_replaced():
    base = {"shapes": {"B": 1, "D": 8}, "call": {"causal": True}, "tags": ["a"], "dtype": "float32"}
    merged = merge(base, {"shapes": {"D": 16}, "call": {"window": 3}, "tags": ["b"]})
    assert merged["shapes"] == {"B": 1, "D": 16}
    assert merged["call"] == {"causal": True, "window": 3}
    assert merged["tags"] == ["b"]
    assert merged["dtype"] == "float32"
    assert base["shapes"] == {"B": 1, "D": 8}
    assert base["call"] == {"causal": True}


def test_a_null_takes_away_what_was_below():
    merged = merge(
        {"call": {"causal": True, "window": 3}, "inputs": {"mask": {"where": "j"}}, "path": "fused"},
        {"call": {"window": None}, "inputs": {"mask": None}, "path": None},
    )
    assert merged == {"call": {"causal": True}, "inputs": {}}


def test_both_lengths_of_a_layer_go_before_the_lengths_below():
    assert merge({"shapes": {"T_q": 9, "T_kv": 20}}, {"shapes": {"T": 4}})["shapes"] == {"T_q": 4, "T_kv": 4}
    assert merge({"shapes": {"T": 4}}, {"shapes": {"T_q": 9}})["shapes"] == {"T_q": 9, "T_kv": 4}
    assert spelled_out({"T": 4, "T_kv": 7}) == {"T_q": 4, "T_kv": 7}


def test_a_recipe_is_replaced_by_one_with_a_source_and_gains_from_one_without():
    base = {"inputs": {"mask": {"where": "j <= i", "shape": [1, 1]}}}
    assert merge(base, {"inputs": {"mask": {"normal": 1.0}}})["inputs"] == {"mask": {"normal": 1.0}}
    added = merge(base, {"inputs": {"mask": {"additive": 0.0}}})
    assert added["inputs"]["mask"] == {"where": "j <= i", "shape": [1, 1], "additive": 0.0}
    assert merge(base, {"inputs": {"mask": [[True]]}})["inputs"] == {"mask": [[True]]}


def test_a_design_is_replaced_whole():
    base = {"inputs": {"design": {"spiky": {"std": 8}}}}
    assert merge(base, {"inputs": {"design": {"tiny": {}}}})["inputs"] == {"design": {"tiny": {}}}


def test_arguments_of_the_same_check_are_merged_and_another_check_displaces_it():
    base = {"check": {"unchanged": {"perturb": ["k"], "where": "j"}}}
    assert merge(base, {"check": {"unchanged": {"by": "nan"}}})["check"] == {
        "unchanged": {"perturb": ["k"], "where": "j", "by": "nan"}
    }
    assert merge(base, {"check": "equals_oracle"})["check"] == {"equals_oracle": {}}


def test_check_and_expect_displace_one_another():
    assert merge({"check": {"finite": {}}}, {"expect": {"out": [1]}}) == {"expect": {"out": [1]}}
    assert merge({"expect": {"out": [1]}}, {"check": "finite"}) == {"check": {"finite": {}}}


def test_another_op_leaves_behind_what_it_cannot_use():
    base = {
        "call": {"op": "attention", "causal": True, "alibi": True, "outputs": ["out", "lse"]},
        "inputs": {"design": "tiny", "mask": {"where": "j"}},
        "layout": {"k": "sliced"},
    }
    assert merge(base, {"call": {"op": "rope"}}) == {
        "call": {"op": "rope"},
        "inputs": {"design": "tiny"},
        "layout": {},
    }
    kept = merge(base, {"call": {"op": "attention_gradients"}})
    assert kept["call"] == {"op": "attention_gradients", "causal": True, "alibi": True}
    assert kept["inputs"] == base["inputs"]
    assert merge({"call": {"alibi": True}}, {"call": {"op": "alibi_slopes"}})["call"] == {"op": "alibi_slopes"}
    assert merge(base, {"call": {"op": "attention"}})["call"] == base["call"]


def test_the_dims_of_the_upper_layers_are_remembered():
    body = merge(merge({}, {"shapes": {"B": 2}}), {"shapes": {"T": 3}})
    assert body[OWN] == {"B", "T_q", "T_kv"}


def test_a_value_is_set_by_its_path_without_changing_the_original():
    body = {"inputs": {"mask": {"where": "j <= i", "additive": 0}}}
    assert set_path(body, ("inputs", "mask", "where"), "j < i")["inputs"]["mask"] == {"where": "j < i", "additive": 0}
    assert set_path(body, ("inputs", "mask", "additive"), None)["inputs"]["mask"] == {"where": "j <= i"}
    assert body == {"inputs": {"mask": {"where": "j <= i", "additive": 0}}}
    assert set_path(body, ("call", "causal"), True)["call"] == {"causal": True}


@pytest.mark.parametrize("path", [("call", "window", "left"), ("inputs", "mask", "where", "x")])
def test_a_path_that_leads_nowhere_is_refused(path):
    with pytest.raises(KeyError):
        set_path({"inputs": {"mask": {"where": "j"}}, "call": {"window": [1, 2]}}, path, 1)
