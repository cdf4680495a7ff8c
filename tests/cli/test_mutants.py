"""mlx-tx mutants: the list, one run, and what is refused."""

import json

import pytest

from mlx_tx.cli import main


def test_list_names_clause_and_target(capsys):
    assert main(["mutants", "--list", "--format", "json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert len(rows) >= 30
    assert {"name", "clause", "target", "about"} <= set(rows[0])


def test_unknown_name_is_wrong_usage(capsys):
    assert main(["mutants", "--only", "no-such-mutant"]) == 2
    assert "no-such-mutant" in capsys.readouterr().err


def test_killed_mutant_and_passing_code_are_success(capsys):
    assert main(["mutants", "--only", "window-zero-accepted", "--jobs", "1", "--format", "json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["unmutated_failures"] == []
    (row,) = report["mutants"]
    assert (row["outcome"], row["by"]) == ("killed", ["SWA-1/below-one[window=0]"])


@pytest.mark.parametrize("outcome", ["survived", "broken"])
def test_mutant_that_lives_is_a_failure(outcome, monkeypatch, capsys):
    from mlx_tx_conformance import mutants

    verdict = mutants.Verdict("window-zero-accepted", "SWA-1", outcome, ran=3)
    monkeypatch.setattr(mutants, "run_mutants", lambda chosen, **rest: iter([verdict]))
    monkeypatch.setattr(mutants, "unmutated", lambda chosen: iter(()))
    assert main(["mutants", "--only", "window-zero-accepted"]) == 1
    assert outcome.upper() in capsys.readouterr().out


def test_unmutated_code_that_fails_is_a_failure(monkeypatch, capsys):
    from mlx_tx_conformance import mutants

    monkeypatch.setattr(mutants, "run_mutants", lambda chosen, **rest: iter(()))
    monkeypatch.setattr(mutants, "unmutated", lambda chosen: iter([("t", "MSK-1/x", "wrong")]))
    assert main(["mutants", "--only", "window-zero-accepted"]) == 1
    assert "MSK-1/x" in capsys.readouterr().out
