import jsonschema
import pytest

from mlx_tx_conformance.data import spec_root
from mlx_tx_conformance.spec.check_signatures import CHECKS
from mlx_tx_conformance.spec.loader import clause_files
from mlx_tx_conformance.spec.ops import OPS
from mlx_tx_conformance.spec.reader import parse, read
from mlx_tx_conformance.spec.recipes import MODIFIERS, RECIPES
from mlx_tx_conformance.spec.schema import schema, text

from .conftest import CAUSAL, WINDOW, clause_text


@pytest.fixture(scope="module")
def validator():
    jsonschema.Draft202012Validator.check_schema(schema())
    return jsonschema.Draft202012Validator(schema())


def test_the_file_is_what_the_registries_give():
    written = (spec_root() / "schema.json").read_text(encoding="utf-8")
    assert written == text(), "run: python -m mlx_tx_conformance.spec.schema > spec/schema.json"


def test_the_examples_and_the_shipped_clauses_are_valid(validator):
    documents = [parse(CAUSAL, "msk-1.yaml"), parse(WINDOW, "swa-1.yaml")]
    documents += [read(path, path.name) for path in clause_files(spec_root())]
    for document in documents:
        faults = [
            f"{document.file}: {list(e.absolute_path)}: {e.message:.200}" for e in validator.iter_errors(document.value)
        ]
        assert faults == []


@pytest.mark.parametrize(
    "cases",
    [
        "- {id: a, shpaes: {}}",
        "- {id: A}",
        "- {check: finite}",
        "- {id: a, shapes: {T_k: 3}}",
        "- {id: a, dtype: float23}",
        "- {id: a, call: {casual: true}}",
        "- {id: a, call: {op: rope, causal: true}}",
        "- {id: a, call: {causal: 3}}",
        "- {id: a, inputs: {maks: [1]}}",
        "- {id: a, inputs: {mask: {wher: j}}}",
        "- {id: a, layout: {k: slcied}}",
        "- {id: a, vary: {dtype: float32}}",
        "- {id: a, vary: {dtype: []}}",
        "- {id: a, steps: []}",
        "- {id: a, over: {figure: flops}}",
        "- {id: a, check: finit}",
        "- {id: a, check: {finite: {}, linear: {}}}",
        "- {id: a, check: {exactly: {upl: 1}}}",
        "- {id: a, check: {agrees: {with: {cal: {}}}}}",
        "- {id: a, expect: {}}",
        "- {id: a, expect: {raises: {names: window}}}",
        "- {id: a, source: [{document: notes}]}",
        "- {id: a, tags: slow}",
        "- {id: a, seed: -1}",
    ],
)
def test_what_the_loader_refuses_the_schema_refuses_too(validator, cases):
    assert list(validator.iter_errors(parse(clause_text(cases), "f").value))


def test_an_option_of_a_case_that_must_be_refused_may_have_any_value_but_not_any_name(validator):
    refused = "- {id: a, call: {%s: 2.5}, expect: {raises: {type: TypeError}}}"
    assert validator.is_valid(parse(clause_text(refused % "window"), "f").value)
    assert not validator.is_valid(parse(clause_text(refused % "widnow"), "f").value)


@pytest.mark.parametrize("change", [("clause: MSK-1", "clause: msk-1"), ("title:", "titel:"), ("source:", "sources:")])
def test_faults_of_the_clause_itself_are_refused(validator, change):
    assert list(validator.iter_errors(parse(CAUSAL.replace(*change), "f").value))


def test_everything_has_a_description_to_show():
    defs = schema()["$defs"]
    for name in ("case", "call", "inputs", "recipe", "shapes"):
        for key, inner in defs[name]["properties"].items():
            assert inner["description"], (name, key)
    checks = defs["check"]["anyOf"][1]["properties"]
    assert checks.keys() == CHECKS.keys()
    assert set(defs["recipe"]["properties"]) == {*RECIPES, *MODIFIERS}
    assert defs["call"]["properties"]["op"]["enum"] == list(OPS)
