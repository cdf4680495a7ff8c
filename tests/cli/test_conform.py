"""conform, report, diff and explain, from one end to the other on a tiny spec."""

from __future__ import annotations

import json
import sys
import xml.etree.ElementTree as ET

import pytest

from mlx_tx.cli import main
from mlx_tx_conformance.runner import default_jobs, read_journal

from ..conformance.runner.miniatures import RIGHT, UPPER_LEFT, tiny_spec


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A folder with a spec and two attentions, as the current one."""
    monkeypatch.chdir(tmp_path)
    tiny_spec(tmp_path / "spec")
    (tmp_path / "right.py").write_text(RIGHT)
    (tmp_path / "wrong.py").write_text(UPPER_LEFT)
    return tmp_path


def conform(*arguments: str) -> int:
    return main(["conform", "--spec", "spec", "--jobs", "1", "--quiet", *arguments])


def test_json_on_stdout_is_one_object(project, capsys):
    assert conform("--target", "right.py", "--target", "wrong.py", "--format", "json") == 1
    report = json.loads(capsys.readouterr().out)
    assert report["header"]["targets"] == ["right.py", "wrong.py"]
    assert report["summary"]["fail"] == 2
    assert len(report["results"]) == 8
    assert {r["target"] for r in report["results"] if r["verdict"] == "fail"} == {"wrong.py"}


def test_plain_conform_is_mlx_tx_on_both_paths(project, capsys):
    assert conform() == 0
    out = capsys.readouterr().out
    assert "mlx_tx:composed" in out
    assert "mlx_tx:blockwise" in out
    assert out.rstrip().endswith("conforms")


def test_options_cut_the_run(project):
    assert conform("--target", "right.py", "--clause", "msk-*", "--dtype", "float16", "--out", "run.jsonl") == 0
    assert [row["case"] for row in read_journal(project / "run.jsonl").rows] == ["MSK-1/equals-oracle[float16]"]


def test_waivers_make_a_known_failure_conform(project, capsys):
    entry = "- {cases: 'MSK-1/*', device: cpu, target: wrong.py, ticket: 'https://example.org/1', until: 2999-01-01}"
    (project / "waivers.yaml").write_text(entry)
    assert conform("--target", "wrong.py", "--waivers", "waivers.yaml") == 0
    assert "2 waived" in capsys.readouterr().out


def test_progress_goes_to_stderr_unless_quiet(project, capsys, monkeypatch):
    monkeypatch.setattr("mlx_tx.cli.progress.LINE_EVERY_SECONDS", 0.0)
    assert main(["conform", "--spec", "spec", "--jobs", "1", "--target", "right.py", "--format", "json"]) == 0
    shown = capsys.readouterr()
    json.loads(shown.out)
    assert "4/4, 0 failed" in shown.err
    assert conform("--target", "right.py") == 0
    assert capsys.readouterr().err == ""


def test_journals_merge_into_one_report(project, capsys):
    conform("--target", "right.py", "--out", "a.jsonl")
    conform("--target", "wrong.py", "--out", "b.jsonl")
    capsys.readouterr()
    assert main(["report", "a.jsonl", "b.jsonl", "--format", "md"]) == 1
    text = capsys.readouterr().out
    assert "| clause | right.py, cpu | wrong.py, cpu |" in text
    assert main(["report", "a.jsonl", "b.jsonl", "--format", "junit", "--out", "junit.xml"]) == 1
    assert len(list(ET.parse(project / "junit.xml").iter("testcase"))) == 8
    assert main(["report", "a.jsonl", "a.jsonl"]) == 2
    assert "is both in" in capsys.readouterr().err


def test_a_report_of_a_run_cut_short_is_3(project, capsys):
    conform("--target", "right.py", "--out", "a.jsonl")
    lines = (project / "a.jsonl").read_text().splitlines(keepends=True)
    (project / "a.jsonl").write_text("".join(lines[:-1]))
    capsys.readouterr()
    assert main(["report", "a.jsonl"]) == 3
    assert "no footer" in capsys.readouterr().out


def test_diff_shows_what_changed_for_the_worse(project, capsys):
    conform("--target", "right.py", "--out", "a.jsonl")
    (project / "right.py").write_text(UPPER_LEFT)
    conform("--target", "right.py", "--out", "b.jsonl")
    capsys.readouterr()
    assert main(["diff", "a.jsonl", "b.jsonl"]) == 1
    assert "pass → fail" in capsys.readouterr().out
    assert main(["diff", "b.jsonl", "a.jsonl"]) == 0
    assert main(["diff", "a.jsonl", "c.jsonl"]) == 2
    conform("--target", "wrong.py", "--target", "mx.fast", "--out", "c.jsonl")
    assert main(["diff", "a.jsonl", "c.jsonl"]) == 2
    assert "no target in common" in capsys.readouterr().err


def explain(*arguments: str) -> int:
    return main(["explain", *arguments, "--spec", "spec"])


def test_explain_names_the_stage_and_writes_the_snippet(project, capsys):
    assert explain("MSK-1/equals-oracle[float32]", "--target", "wrong.py", "--snippet", "snippet.py") == 1
    assert "First stage that departs: masked." in capsys.readouterr().out
    compile((project / "snippet.py").read_text(), "snippet.py", "exec")


def test_explain_of_a_target_that_exits_says_so(project, capsys):
    (project / "leaves.py").write_text("import sys\n\ndef attention(q, k, v, scale): sys.exit(0)\n")
    assert explain("ATT-3/equals-oracle", "--target", "leaves.py") == 3
    assert "The target would end this process too" in capsys.readouterr().out


def test_explain_of_a_passing_case_is_0_and_has_no_snippet(project, capsys):
    assert explain("ATT-3/equals-oracle", "--target", "right.py") == 0
    assert "Every stage agrees" in capsys.readouterr().out
    assert explain("ATT-3/equals-oracle", "--target", "right.py", "--snippet", "s.py") == 2
    assert "no snippet" in capsys.readouterr().err


def cut(path, lines: int) -> None:
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:lines]))


def test_resume_goes_on_with_the_journals_own_plan(project, capsys):
    journal = project / "run.jsonl"
    assert conform("--target", "right.py", "--clause", "MSK-1", "--seed", "3", "--out", "run.jsonl") == 0
    cut(journal, 2)
    assert conform("--resume", "run.jsonl", "--clause", "ATT-3") == 2
    assert "it is a run of 3 cases (--clause MSK-1)" in capsys.readouterr().err
    assert read_journal(journal).truncated
    assert conform("--resume", "run.jsonl") == 0
    whole = read_journal(journal)
    assert not whole.truncated
    assert [row["clause"] for row in whole.rows] == ["MSK-1"] * 3
    assert whole.header["seed"] == 3


def test_resume_refuses_a_target_that_was_changed(project, capsys):
    assert conform("--target", "right.py", "--out", "run.jsonl") == 0
    cut(project / "run.jsonl", 2)
    (project / "right.py").write_text(UPPER_LEFT)
    assert conform("--resume", "run.jsonl") == 2
    assert "the code of right.py has changed since" in capsys.readouterr().err


@pytest.mark.parametrize("form", ["pretty", "json", "junit"])
def test_a_target_that_supports_nothing_does_not_conform(project, capsys, form):
    (project / "none.py").write_text("def attention(q, k, v): return v\n")
    assert conform("--target", "none.py", "--clause", "MSK-1", "--format", form) == 3
    shown = capsys.readouterr()
    reason = "nothing was run: every case is unsupported, for example MSK-1/equals-oracle[float32]: no argument causal"
    assert reason in (shown.out if form == "pretty" else shown.err)


def test_a_fault_seen_at_expansion_is_2_with_file_and_line(project, capsys):
    path = project / "spec" / "mask" / "msk-1.yaml"
    path.write_text(path.read_text().replace("T_q: 5", "T_q: T_q + 1"))
    for command in (["conform", "--clause", "MSK-1"], ["explain", "ATT-3/equals-oracle"]):
        assert main([*command, "--spec", "spec"]) == 2
        assert "mask/msk-1.yaml:" in capsys.readouterr().err


def test_out_on_a_folder_is_2(project, capsys):
    assert conform("--target", "right.py", "--out", "spec") == 2
    assert "--out: spec is a folder" in capsys.readouterr().err


def test_no_more_jobs_than_cores(project, monkeypatch):
    plans = []
    monkeypatch.setattr("mlx_tx_conformance.runner.conform", lambda plan, **_: plans.append(plan) or sys.exit(9))
    with pytest.raises(SystemExit):
        main(["conform", "--spec", "spec", "--jobs", "100000", "--device", "cpu"])
    assert plans[0].jobs == default_jobs()
