"""One case from a few lines of YAML, and its verdict on an implementation."""

import textwrap

import pytest

from mlx_tx_conformance.checks import run_case
from mlx_tx_conformance.data import spec_root
from mlx_tx_conformance.spec import load_spec

HEAD = """\
clause: TST-1
title: A clause for a test
text: Something must hold.
source: [{document: transformer-and-self-attention, statement: ATT-3}]
cases:
"""


@pytest.fixture
def case_of(tmp_path):
    def make(body):
        folder = tmp_path / "spec"
        (folder / "tests").mkdir(parents=True, exist_ok=True)
        (folder / "sources.yaml").write_text((spec_root() / "sources.yaml").read_text("utf-8"), "utf-8")
        text = textwrap.dedent(body).strip()
        item = "  - id: only\n" + textwrap.indent(text, "    ") + "\n"
        (folder / "tests" / "tst-1.yaml").write_text(HEAD + item, "utf-8")
        return load_spec(folder).cases[0]

    return make


@pytest.fixture
def verdict(case_of):
    """verdict(yaml, target) -> (verdict, message)"""

    def judge(body, target):
        outcome = run_case(case_of(body), target)
        return outcome.verdict, outcome.message

    return judge
