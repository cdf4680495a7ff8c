"""What the README shows is run: its Python, its YAML, its commands, and its matrix against the spec."""

import importlib
import re
import shlex
import sys
import textwrap
from pathlib import Path

import pytest

from mlx_tx.cli import make_parser
from mlx_tx_conformance.data import spec_root
from mlx_tx_conformance.spec import load_spec

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text("utf-8")
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text("utf-8")


def blocks(language, text=README):
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


@pytest.fixture
def mine(tmp_path, monkeypatch):
    """mine.py of the README in a folder of its own, importable."""
    (tmp_path / "mine.py").write_text(next(b for b in blocks("python") if "# mine.py" in b), "utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    yield tmp_path / "mine.py"
    sys.modules.pop("mine", None)


def test_hold_accepts_the_attention_of_the_readme(mine):
    names = {}
    exec(next(b for b in blocks("python") if "from mlx_tx_conformance import hold" in b), names)
    names["test_masks"]()


def test_the_attention_of_the_readme_breaks_the_clause_that_is_named(mine):
    from mlx_tx_conformance import hold

    with pytest.raises(AssertionError, match="SEM-1"):
        hold(importlib.import_module("mine").attention, clauses=["SEM-1", "ATT-*"], dtypes=["float32"])


@pytest.mark.parametrize("text", [b for b in blocks("python") if "import mlx_tx\n" in b])
def test_python_of_the_readme_runs(text):
    exec(text, {})


def test_case_of_the_readme_loads(tmp_path):
    (tmp_path / "sources.yaml").write_text((spec_root() / "sources.yaml").read_text("utf-8"), "utf-8")
    (case,) = blocks("yaml")
    head = """\
        clause: TST-1
        title: A clause
        text: It must hold.
        source: [{document: transformer-and-self-attention, statement: SWA-1}]
        cases:
        """
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "tst-1.yaml").write_text(textwrap.dedent(head) + case, "utf-8")
    assert len(load_spec(tmp_path).cases) == 3


def commands():
    found = re.findall(r"`(mlx-tx [a-z][^`\n]*)`", README + CONTRIBUTING)
    for text in (README, CONTRIBUTING):
        for block in blocks("bash", text):
            found += [line.split("  #")[0] for line in block.splitlines() if line.startswith("mlx-tx ")]
    return sorted(set(found))


@pytest.mark.parametrize("command", commands())
def test_command_is_one_that_the_program_takes(command):
    make_parser().parse_args(shlex.split(command)[1:])


def test_matrix_has_every_clause():
    matrix = README.split("<!-- matrix -->")[1].split("<!-- /matrix -->")[0]
    assert re.findall(r"^\| ([A-Z0-9]+-\d+) \|", matrix, re.MULTILINE) == [c.id for c in load_spec(spec_root()).clauses]


def test_the_two_commands_are_marked_for_ci():
    for name, words in (("conform", "mlx-tx conform"), ("test", "-m pytest")):
        command = README.split(f"<!-- command: {name} -->\n```bash\n")[1].split("```")[0]
        assert words in command
        assert "\n" not in command.strip()
