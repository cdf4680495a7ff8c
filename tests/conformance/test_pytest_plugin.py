"""The pytest plugin, run in a pytest of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
import xml.etree.ElementTree as ET
from importlib.metadata import entry_points

import pytest

from .runner.miniatures import RIGHT, UPPER_LEFT, tiny_spec

MODULE = "mlx_tx_conformance.pytest_plugin"
# An installed package has registered the plugin already; pytest refuses the same module under a second name.
INSTALLED = any(entry.value == MODULE for entry in entry_points(group="pytest11"))
PLUGIN = [*([] if INSTALLED else ["-p", MODULE]), "-p", "no:cacheprovider"]


@pytest.fixture
def project(tmp_path):
    """A project with a test of its own, two attentions and a tiny spec."""
    tiny_spec(tmp_path / "spec")
    (tmp_path / "right.py").write_text(RIGHT)
    (tmp_path / "wrong.py").write_text(UPPER_LEFT)
    (tmp_path / "test_own.py").write_text("def test_own(): pass\n")
    (tmp_path / "pytest.ini").write_text("[pytest]\nfilterwarnings = error\naddopts = --strict-markers\n")
    return tmp_path


def run(project, *arguments):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)}
    command = [sys.executable, "-P", "-m", "pytest", *PLUGIN, *arguments]
    return subprocess.run(command, cwd=project, capture_output=True, text=True, env=environment, check=False)


def test_the_package_registers_the_plugin(request):
    content = tomllib.loads((request.config.rootpath / "pyproject.toml").read_text())
    assert MODULE in content["project"]["entry-points"]["pytest11"].values()


def test_nothing_happens_unless_asked(project):
    (project / "test_own.py").write_text("import sys\ndef test_own(): assert 'mlx.core' not in sys.modules\n")
    done = run(project, "-q")
    assert done.returncode == 0, done.stdout
    assert "1 passed" in done.stdout


def test_every_case_is_an_item(project):
    done = run(project, "--mlxtx-target", "right.py", "--mlxtx-spec", "spec", "-k", "not own", "-v")
    assert done.returncode == 0, done.stdout
    assert "3 passed, 1 skipped" in done.stdout
    assert "MSK-1/equals-oracle[float16]" in done.stdout
    assert "mlx-tx: targets right.py" in done.stdout


def test_a_broken_clause_fails_with_the_message_alone(project):
    done = run(project, "--mlxtx-target", "wrong.py", "--mlxtx-spec", "spec", "--mlxtx-clause", "MSK-1")
    assert done.returncode == 1
    assert "2 failed, 1 passed, 1 skipped" in done.stdout
    assert "MSK-1/equals-oracle[float32] on wrong.py: fail: out[" in done.stdout
    assert "Traceback" not in done.stdout


def test_a_target_that_exits_does_not_end_the_session(project):
    (project / "leaves.py").write_text("import sys\n\ndef attention(q, k, v, scale, causal=False): sys.exit(4)\n")
    done = run(project, "--mlxtx-target", "leaves.py", "--mlxtx-spec", "spec")
    assert done.returncode == 1
    assert "3 failed, 1 passed, 1 skipped" in done.stdout
    assert "would end the process: SystemExit: 4" in done.stdout


def test_help_says_what_a_crash_does(project):
    assert "mlx-tx conform survives it" in " ".join(run(project, "--help").stdout.split())


def test_junit_carries_the_clause(project):
    run(project, "--mlxtx-target", "right.py", "--mlxtx-spec", "spec", "--mlxtx-clause", "ATT-3", "--junitxml", "j.xml")
    properties = {p.get("name"): p.get("value") for p in ET.parse(project / "j.xml").iter("property")}
    assert properties["clause"] == "ATT-3"
    assert properties["verdict"] == "pass"
    assert 0 <= float(properties["headroom"]) <= 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--mlxtx-target", "nothing"], "no target 'nothing'"),
        (["--mlxtx-target", "right.py", "--mlxtx-clause", "MSX-1"], "did you mean 'MSK-1'"),
    ],
)
def test_wrong_options_are_a_usage_error(project, arguments, said):
    done = run(project, "--mlxtx-spec", "spec", *arguments)
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert said in done.stderr
