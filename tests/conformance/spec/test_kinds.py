import jsonschema
import numpy as np
import pytest

from mlx_tx_conformance.spec import kinds

SAMPLES = {
    "BOOLEAN": ([True, False, np.bool_(True)], [1, None, []]),
    "INTEGER": ([0, -3], [True, 1.5, None]),
    "COUNT": ([1, 7], [0, True, 2.0]),
    "NUMBER": ([1, 1.5, float("inf"), float("nan")], [True, None, [1.0]]),
    "INTEGERS": ([[1], [1, 2]], [[], [1.5], 3, [True]]),
    "PAIR": ([[0, 1.5]], [[1], [1, 2, 3], 3]),
    "WINDOW": ([1, [0, 0], [None, 3], [2, None]], [0, 2.5, [1], [-1, 2], [1.5, 0], True]),
    "TEXT": (["a"], ["", 3]),
    "TEXTS": (["a", ["a", "b"]], ["", [], [3]]),
    "NAMES": ([["a"]], ["a", [], [3]]),
    "REPLACEMENT": (["value", "nan", "inf", 3.0], ["zero", True, None]),
    "CHANGES": ([{}, {"call": {}}], ["a", []]),
    "EXPRESSION_OR_NUMBER": (["T_q", 3], [None, []]),
    "ROPE": ([True, False, {"base": 1e4, "dims": 8, "traditional": True}], [{"bse": 1}, {"dims": 0}, 3]),
}


@pytest.mark.parametrize("name", SAMPLES)
def test_a_kind_accepts_its_values_and_no_others(name):
    kind = getattr(kinds, name)
    good, bad = SAMPLES[name]
    assert all(kind.accepts(value) for value in good)
    assert not any(kind.accepts(value) for value in bad)


@pytest.mark.parametrize("name", SAMPLES)
def test_the_schema_of_a_kind_admits_what_the_kind_accepts(name):
    kind = getattr(kinds, name)
    jsonschema.Draft202012Validator.check_schema(dict(kind.schema))
    for value in SAMPLES[name][0]:
        jsonschema.validate(bool(value) if isinstance(value, np.bool_) else value, dict(kind.schema))


def test_a_choice_knows_its_words():
    choice = kinds.choice("one", "two")
    assert choice.accepts("one")
    assert not choice.accepts("three")
    assert (choice.words, choice.text) == (("one", "two"), "one of one, two")
