"""A small spec in a folder of its own: two clauses, and what they cite."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from textwrap import dedent

import pytest

from mlx_tx_conformance.spec import Case, Spec, load_spec
from mlx_tx_conformance.spec.expand import expand
from mlx_tx_conformance.spec.grammar import read_clause
from mlx_tx_conformance.spec.reader import parse

SOURCES = """
documents:
  - id: notes
    title: Notes
    statements:
      - {id: S-1, scope: attention, says: Later keys are hidden.}
      - {id: S-2, scope: model, says: Layers are stacked.}
papers:
  - {id: vaswani-2017, cite: Vaswani et al. 2017, title: Attention Is All You Need}
reports:
  - {id: "mlx#1", also: ["mlx#2"], scope: attention, says: Something was wrong.}
"""
CAUSAL = """
clause: MSK-1
title: Causal mask
text: Query i sees key j only if j <= i + q_offset.
source: [{document: notes, statement: S-1}, {paper: vaswani-2017, where: "3.2.3"}]
defaults:
  shapes: {B: 2, N_q: 4, N_kv: 2, T_q: 9, T_kv: 12, D: 16}
  call: {op: attention, causal: true}
cases:
  - id: equals-oracle
    call: {outputs: [out, lse]}
    vary: {dtype: [float32, bfloat16], T_q: [1, 9]}
    check: equals_oracle
  - id: later-keys-invisible
    source: [{report: "mlx#2"}]
    check: {unchanged: {perturb: [k, v], where: "j > i + T_kv - T_q"}}
"""
WINDOW = """
clause: SWA-1
title: Sliding window
text: Query i sees key j only if 0 <= i' - j < W.
source: [{document: notes, statement: S-1}]
cases:
  - id: window-zero
    call: {window: 0}
    expect: {raises: {type: ValueError, names: window}}
"""

Write = Callable[..., Path]


@pytest.fixture
def write_spec(tmp_path: Path) -> Write:
    """Write a spec: keyword arguments are texts by file, ``mask__msk_1`` for ``mask/msk-1.yaml``."""

    def write(sources: str = SOURCES, **files: str) -> Path:
        root = tmp_path / "spec"
        root.mkdir(exist_ok=True)
        (root / "sources.yaml").write_text(sources, encoding="utf-8")
        for name, text in files.items():
            subject, _, stem = name.partition("__")
            (root / subject).mkdir(exist_ok=True)
            (root / subject / f"{stem.replace('_', '-')}.yaml").write_text(text, encoding="utf-8")
        return root

    return write


@pytest.fixture
def root(write_spec: Write) -> Path:
    """A folder with the two example clauses."""
    return write_spec(mask__msk_1=CAUSAL, window__swa_1=WINDOW)


@pytest.fixture
def spec(root: Path) -> Spec:
    """The two example clauses, loaded."""
    return load_spec(root)


def clause_text(cases: str, defaults: str = "") -> str:
    """A whole clause around some cases (as a YAML list) and defaults (as a YAML mapping)."""
    head = "clause: TST-1\ntitle: A test\ntext: Words.\nsource: [{document: notes, statement: S-1}]\n"
    below = f"defaults:\n{indented(defaults)}" if defaults else ""
    return f"{head}{below}cases:\n{indented(cases)}"


def indented(text: str) -> str:
    return "".join(f"  {line}\n" for line in dedent(text).strip().splitlines())


def faults(cases: str, defaults: str = "") -> list[str]:
    """What keeps a clause from loading, one message each."""
    _, findings = read_clause(parse(clause_text(cases, defaults), "spec/test/tst-1.yaml"), "test")
    return [str(finding) for finding in findings]


def expanded(cases: str, defaults: str = "") -> list[Case]:
    """The expanded cases of a clause that loads."""
    clause, findings = read_clause(parse(clause_text(cases, defaults), "spec/test/tst-1.yaml"), "test")
    assert clause is not None, findings
    return [case for template in clause.templates for case in expand(template)]


def only(cases: str, defaults: str = "") -> Case:
    """The one case of a clause."""
    (case,) = expanded(cases, defaults)
    return case
