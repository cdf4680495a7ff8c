"""bench --counts: the object it prints, its schema, and what is asked of it that it cannot do."""

from __future__ import annotations

import json
from importlib.resources import files

import jsonschema
import pytest

from mlx_tx.cli import main, make_parser
from mlx_tx.cli.bench_counts import KERNELS, chosen_cases
from mlx_tx_conformance import emulator
from mlx_tx_conformance.emulator import counts
from mlx_tx_conformance.emulator.counts import CountCase, count_rows

SMALL = ("--counts", "--kernel", "forward", "--lengths", "64", "--head-size", "64", "--dtype", "float16")


def parsed(*arguments: str):
    return chosen_cases(make_parser().parse_args(["bench", "--counts", *arguments]))


@pytest.fixture(scope="module")
def validator():
    content = json.loads((files("mlx_tx_conformance") / "report" / "schemas" / "counts.json").read_text())
    jsonschema.Draft202012Validator.check_schema(content)
    return jsonschema.Draft202012Validator(content)


@pytest.fixture
def cheap(monkeypatch):
    """Counts that cost nothing: the sizes of a case, so that it can be told which case they are of."""
    made = emulator.Counts(mma=1, exp=2, barriers=3, threadgroup_bytes=4, bytes_read={"q": 5}, bytes_written={"o": 6})
    names = [("mlx_tx", "forward"), ("mlx_tx", "decode"), ("mlx", "forward"), ("unfused", "forward")]
    monkeypatch.setattr(counts, "COUNTERS", dict.fromkeys(names, lambda case, options: made))


def test_the_object_holds_the_rows_of_the_kernels_and_fits_its_schema(capsys, validator):
    assert main(["bench", *SMALL, "--no-causal", "--format", "json"]) == 0
    report = json.loads(capsys.readouterr().out)
    validator.validate(report)
    assert [row["implementation"] for row in report["rows"]] == ["mlx_tx", "mlx", "unfused"]
    assert report["rows"] == count_rows([CountCase("forward", "float16", 64, 64, 64, 2, 2)])
    ours = report["rows"][0]
    # Every query once; two tiles of 32 queries, each reading all keys and values; what is left are parameters.
    arrays = 2 * 64 * 64 * 2 * (1 + 2 + 2)
    assert arrays < ours["device_bytes_read"] < 2 * arrays
    assert ours["device_bytes_written"] == 2 * 64 * (64 * 2 + 4)
    assert ours["mma"] == 2 * (64 // 8) ** 2 * 2 * (64 // 8)
    assert report["header"]["device"] == "emulated"


def test_the_schema_refuses_what_is_no_such_report(cheap, capsys, validator):
    assert main(["bench", *SMALL, "--format", "json"]) == 0
    good = capsys.readouterr().out
    for spoil in (
        lambda r: r.pop("rows"),
        lambda r: r["rows"][0].pop("mma"),
        lambda r: r["rows"][0].update(seconds=1),
        lambda r: r["rows"][0].update(device_bytes_read=-1),
        lambda r: r["rows"][0].update(kernel="backward"),
        lambda r: r["header"].update(device="gpu"),
    ):
        report = json.loads(good)
        assert not list(validator.iter_errors(report))
        spoil(report)
        assert list(validator.iter_errors(report))


def test_what_has_nothing_to_count_is_said(cheap, capsys, validator):
    assert main(["bench", "--counts", "--lengths", "64", "--head-size", "64", "--format", "json"]) == 0
    report = json.loads(capsys.readouterr().out)
    validator.validate(report)
    there = {(row["kernel"], row["implementation"]) for row in report["rows"]}
    absent = {(entry["kernel"], entry["implementation"]) for entry in report["left_out"]}
    assert there | absent == {(k, i) for k in KERNELS for i in ("mlx_tx", "mlx", "unfused")}
    assert not there & absent
    assert main(["bench", "--counts", "--kernel", "dq", "--implementation", "mlx", "--lengths", "64"]) == 3
    assert "mlx has no kernel" in capsys.readouterr().err


def test_options_choose_the_cases():
    found = parsed("--lengths", "64", "96", "--head-size", "64", "80", "--dtype", "float32", "bfloat16", "--causal")
    forward = [case for case in found if case.kernel == "forward"]
    assert len(forward) == 8
    assert {case.causal for case in forward} == {True}
    assert all(case.T_q == case.T_kv for case in forward)
    assert len(parsed("--kernel", "forward", "--lengths", "64", "--head-size", "64")) == 2  # causal and not
    (decode,) = parsed("--kernel", "decode", "--lengths", "640", "--head-size", "64", "--heads", "8", "--kv-heads", "1")
    assert decode == CountCase("decode", "float16", 64, 1, 640, 8, 1)
    (few,) = parsed("--kernel", "decode", "--lengths", "640", "--head-size", "64", "--queries", "4", "--causal")
    assert (few.T_q, few.N_q, few.N_kv, few.causal) == (4, 4, 2, True)


def test_without_options_there_is_a_set_for_every_kernel():
    assert {case.kernel for case in parsed()} == set(KERNELS)
    assert {case.D for case in parsed("--kernel", "dq")} == {64, 128}


@pytest.mark.parametrize(
    ("form", "line"), [("pretty", "forward  mlx_tx"), ("md", "| forward | mlx_tx | float16 | 64 |")]
)
def test_tables_have_a_line_for_each_row_and_say_what_counts_are_not(cheap, form, line, capsys):
    assert main(["bench", *SMALL, "--format", form]) == 0
    shown = capsys.readouterr().out
    assert shown.count(line) == 2
    assert "nothing about time" in shown


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--counts", "--target", "mx.fast"], "--target"),
        (["--counts", "--gradients"], "--gradients"),
        (["--counts", "--device", "cpu"], "--device"),
        (["--kernel", "forward"], "--kernel"),
        (["--queries", "2"], "--queries"),
        (["--head-size", "8", "16"], "several --head-size"),
        (["--format", "md"], "--format md"),
        (["--counts", "--heads", "3", "--kv-heads", "2", "--lengths", "64"], "N_q must be a multiple of N_kv"),
    ],
)
def test_options_of_the_other_form_are_wrong_usage(arguments, named, capsys):
    assert main(["bench", *arguments]) == 2
    assert named in capsys.readouterr().err


def test_without_a_compiler_it_is_3_and_says_what_to_install(monkeypatch, capsys):
    monkeypatch.setattr(emulator, "unavailable", lambda: "apt install g++")
    assert main(["bench", *SMALL]) == 3
    assert "apt install g++" in capsys.readouterr().err
