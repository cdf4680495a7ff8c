import pickle

from mlx_tx_conformance.spec.errors import Finding, SpecError, suggestion


def test_a_finding_reads_as_file_line_and_message():
    assert str(Finding("spec/mask/msk-1.yaml", 14, "unknown key 'x'")) == "spec/mask/msk-1.yaml:14: unknown key 'x'"


def test_an_error_lists_every_finding_in_a_line_of_its_own():
    error = SpecError([Finding("a.yaml", 1, "one"), Finding("b.yaml", 2, "two")])
    assert str(error) == "a.yaml:1: one\nb.yaml:2: two"
    assert len(error.findings) == 2


def test_errors_survive_the_way_between_processes():
    for error in (SpecError("plain"), SpecError(Finding("a.yaml", 1, "one", "yaml"))):
        copy = pickle.loads(pickle.dumps(error))
        assert str(copy) == str(error)
        assert copy.findings == error.findings


def test_a_near_word_is_suggested_whatever_its_case():
    assert suggestion("shpaes", ["shapes", "call"]) == "; did you mean 'shapes'?"
    assert suggestion("n_Q", ["N_q", "N_kv"]) == "; did you mean 'N_q'?"


def test_without_a_near_word_a_short_list_is_given_and_a_long_one_is_not():
    assert suggestion("zzz", ["one", "two"]) == "; known: one, two"
    assert suggestion("zzz", [f"name{n}" for n in range(99)]) == ""


def test_findings_are_json_ready():
    assert Finding("a.yaml", 1, "one", "yaml").as_dict() == {
        "file": "a.yaml",
        "line": 1,
        "rule": "yaml",
        "message": "one",
    }
