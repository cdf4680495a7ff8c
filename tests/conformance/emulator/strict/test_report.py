"""Reports: what `mlx-tx kernels check` prints, with and without libclang."""

from __future__ import annotations

import json

import pytest

from mlx_tx_conformance.emulator.strict import (
    Finding,
    LibclangMissingError,
    check_kernel,
    check_paths,
    compiler,
    main_check,
)

from .kernels import GOOD, SOURCE, add, plant

FILE = """#include <metal_stdlib>
using namespace metal;
template <typename T>
[[kernel]] void twice(device T* x [[buffer(0)]], uint i [[thread_position_in_grid]]) {
  x[i] = x[i] + x[i];
}
instantiate_kernel("twice_half", twice, half)
template [[host_name("twice_float")]] [[kernel]] void twice<float>(device float*, uint);
"""


@pytest.fixture
def without_libclang(monkeypatch):
    def missing():
        raise LibclangMissingError(compiler.MISSING)

    monkeypatch.setattr(compiler, "_library", missing)


def test_accepted_kernel():
    report = main_check([GOOD])
    assert report.ok
    assert report.findings == {"row_sums": ()}
    assert report.threadgroup_bytes == {"row_sums T=bfloat16 D=64 CAUSAL=True": 1120}
    assert report.pretty().startswith("row_sums: accepted\n")
    assert report.pretty().endswith("1 checked, 0 errors, 0 warnings")


def test_rejected_kernel():
    report = main_check([add("double x = 1.0f;")])
    assert not report.ok
    assert (report.errors, report.warnings) == (1, 0)
    assert "row_sums: rejected\n  source:15: error: `double` [double]\n" in report.pretty()


def test_a_warning_does_not_reject():
    report = main_check([plant("fast::exp2(first - maximum)", "trunc(first - maximum)")])
    assert (report.ok, report.errors, report.warnings) == (True, 0, 1)


def test_json_says_the_same():
    report = main_check([add("double x = 1.0f;")])
    said = json.loads(report.json())
    assert (said["ok"], said["checked"], said["errors"], said["warnings"]) == (False, 1, 1, 0)
    (finding,) = said["findings"]
    assert (finding["checked"], finding["rule"], finding["where"], finding["line"]) == (
        "row_sums",
        "double",
        "source",
        15,
    )
    assert finding["hint"]


def test_without_libclang_the_word_rules_run_and_the_report_says_so(without_libclang):
    report = main_check([GOOD, add("double x = 1.0f;")])
    assert report.errors == 1
    assert "pip install libclang" in report.unsupported
    assert "unsupported: the strict check needs libclang" in report.pretty()
    assert not main_check([GOOD]).ok


def test_without_libclang_a_full_check_refuses(without_libclang):
    with pytest.raises(LibclangMissingError, match="pip install libclang"):
        check_kernel(GOOD)


def test_paths_of_files_and_folders(tmp_path):
    (tmp_path / "good.metal").write_text(FILE)
    (tmp_path / "bad.metal").write_text(FILE.replace("x[i] + x[i]", "x[i] + y"))
    (tmp_path / "body.metal").write_text(SOURCE)
    (tmp_path / "notes.txt").write_text("double")
    report = check_paths([tmp_path])
    rules = {name.rsplit("/", 1)[-1]: [(f.rule, f.line) for f in group] for name, group in report.findings.items()}
    assert rules == {"good.metal": [], "bad.metal": [("undeclared", 5)], "body.metal": []}
    assert check_paths([tmp_path / "good.metal"]).ok


def test_a_path_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="no such file or folder"):
        check_paths([tmp_path / "absent.metal"])


def test_a_finding_must_name_a_rule():
    with pytest.raises(ValueError, match="rule must be one of RULES; got 'nonsense'"):
        Finding("source", 1, "nonsense", "message")
