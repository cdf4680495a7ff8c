import pytest

from mlx_tx_conformance.spec import SpecError, load_spec
from mlx_tx_conformance.spec.lint import lint
from mlx_tx_conformance.spec.new import new_case, new_clause

from .conftest import CAUSAL


def test_a_new_case_stands_at_the_end_and_runs_as_it_is(spec):
    path, line = new_case(spec, "MSK-1", "odd-lengths")
    text = path.read_text()
    assert text.startswith(CAUSAL)
    assert text.splitlines()[line - 1] == "  - id: odd-lengths"
    again = load_spec(spec.root)
    assert [t.name for t in again.clause("MSK-1").templates][-1] == "odd-lengths"
    assert len(again.select(["MSK-1/odd-lengths"])) == 3
    assert lint(spec.root) == []


def test_a_case_goes_before_what_follows_the_cases(write_spec):
    rest = ["# about the clause", "clause: MSK-1", "title: T", "text: W", "source: [{document: notes, statement: S-1}]"]
    text = "\n".join(["cases:", "- id: one", "  check: finite", "", *rest, ""])
    spec = load_spec(write_spec(mask__msk_1=text))
    path, line = new_case(spec, "MSK-1", "two")
    lines = path.read_text().splitlines()
    assert (line, lines[3]) == (4, "- id: two")
    assert lines[-5:] == rest
    assert [t.name for t in load_spec(spec.root).clause("MSK-1").templates] == ["one", "two"]


@pytest.mark.parametrize(
    ("clause", "slug", "message"),
    [
        ("MSK-2", "a", "no clause 'MSK-2'; did you mean 'MSK-1'?"),
        ("MSK-1", "equals-oracle", "MSK-1 has a case 'equals-oracle' already"),
        ("MSK-1", "Equals Oracle", "a case is called in kebab-case, as equals-oracle; got 'Equals Oracle'"),
        ("MSK-1", "../../etc", "kebab-case"),
    ],
)
def test_a_case_that_cannot_be_added_changes_nothing(spec, clause, slug, message):
    before = {path: path.read_bytes() for path in spec.root.rglob("*.yaml")}
    with pytest.raises(SpecError) as caught:
        new_case(spec, clause, slug)
    assert message in str(caught.value)
    assert {path: path.read_bytes() for path in spec.root.rglob("*") if path.is_file()} == before


def test_cases_written_in_one_line_are_left_alone(write_spec):
    text = CAUSAL.partition("cases:")[0] + "cases: [{id: one, check: finite}]\n"
    spec = load_spec(write_spec(mask__msk_1=text))
    with pytest.raises(SpecError, match="not written one below the other"):
        new_case(spec, "MSK-1", "two")


def test_a_new_clause_loads_and_asks_for_its_statement(spec):
    path, line = new_clause(spec, "CAP-1", "features", "Soft-capping: scores, then tanh")
    assert path == spec.root / "features" / "cap-1.yaml"
    lines = path.read_text().splitlines()
    assert lines[0] == "# yaml-language-server: $schema=../schema.json"
    assert lines[line - 1] == "  - id: equals-oracle"
    again = load_spec(spec.root)
    assert again.clause("CAP-1").title == "Soft-capping: scores, then tanh"
    assert len(again.cases_of("CAP-1")) == 3
    (finding,) = lint(spec.root)
    assert "unknown document 'suite'" in finding.message


@pytest.mark.parametrize(
    ("name", "subject", "message"),
    [
        ("MSK-1", "other", "MSK-1 is there already, in spec/mask/msk-1.yaml:2"),
        ("msk-2", "mask", "a clause's id is capitals"),
        ("MSK-2", "Mask", "a subject is called in kebab-case"),
        ("MSK-2", "../mask", "a subject is called in kebab-case"),
        ("MSK-7", "mask", "spec/mask/msk-7.yaml is there already"),
    ],
)
def test_a_clause_that_cannot_be_written_is_refused(spec, name, subject, message):
    (spec.root / "mask" / "msk-7.yaml").write_text("not a clause yet")
    with pytest.raises(SpecError) as caught:
        new_clause(spec, name, subject)
    assert message in str(caught.value)


def test_a_file_is_replaced_whole_or_not_at_all(spec, monkeypatch):
    path = spec.root / "mask" / "msk-1.yaml"
    before = path.read_bytes()

    def fails(self, target):
        raise OSError("no space")

    monkeypatch.setattr("pathlib.Path.replace", fails)
    with pytest.raises(OSError, match="no space"):
        new_case(spec, "MSK-1", "odd-lengths")
    assert path.read_bytes() == before
    assert sorted(item.name for item in path.parent.iterdir()) == ["msk-1.yaml"]


def test_the_mode_of_a_file_stays(spec):
    path = spec.root / "mask" / "msk-1.yaml"
    path.chmod(0o600)
    new_case(spec, "MSK-1", "odd-lengths")
    assert path.stat().st_mode & 0o777 == 0o600
