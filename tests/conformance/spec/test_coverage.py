import json

import pytest

from mlx_tx_conformance.spec import load_spec
from mlx_tx_conformance.spec.coverage import coverage
from mlx_tx_conformance.spec.ops import OPS

from .conftest import CAUSAL, SOURCES, WINDOW, clause_text


def counts(spec, op, feature):
    (found,) = (f for f in coverage(spec).features if (f.op, f.feature) == (op, feature))
    return found


def test_statements_and_reports_know_who_cites_them(spec):
    found = coverage(spec)
    assert {item.id: item.by for item in found.statements} == {"notes S-1": ("MSK-1", "SWA-1"), "notes S-2": ()}
    assert {item.id: item.by for item in found.reports} == {"mlx#1": ("MSK-1/later-keys-invisible",)}
    assert found.clauses == {"MSK-1": 2, "SWA-1": 1}


def test_a_scope_leaves_out_what_belongs_elsewhere(spec):
    assert [item.id for item in coverage(spec, "attention").statements] == ["notes S-1"]
    assert [item.id for item in coverage(spec, "model").statements] == ["notes S-2"]
    assert {f.op for f in coverage(spec, "model").features} == {n for n, op in OPS.items() if op.scope == "model"}
    assert coverage(spec, "kernel").features == ()
    with pytest.raises(
        ValueError,
        match="scope must be one of attention, model, kernel, checkpoint; got 'atention'; did you mean 'attention'",
    ):
        coverage(spec, "atention")


def test_gaps_are_named(write_spec):
    sources = SOURCES.replace("{id: S-2, scope: model", "{id: S-2, scope: attention")
    sources += '  - {id: "mlx#9", scope: attention, says: Another fault.}\n'
    text = WINDOW.partition("cases:")[0] + "cases: []\n"
    gaps = coverage(load_spec(write_spec(sources=sources, mask__msk_1=CAUSAL, window__swa_1=text)), "attention").gaps
    assert "statement notes S-2 has no clause: Layers are stacked." in gaps
    assert "report mlx#9 has no clause or case: Another fault." in gaps
    assert "clause SWA-1 has no case" in gaps
    assert "no case of attention has causal: false" in gaps
    assert "no case of attention has causal: true" not in gaps


def test_values_are_counted_once_a_case_and_not_for_calls_that_must_be_refused(spec):
    window = counts(spec, "attention", "window")
    assert window.values == {"none": 5, "int": 0, "pair": 0}
    assert window.missing == ("int", "pair")


def test_every_form_of_a_case_counts(write_spec):
    cases = """
    - {id: a, let: {r: {op: rope, x: q, traditional: true}}, call: {q: r}, check: finite}
    - {id: b, steps: [{call: {window: 3}}, {call: {window: [1, 2]}}], check: order_does_not_matter}
    - {id: c, check: {agrees: {with: {inputs: {mask: {where: j}}}}}}
    - {id: d, check: {same_for: {layout: [contiguous, sliced]}}}
    """
    spec = load_spec(write_spec(test__tst_1=clause_text(cases)))
    assert counts(spec, "rope", "traditional").values == {"false": 0, "true": 1}
    assert counts(spec, "attention", "window").values == {"none": 4, "int": 1, "pair": 1}
    assert counts(spec, "attention", "mask").values == {"none": 4, "boolean": 1, "additive": 0}
    assert counts(spec, "attention", "layout").values["sliced"] == 1


def test_it_is_complete_only_without_a_gap(spec):
    assert not coverage(spec).complete
    assert coverage(spec, "kernel").complete


def test_it_is_rendered_for_people_and_for_machines(spec):
    found = coverage(spec, "attention")
    text = found.render()
    assert text.startswith("Coverage of the spec, scope attention\n  statements   1 of 1 have a clause\n")
    assert "  missing: no case of softmax has axis: last\n" in text
    data = json.loads(found.render("json"))
    assert (data["scope"], data["complete"]) == ("attention", False)
    assert data["gaps"] == list(found.gaps)
    assert data["statements"][0]["cited_by"] == ["MSK-1", "SWA-1"]
    with pytest.raises(ValueError, match="format must be pretty, md or json; got 'xml'"):
        found.render("xml")


def test_it_is_rendered_as_tables(spec):
    text = coverage(spec, "attention").render("md")
    assert text.startswith("# Coverage of the spec: attention\n")
    assert "| statements | 1 of 1 | have a clause |" in text
    assert "| notes S-1 | Later keys are hidden. | MSK-1, SWA-1 |" in text
    assert "- no case of softmax has axis: last" in text
    assert "| attention | window | none 5, int 0, pair 0 |" in text
    for block in text.split("\n\n"):
        rows = [line for line in block.splitlines() if line.startswith("|")]
        assert len({line.replace("\\|", "").count("|") for line in rows}) <= 1


def test_the_shipped_tables_are_whole():
    for line in coverage(load_spec()).render("md").splitlines():
        assert not line.startswith("|") or line.replace("\\|", "").count("|") == 4


def test_the_shipped_spec_covers_attention():
    assert coverage(load_spec(), "attention").gaps == ()
