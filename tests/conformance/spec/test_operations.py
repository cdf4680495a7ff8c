import pytest

from mlx_tx_conformance.spec.operations import as_steps, faults

from .conftest import faults as of_cases
from .conftest import only

RANDOM = {"random": {"sequences": 4, "n": 3, "weights": {"update": 2, "trim": 1}}}


@pytest.mark.parametrize(
    "steps",
    [
        [{"update": 3}, {"trim": 1}, {"rewind": 0}, {"restore": "file"}, {"reorder": [1, 0]}, {"regroup": True}],
        RANDOM,
        {"random": {**RANDOM["random"], "seed": 7}},
    ],
)
def test_operations_that_are_in_order(steps):
    assert list(faults(steps)) == []


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ([], "steps must be a list of operations"),
        ("update", "steps must be a list of operations"),
        (["update"], "an operation is one name"),
        ([{"update": 0}], "update must be an integer of at least 1"),
        ([{"restore": "disk"}], "restore must be one of state, file"),
        ([{"updat": 1}], "unknown operation 'updat'"),
        ({"random": {}}, "random needs 'sequences'"),
        ({"random": {**RANDOM["random"], "weights": {"trimm": 1}}}, "unknown operation 'trimm'"),
        ({"random": {**RANDOM["random"], "weights": {"trim": -1}}}, "weight of trim must be"),
        ({"random": {**RANDOM["random"], "n": 0}}, "random.n must be"),
        ({"random": {**RANDOM["random"], "m": 0}}, "unknown key 'm'"),
    ],
)
def test_faults_are_named(steps, message):
    assert any(message in text for text, _ in faults(steps))


def test_a_case_holds_them_as_they_are():
    head = "- {id: a, call: {op: cache, cache: {kind: full}}, check: keeps_what_was_fed, "
    assert only(head + "steps: [{update: 2}, {trim: 1}]}").steps == ({"update": 2}, {"trim": 1})
    case = only(head + "steps: {random: {sequences: 4, n: 3, weights: {update: 2, trim: 1}}}}")
    assert case.steps == as_steps(RANDOM) == (RANDOM,)


def test_a_fault_in_a_case_has_its_line_and_a_suggestion():
    head = "- {id: a, call: {op: cache, cache: {kind: full}}, check: keeps_what_was_fed, "
    (found,) = of_cases(head + "steps: [{updat: 2}]}")
    assert "unknown operation 'updat'" in str(found)
    assert "did you mean 'update'" in str(found)


def test_an_op_without_a_state_takes_no_operations():
    assert of_cases("- {id: a, steps: [{update: 2}], check: order_does_not_matter}")
