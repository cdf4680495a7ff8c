"""doctor and bench: what they look at and what they say."""

from __future__ import annotations

import json

import pytest

from mlx_tx.cli import doctor, main


def test_doctor_is_0_where_what_is_needed_is_there(capsys):
    assert main(["doctor", "--format", "json"]) == 0
    found = {entry["what"]: entry for entry in json.loads(capsys.readouterr().out)}
    names = ("python", "mlx", "numpy", "spec", "cpu", "gpu", "blas", "float32 product", "c++")
    for name in (*names, "emulated", "compile cache", "metal headers"):
        assert found[name]["found"], name


def test_doctor_names_what_the_emulated_device_lacks_and_where_the_cache_is(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("MLX_TX_CACHE", str(tmp_path / "kept here"))
    monkeypatch.setattr("mlx_tx_conformance.emulator.unavailable", lambda: "it needs a compiler: apt install g++")
    assert main(["doctor", "--format", "json"]) == 0
    found = {entry["what"]: entry for entry in json.loads(capsys.readouterr().out)}
    assert not found["emulated"]["fine"]
    assert "apt install g++" in found["emulated"]["note"]
    assert found["compile cache"]["found"].startswith(str(tmp_path / "kept here"))


def test_doctor_is_3_and_says_what_to_install_where_it_is_not(capsys, monkeypatch):
    monkeypatch.setattr(doctor, "PACKAGES", (*doctor.PACKAGES, ("no-such-package", True, "everything")))
    assert main(["doctor"]) == 3
    assert "pip install no-such-package" in capsys.readouterr().out


def test_what_is_optional_may_be_missing(capsys, monkeypatch):
    monkeypatch.setattr(doctor, "PACKAGES", (*doctor.PACKAGES, ("no-such-package", False, "more")))
    assert main(["doctor"]) == 0
    assert "no  no-such-package" in capsys.readouterr().out


def bench(*arguments: str) -> int:
    small = ["--lengths", "16", "32", "--heads", "2", "--head-size", "8", "--target", "mx.fast"]
    return main(["bench", *small, "--format", "json", *arguments])


def test_bench_counts_what_the_formula_says(capsys):
    assert bench("--no-times") == 0
    rows = json.loads(capsys.readouterr().out)["results"]
    assert [row["T"] for row in rows] == [16, 32]
    assert all("ms" not in row for row in rows)
    for row in rows:
        products = 4 * 2 * row["T"] ** 2 * 8
        assert products <= row["flops"] <= 1.5 * products


@pytest.mark.parametrize("extra", [["--causal"], ["--gradients"], ["--dtype", "bfloat16"]])
def test_bench_times_what_it_is_asked(extra, capsys):
    assert bench(*extra) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["header"]["device"] in ("cpu", "gpu")
    assert all(row["ms"] > 0 for row in report["results"])


def test_the_table_has_a_line_for_each_target_and_length(capsys):
    assert main(["bench", "--no-times", "--lengths", "16", "--heads", "1", "--head-size", "8"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[1:]] == ["target", "mlx_tx:composed", "mlx_tx:blockwise", "mx.fast"]
    assert lines[0].startswith(("cpu", "gpu"))
