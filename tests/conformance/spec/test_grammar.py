import pytest

from mlx_tx_conformance.spec.grammar import read_clause
from mlx_tx_conformance.spec.reader import parse

from .conftest import CAUSAL, clause_text, faults


def clause_faults(text):
    _, findings = read_clause(parse(text, "spec/mask/msk-1.yaml"), "mask")
    return [str(finding) for finding in findings]


def test_a_clause_is_read_whole():
    clause, findings = read_clause(parse(CAUSAL, "spec/mask/msk-1.yaml"), "mask")
    assert findings == []
    assert (clause.id, clause.title, clause.subject, clause.line) == ("MSK-1", "Causal mask", "mask", 2)
    assert [str(source) for source in clause.source] == ["notes S-1", "vaswani-2017, 3.2.3"]
    assert [template.name for template in clause.templates] == ["equals-oracle", "later-keys-invisible"]
    assert [str(source) for source in clause.templates[1].source] == ["notes S-1", "vaswani-2017, 3.2.3", "mlx#2"]
    assert clause.templates[0].line("call", "outputs") == 11
    assert clause.templates[1].line("call", "causal") == 8  # where the default stands


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("clause: MSK-1\n", ""), "spec/mask/msk-1.yaml:2: no 'clause' in the clause"),
        (("title: Causal mask", "title: 3"), "spec/mask/msk-1.yaml:3: title must be a text; got 3"),
        (("text: Query", "text: >\n\n#"), "spec/mask/msk-1.yaml:4: text must be a text; got ''"),
        (("title:", "titel:"), "spec/mask/msk-1.yaml:3: unknown key 'titel' in the clause; did you mean 'title'?"),
        (("source: [", "source: [3, "), "spec/mask/msk-1.yaml:5: a source is a mapping; got 3"),
        (("{document: notes, statement: S-1}, ", ""), None),
        (("statement: S-1", "statment: S-1"), "did you mean 'statement'?"),
        (("{document: notes, statement: S-1}", "{document: notes}"), "a source is {document, statement}"),
        (("{document: notes, statement: S-1}", "{document: notes, statement: 1}"), "(quote numbers)"),
        (
            ('source: [{document: notes, statement: S-1}, {paper: vaswani-2017, where: "3.2.3"}]', "source: []"),
            "source must be a list",
        ),
        (
            ("vary:", "varry:"),
            "spec/mask/msk-1.yaml:12: unknown key 'varry' in case 'equals-oracle'; did you mean 'vary'?",
        ),
        (("id: equals-oracle", "id: Equals Oracle"), "a case needs an id in kebab-case; got 'Equals Oracle'"),
        (
            ("id: later-keys-invisible", "id: equals-oracle"),
            "spec/mask/msk-1.yaml:14: two cases are called 'equals-oracle' (first on line 10)",
        ),
        (("defaults:", "defualts:"), "did you mean 'defaults'?"),
        (
            ("shapes: {B", "shpaes: {B"),
            "spec/mask/msk-1.yaml:7: unknown key 'shpaes' in the defaults; did you mean 'shapes'?",
        ),
        (("    check: equals_oracle\n", ""), "neither check nor expect in case 'equals-oracle'"),
    ],
)
def test_faults_of_the_structure_come_with_file_line_and_suggestion(change, message):
    text = CAUSAL.replace(*change, 1)
    assert text != CAUSAL
    found = clause_faults(text)
    if message is None:
        assert found == []
    else:
        assert any(message in fault for fault in found), found


@pytest.mark.parametrize("text", ["3", "[a]", "clause: A-1"])
def test_a_file_that_is_no_clause_is_refused(text):
    assert clause_faults(text)


def test_all_faults_of_a_file_are_found_at_once():
    found = faults("- {id: a, shpaes: {}, check: finite}\n- {id: b, call: {casual: true}, check: finit}")
    assert len(found) == 3


@pytest.mark.parametrize(
    ("case", "message"),
    [
        ("{id: a}", "neither check nor expect in case 'a'"),
        ("{id: a, check: {unchanged: {perturb: [k]}}}", "the check unchanged needs the argument 'where' in case 'a'"),
        ("{id: a, check: order_does_not_matter}", "the check order_does_not_matter needs 'steps' in case 'a'"),
        ("{id: a, check: {law: {at_most: 3}}}", "the check law needs 'over' in case 'a'"),
        ("{id: a, check: same_for}", "the check same_for needs a variable with its values in case 'a'"),
        ("{id: a, call: {op: rope}, check: linear}", "the check linear judges attention, not rope, in case 'a'"),
        (
            "{id: a, steps: [{call: {causal: true}}], check: finite}",
            "'steps' belongs to the check order_does_not_matter",
        ),
        ("{id: a, over: {figure: flops, T: [1, 2]}, check: finite}", "'over' belongs to the check law"),
        ("3", "a case is a mapping; got 3"),
        ("{check: finite}", "a case needs an id in kebab-case; got None"),
    ],
)
def test_what_a_case_must_have_together(case, message):
    (fault,) = faults(f"- {case}")
    assert fault.startswith("spec/test/tst-1.yaml:6: ")
    assert message in fault


def test_what_a_check_needs_may_come_from_the_defaults():
    assert faults("- {id: a, check: {unchanged: {where: j}}}", "check: {unchanged: {perturb: [k]}}") == []


def test_no_cases_is_not_a_fault_of_the_structure():
    text = clause_text("- {id: a, check: finite}").partition("cases:")[0] + "cases: []\n"
    assert clause_faults(text) == []
