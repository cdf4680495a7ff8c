"""Every form of the report on one small run."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from dataclasses import replace
from importlib.resources import files

import jsonschema
import pytest

from mlx_tx_conformance.ledger import divergences
from mlx_tx_conformance.outcome import VERDICTS
from mlx_tx_conformance.report import FORMATS, pretty, render
from mlx_tx_conformance.report.json_report import as_object
from mlx_tx_conformance.runner import Run, conform, read_journal, run_of

from ..runner.miniatures import mini_plan
from ..runner.test_journal import row, write

HEADER = {
    "suite": "0.1.0", "device": "cpu", "device_name": "A CPU", "blas": "OpenBLAS", "platform": "Linux", "machine": "m",
    "python": "3.11", "versions": {"mlx": "0.32.4"}, "seed": 0, "spec_hash": "ab" * 32, "targets": ["one", "two"],
    "cases": 3, "started": "2030-01-01T00:00:00+00:00",
}  # fmt: skip


def run(*rows, truncated=(), headers=(HEADER,)) -> Run:
    return Run(tuple(headers), tuple(rows), tuple(truncated), 1.5)


@pytest.fixture
def mixed() -> Run:
    return run(
        row("MSK-1/a", "pass", "one") | {"headroom": 0.25},
        row("MSK-1/a", "fail", "two") | {"message": "out[0] = 1 | 2, expected 0", "headroom": "inf"},
        row("MSK-1/b", "unsupported", "one") | {"message": "no argument window"},
        row("MSK-1/b", "weak", "two") | {"message": "three times the plain error", "headroom": 0.5},
        row("GQA-1/a", "error", "one") | {"message": "timed out after 1 s"},
        row("GQA-1/a", "waived", "two") | {"message": "waived until 2031-01-01"},
    )


def schema(name: str) -> jsonschema.Draft202012Validator:
    content = json.loads((files("mlx_tx_conformance") / "report" / "schemas" / f"{name}.json").read_text())
    jsonschema.Draft202012Validator.check_schema(content)
    return jsonschema.Draft202012Validator(content)


@pytest.mark.parametrize("form", FORMATS)
def test_every_form_names_device_and_blas_and_has_no_local_path(form, mixed):
    text = render(mixed, form)
    assert "A CPU" in text
    assert "OpenBLAS" in text


def test_an_unknown_form_is_refused(mixed):
    with pytest.raises(ValueError, match="got 'html'"):
        render(mixed, "html")


def test_pretty_has_the_matrix_the_failures_and_what_to_type(mixed):
    text = render(mixed, "pretty")
    lines = text.splitlines()
    (clause,) = [line for line in lines if line.startswith("MSK-1 ")]
    assert clause.split() == ["MSK-1", "1", "(1", "unsupported)", "1/2", "fail", "0.5"]
    assert "mlx-tx explain 'MSK-1/a' --target two" in text
    assert "out[0] = 1 | 2, expected 0" in text
    assert lines[-1] == "1 pass, 1 weak, 1 fail, 1 error, 1 unsupported, 1 waived in 1.5 s: does not conform"


def test_pretty_shows_a_few_failures_of_a_clause_and_counts_the_rest():
    text = render(run(*(row(f"A-1/c{n}", "fail", order=n) for n in range(10))), "pretty")
    assert text.count("mlx-tx explain") == pretty.MOST_SHOWN
    assert "and 7 more of A-1" in text


def test_no_colour_without_a_terminal(mixed, capsys, monkeypatch):
    pretty.show(mixed)
    assert "\x1b[" not in capsys.readouterr().out
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setenv("NO_COLOR", "1")
    assert not pretty.wants_colour()


@pytest.mark.parametrize("form", FORMATS)
def test_every_form_says_what_an_emulated_verdict_does_not_prove(form):
    emulated = run(row("A-1/a", device="emulated"), headers=({**HEADER, "device": "emulated"},))
    assert "does not prove that Apple" in render(emulated, form)
    assert "does not prove" not in render(run(row("A-1/a")), form)


def test_emulated_results_stand_in_a_column_of_their_own():
    text = render(run(row("A-1/a", device="emulated"), row("A-1/a", device="gpu")), "md")
    assert "mini, metal (emulated)" in text
    assert "mini, gpu" in text


@pytest.mark.parametrize(
    ("verdicts", "status", "meaning"),
    [
        (["pass", "weak", "unsupported", "waived"], 0, ": conforms"),
        (["pass", "fail", "error"], 1, "does not conform"),
        (["pass", "error"], 3, "errored"),
    ],
)
def test_what_the_exit_status_means_is_said(verdicts, status, meaning):
    made = run(*(row(f"A-1/{n}", verdict) for n, verdict in enumerate(verdicts)))
    assert made.exit_code == status
    assert meaning in render(made, "pretty")


def test_json_is_header_summary_results_and_fits_its_schema(mixed):
    content = json.loads(render(mixed, "json"))
    schema("report").validate(content)
    assert list(content) == ["header", "summary", "results"]
    assert content["summary"] == dict.fromkeys(VERDICTS, 1)
    assert [r["verdict"] for r in content["results"]] == ["pass", "fail", "unsupported", "weak", "error", "waived"]


def test_the_schema_refuses_what_is_not_a_report(mixed):
    for spoil in (
        lambda c: c.pop("summary"),
        lambda c: c["results"][0].pop("headroom"),
        lambda c: c["results"][0].update(verdict="skipped"),
        lambda c: c["results"][0].update(extra=1),
        lambda c: c["header"].update(spec_hash="short"),
    ):
        content = as_object(mixed)
        content = json.loads(json.dumps(content))
        spoil(content)
        assert list(schema("report").iter_errors(content))


def test_a_real_run_fits_both_schemas(tmp_path):
    out = tmp_path / "run.jsonl"
    made = conform(mini_plan(tmp_path, ["pass", "fail", "crash", "unsupported"]), out=out)
    schema("report").validate(json.loads(render(made, "json")))
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    for line in lines:
        schema("journal").validate(line)
    assert list(schema("journal").iter_errors({**lines[1], "verdict": "skipped"}))
    report = json.loads(render(made, "json"))
    assert report["results"] == [{k: v for k, v in x.items() if k not in ("kind", "order")} for x in lines[1:-1]]
    assert report["summary"] == lines[-1]["summary"]


def test_a_merged_report_keeps_every_header(mixed):
    other = {**HEADER, "device_name": "Another"}
    content = json.loads(render(replace(mixed, headers=(HEADER, other)), "json"))
    schema("report").validate(content)
    assert [part["device_name"] for part in content["header"]["runs"]] == ["A CPU", "Another"]


def test_markdown_is_a_matrix_with_the_divergences(mixed):
    text = render(mixed, "md")
    assert "| clause | one, cpu | two, cpu |" in text
    assert "| MSK-1 | ✅ 1 (1 unsupported) | ❌ 1/2 fail |" in text
    assert "| GQA-1 | 💥 1/1 error | 🟡 1/1 waived |" in text
    assert "| MSK-1 | two, cpu | 1 of 2 | `MSK-1/a`: out[0] = 1 \\| 2, expected 0 |" in text


def test_the_ledger_is_what_failed_waived_or_not(mixed):
    assert [(d.clause, d.target, d.failed, d.ran) for d in divergences(mixed)] == [
        ("MSK-1", "two", 1, 2),
        ("GQA-1", "two", 1, 1),
    ]
    assert divergences(run(row("A-1/a"))) == []


def test_junit_counts_and_escapes(mixed):
    top = ET.fromstring(render(mixed, "junit"))
    totals = {name: top.get(name) for name in ("tests", "failures", "errors", "skipped", "time")}
    assert totals == {"tests": "6", "failures": "1", "errors": "1", "skipped": "2", "time": "0.600"}
    suites = {suite.get("name"): suite for suite in top.iter("testsuite")}
    two = suites["two, cpu"]
    assert (two.get("tests"), two.get("failures"), two.get("skipped")) == ("3", "1", "1")
    (failure,) = two.iter("failure")
    assert failure.get("message") == "out[0] = 1 | 2, expected 0"


def test_junit_survives_what_xml_cannot_write():
    text = render(run(row("A-1/a", "error") | {"message": "\x00\x1b[31m<&>"}), "junit")
    (error,) = ET.fromstring(text).iter("error")
    assert error.get("message").endswith("[31m<&>")


@pytest.mark.parametrize("form", FORMATS)
def test_an_incomplete_run_says_so_in_every_form(form, tmp_path):
    path = write(tmp_path / "a", [row("A-1/x")], footer=False)
    assert "no footer" in render(run_of([read_journal(path)]), form)


def test_the_last_line_says_why_a_run_without_a_failure_does_not_conform():
    def last(*rows, **rest):
        return render(run(*rows, **rest), "pretty").splitlines()[-1]

    assert last(row("A-1/a"), truncated=["a: no footer"]) == "1 pass in 1.5 s: incomplete (a: no footer)"
    both = last(row("A-1/a", "error"), truncated=["a: no footer"])
    assert both == "1 error in 1.5 s: errored, and incomplete (a: no footer)"
    idle = row("A-1/a", "unsupported") | {"message": "no argument causal"}
    assert last(idle) == (
        "1 unsupported in 1.5 s: nothing was run: every case is unsupported, for example A-1/a: no argument causal"
    )


def test_a_target_that_supports_nothing_is_named_beside_one_that_conforms():
    idle = row("A-1/a", "unsupported", "two") | {"message": "no argument causal"}
    *_, named, last = render(run(row("A-1/a", target="one"), idle), "md").splitlines()
    assert named.startswith("two, cpu: nothing was run: every case is unsupported")
    assert last.endswith(": conforms")
