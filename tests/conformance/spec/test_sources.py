import pytest

from mlx_tx_conformance.data import spec_root
from mlx_tx_conformance.spec import SpecError
from mlx_tx_conformance.spec.sources import SCOPES, load_sources

from .conftest import SOURCES


def refusal(tmp_path, text):
    path = tmp_path / "sources.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(SpecError) as caught:
        load_sources(path, "spec/sources.yaml")
    return str(caught.value)


def test_documents_papers_and_reports_are_read(tmp_path):
    path = tmp_path / "sources.yaml"
    path.write_text(SOURCES, encoding="utf-8")
    sources = load_sources(path, "spec/sources.yaml")
    assert sources.documents == {"notes": "Notes"}
    assert sources.statements["notes", "S-2"].scope == "model"
    assert sources.papers["vaswani-2017"].cite == "Vaswani et al. 2017"
    assert sources.report("mlx#2") is sources.report("mlx#1")
    assert sources.report("mlx#3") is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            ("scope: attention, says: Later", "scope: atention, says: Later"),
            "spec/sources.yaml:6: unknown scope 'atention'; did you mean 'attention'?",
        ),
        (("id: S-2", "id: S-1"), "spec/sources.yaml:7: 'notes S-1' is there twice"),
        (('also: ["mlx#2"]', 'also: ["mlx#1"]'), "spec/sources.yaml:11: 'mlx#1' is there twice"),
        (("says: Later keys are hidden.", "sys: x"), "did you mean 'says'?"),
        (("says: Later keys are hidden.", "says: ''"), "needs says as text"),
        (("cite: Vaswani et al. 2017, ", ""), "an entry of papers needs cite as text"),
        (("papers:", "paper:"), "did you mean 'papers'?"),
        (('also: ["mlx#2"]', "also: mlx#2"), "also must be a list of report ids"),
        (("statements:", "statement:"), "did you mean 'statements'?"),
    ],
)
def test_faults_have_a_line_and_a_suggestion(tmp_path, change, message):
    text = SOURCES.replace(*change)
    assert text != SOURCES
    assert message in refusal(tmp_path, text)


@pytest.mark.parametrize("text", ["[]", "documents: 3", "documents: [3]"])
def test_another_structure_is_refused(tmp_path, text):
    assert "must be a" in refusal(tmp_path, text) or "is a mapping" in refusal(tmp_path, text)


def test_the_shipped_sources_have_every_document_and_scope():
    sources = load_sources(spec_root() / "sources.yaml", "spec/sources.yaml")
    assert set(sources.documents) == {"transformer-and-self-attention", "semantics", "suite"}
    assert {s.scope for s in sources.statements.values()} == set(SCOPES)
    ids = [statement for document, statement in sources.statements if document == "semantics"]
    assert ids == [f"SEM-{n}" for n in range(1, 15)]


def test_the_shipped_attention_statements_are_those_of_the_document():
    sources = load_sources(spec_root() / "sources.yaml", "spec/sources.yaml")
    mine = {s.id: s.scope for s in sources.statements.values() if s.document == "transformer-and-self-attention"}
    assert len(mine) == 36
    attention = "ATT-1 ATT-2 ATT-3 ATT-4 MSK-1 MSK-2 MHA-1 GQA-1 POS-0 POS-3 POS-4 SWA-1 CPX-1 CPX-2 CPX-3 CTX-2"
    assert {name for name, scope in mine.items() if scope == "attention"} == set(attention.split())
    assert {name for name, scope in mine.items() if scope == "kernel"} == {"CPX-4"}
