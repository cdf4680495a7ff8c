"""kernels check: statuses and what is printed; the rules have tests of their own."""

from __future__ import annotations

import json

from mlx_tx.cli import main

BODY = "uint i = thread_position_in_grid.x;\nout[i] = inp[i];\n"


def test_a_source_that_keeps_to_the_rules_is_0(tmp_path, capsys):
    (tmp_path / "copy.metal").write_text(BODY)
    assert main(["kernels", "check", str(tmp_path)]) in (0, 3), "3 where libclang is not there to look"
    assert "1 checked, 0 errors" in capsys.readouterr().out


def test_a_source_that_breaks_one_is_1(tmp_path, capsys):
    (tmp_path / "wide.metal").write_text("double x = 1;\n" + BODY)
    assert main(["kernels", "check", str(tmp_path / "wide.metal"), "--format", "json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert report["errors"] == 1
    assert report["findings"][0]["rule"] == "double"


def test_nothing_checked_is_not_a_pass(tmp_path, capsys):
    assert main(["kernels", "check", str(tmp_path)]) == 3
    assert "nothing was checked" in capsys.readouterr().err


def test_a_missing_file_is_2(tmp_path, capsys):
    assert main(["kernels", "check", str(tmp_path / "none.metal")]) == 2
    assert "none.metal" in capsys.readouterr().err
