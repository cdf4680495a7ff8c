"""The spec command on a tiny spec."""

from __future__ import annotations

import json

import pytest

from mlx_tx.cli import main

from ..conformance.runner.miniatures import tiny_spec


@pytest.fixture
def spec(tmp_path):
    return tiny_spec(tmp_path / "spec")


def run(spec, *arguments: str) -> int:
    return main(["spec", *arguments, "--spec", str(spec)])


def test_list_counts_the_cases_of_each_clause(spec, capsys):
    assert run(spec, "list") == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in lines] == [["ATT-3", "1"], ["MSK-1", "3"], ["2", "clauses,"]]


def test_list_as_json_and_by_case(spec, capsys):
    assert run(spec, "list", "--clause", "MSK-*", "--format", "json") == 0
    assert [(c["clause"], c["cases"]) for c in json.loads(capsys.readouterr().out)] == [("MSK-1", 3)]
    assert run(spec, "list", "--cases", "--clause", "MSK-1/equals-oracle") == 0
    assert capsys.readouterr().out.split() == ["MSK-1/equals-oracle[float32]", "MSK-1/equals-oracle[float16]"]


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        ("MSK-1", "MSK-1/equals-oracle  equals_oracle, 2 forms"),
        ("MSK-1", "rests on suite MSK-1"),
        ("MSK-1/equals-oracle", "MSK-1/equals-oracle[float16]"),
        ("MSK-1/equals-oracle[float16]", "dtype   float16"),
        ("MSK-1/window-zero", "'type': 'ValueError'"),
    ],
)
def test_show_says_what_a_clause_or_case_holds(spec, wanted, said, capsys):
    assert run(spec, "show", wanted) == 0
    assert said in capsys.readouterr().out


def test_lint_finds_a_typo_with_file_and_line(spec, capsys):
    path = spec / "mask" / "msk-1.yaml"
    path.write_text(path.read_text().replace("causal: true", "casual: true"))
    assert run(spec, "lint") == 1
    assert "msk-1.yaml:7: " in capsys.readouterr().out
    assert run(spec, "lint", "--format", "json") == 1
    assert json.loads(capsys.readouterr().out)[0]["line"] == 7


def test_a_new_case_and_a_new_clause_load_and_run(spec, capsys):
    assert run(spec, "new", "MSK-1/my-case") == 0
    assert "msk-1.yaml:" in capsys.readouterr().out
    assert run(spec, "new", "MSK-2", "--title", "Another mask") == 0
    assert "list in sources.yaml the statement, paper or report that it rests on, then run" in capsys.readouterr().out
    assert run(spec, "lint") == 1
    (finding,) = capsys.readouterr().out.splitlines()[:-1]
    file, number = finding.split(":")[:2]
    lines = (spec.parent / file).read_text().splitlines()
    assert file.endswith("mask/msk-2.yaml")
    assert "sources.yaml first; until then lint says" in lines[int(number) - 2]
    assert run(spec, "list") == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines if line.startswith("MSK")] == ["MSK-1", "MSK-2"]
    assert int(next(line for line in lines if line.startswith("MSK-1")).split()[1]) > 3


def test_coverage_has_gaps_in_a_tiny_spec(spec, capsys):
    assert run(spec, "coverage", "--format", "json") == 1
    content = json.loads(capsys.readouterr().out)
    assert content["gaps"]
    assert content["complete"] is False


def test_words_lists_what_a_case_may_say(capsys):
    assert main(["spec", "words"]) == 0
    text = capsys.readouterr().out
    assert all(word in text for word in ("equals_oracle(", "attention(", "private_channels", "where\n"))
    assert main(["spec", "words", "checks"]) == 0
    assert "private_channels" not in capsys.readouterr().out
