import pytest

from mlx_tx_conformance.spec.ops import OPS
from mlx_tx_conformance.spec.vary import VaryFault, factor, label

ATTENTION = OPS["attention"]


def choices(key, *values, op=ATTENTION):
    return factor(key, list(values), op).choices


def labels(key, *values):
    return [choice.label for choice in choices(key, *values)]


def applied(key, value, body=None, op=ATTENTION):
    (choice,) = choices(key, value, op=op)
    result = choice.apply(body or {})
    return {key: item for key, item in result.items() if not key.startswith("(")}


@pytest.mark.parametrize(
    ("key", "values", "expected"),
    [
        ("dtype", ["float32", "bfloat16"], ["float32", "bfloat16"]),
        ("T_q", [1, "T_kv // 2"], ["T_q=1", "T_q=T_kv//2"]),
        ("causal", [False, True], ["causal=false", "causal=true"]),
        ("window", [None, 4, [2, 3], [None, 0]], ["window=none", "window=4", "window=2:3", "window=none:0"]),
        ("scale", ["1/3", 0.5, float("nan")], ["scale=1/3", "scale=0.5", "scale=nan"]),
        ("design", ["normal", {"spiky": {"std": 16}}], ["normal", "spiky(std=16)"]),
        ("q_offset", [3, [0, 5]], ["q_offset=3", "q_offset=0:5"]),
        ("bias", [{"normal": 1.0}, None], ["bias=normal(1.0)", "bias=none"]),
        ("inputs.mask.where", ["j <= i", "j < i"], ["where=j<=i", "where=j<i"]),
        ("form", [{"name": "bool", "call": {}}, {"name": 11, "call": {}}], ["bool", "11"]),
        ("mask", [{"name": "full", "value": {"where": "j", "shape": [1]}}], ["mask=full"]),
        ("layout", ["sliced", {"k": "sliced"}], ["sliced", "k(sliced)"]),
    ],
)
def test_labels(key, values, expected):
    assert labels(key, *values) == expected


@pytest.mark.parametrize(
    ("key", "value", "body"),
    [
        ("dtype", "float16", {"dtype": "float16"}),
        ("D", 8, {"shapes": {"D": 8}}),
        ("T", 8, {"shapes": {"T_q": 8, "T_kv": 8}}),
        ("window", 3, {"call": {"window": 3}}),
        ("design", "tiny", {"inputs": {"design": "tiny"}}),
        ("sinks", [1.0, 2.0], {"inputs": {"sinks": [1.0, 2.0]}}),
        ("alibi", [0.5, 0.25], {"inputs": {"alibi": [0.5, 0.25]}, "call": {}}),
        ("alibi", True, {"call": {"alibi": True}, "inputs": {}}),
        ("layout", {"k": "sliced"}, {"layout": {"k": "sliced"}}),
        ("mask", {"name": "x", "value": {"where": "j"}}, {"inputs": {"mask": {"where": "j"}}, "call": {}}),
        (
            "rule",
            {"name": "x", "shapes": {"B": 3}, "call": {"causal": True}},
            {"shapes": {"B": 3}, "call": {"causal": True}},
        ),
        ("mask", {"name": "x", "inputs": {"mask": [[True]]}}, {"inputs": {"mask": [[True]]}}),
        ("layout", {"name": "x", "layout": {"q": "offset"}}, {"layout": {"q": "offset"}}),
    ],
)
def test_what_a_value_changes(key, value, body):
    assert applied(key, value) == body


def test_a_null_takes_an_option_away_and_an_array_takes_the_place_of_an_option():
    assert applied("window", None, {"call": {"window": 3}}) == {"call": {}}
    assert applied("q_offset", [1, 2], {"call": {"q_offset": 4}}) == {"call": {}, "inputs": {"q_offset": [1, 2]}}


def test_a_dotted_key_sets_one_value():
    body = {"inputs": {"mask": {"where": "j", "additive": 0}}}
    assert applied("inputs.mask.where", "i", body) == {"inputs": {"mask": {"where": "i", "additive": 0}}}


@pytest.mark.parametrize(
    ("key", "values", "words"),
    [
        ("dtyp", ["float32"], "unknown key 'dtyp'; did you mean 'dtype'?"),
        ("casual", [True], "did you mean 'causal'?"),
        ("form", [1], "needs values with a name"),
        ("inptus.mask", [1], "a dotted key begins with one of shapes, call"),
        ("window", [4, 4], "two values of 'window' are called 'window=4'"),
        ("mask", [{"where": "j", "shape": [1]}], "needs a name"),
        ("bias", [[[1.0, 2.0]]], "needs a name"),
        ("scale", ["max(1, 2)"], "cannot stand in an id"),
        ("form", [{"name": "a b", "call": {}}], "a short word without blanks"),
        ("form", [{"name": True, "call": {}}], "a short word without blanks"),
        ("form", [{"name": "a,b", "call": {}}], "a short word without blanks"),
    ],
)
def test_what_cannot_be_used_says_why(key, values, words):
    with pytest.raises(VaryFault) as caught:
        choices(key, *values)
    assert words in str(caught.value)


@pytest.mark.parametrize("value", ["a b", "x" * 81, {}, {"a": 1, "b": 2}, [[1]], {"a": {"b": [[1]]}}, "", []])
def test_labels_are_short_and_have_no_blanks_commas_or_brackets(value):
    try:
        text = label(value)
    except VaryFault:
        return
    assert text == "ab"
