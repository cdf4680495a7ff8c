"""Tiny cases, checks and targets, to test the runner without MLX, a spec or an oracle."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlx_tx_conformance.call import Unsupported
from mlx_tx_conformance.outcome import Outcome, failed, passed
from mlx_tx_conformance.runner import Plan
from mlx_tx_conformance.targets import TargetError


@dataclass(frozen=True)
class MiniCase:
    """As much of a case as the runner looks at. ``does`` says what happens when it runs."""

    id: str
    does: str = "pass"
    dtype: str = "float32"
    tags: tuple[str, ...] = ()
    seed: int = 0
    path: str = ""

    @property
    def clause(self) -> str:
        return self.id.split("/")[0]


@dataclass(frozen=True)
class MiniTarget:
    name: str
    device: str = "cpu"


def open_mini(text: str, device: str) -> MiniTarget:
    if text == "none":
        raise TargetError("no target 'none' (did you mean 'mini'?)")
    if text == "crash":
        os.kill(os.getpid(), signal.SIGSEGV)
    if text == "bug":
        raise KeyError("bug in the opener")
    return MiniTarget(text, device)


def _crash() -> Outcome:
    print("last words", flush=True)
    os.kill(os.getpid(), signal.SIGSEGV)
    raise AssertionError


def _unsupported() -> Outcome:
    raise Unsupported("no argument window")


def _bug() -> Outcome:
    raise ZeroDivisionError("in the check")


def _leave() -> Outcome:
    sys.exit("I am done")


def _interrupt() -> Outcome:
    raise KeyboardInterrupt("mine")


def _sleep() -> Outcome:
    time.sleep(60)
    return passed()


def _quick() -> Outcome:
    time.sleep(0.02)
    return passed()


def _nap() -> Outcome:
    time.sleep(0.15)
    return passed()


DEEDS: dict[str, Callable[[], Outcome]] = {
    "pass": lambda: passed(headroom=0.25, fingerprint="f", path="mini"),
    "fail": lambda: failed("out[0] = 2, expected 1", headroom=float("inf"), details={"worst": {"index": [0]}}),
    "error": lambda: Outcome("error", "not decidable: flat"),
    "weak": lambda: Outcome("weak", "three times the plain error", headroom=0.5),
    "crash": _crash,
    "exit": lambda: os._exit(5),  # type: ignore[func-returns-value]
    "unsupported": _unsupported,
    "bug": _bug,
    "leave": _leave,
    "interrupt": _interrupt,
    "sleep": _sleep,
    "quick": _quick,
    "nap": _nap,
}


def check_mini(case: Any, target: Any) -> Outcome:
    if case.does == "seed":
        return failed(f"seed {case.seed}")
    if case.does == "fails-on-other" and target.name == "other":
        return failed("the other one")
    if case.does == "crash-other" and target.name == "other":
        return _crash()
    return DEEDS.get(case.does, DEEDS["pass"])()


CHECKS = f"{__name__}:check_mini"
OPENER = f"{__name__}:open_mini"


@contextmanager
def heeding_ctrl_c() -> Iterator[None]:
    """A process started here heeds Ctrl-C, although a shell may have started the tests (``&``) with it ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def mini_spec(root: Path) -> Path:
    """As much of a spec folder as the runner looks at: files to hash."""
    root.mkdir(parents=True, exist_ok=True)
    (root / "sources.yaml").write_text("documents: []\n")
    return root


def mini_plan(root: Path, does: Sequence[str], targets: Sequence[str] = ("mini",), jobs: int = 1, **rest: Any) -> Plan:
    """A plan of one case for each deed, of clause MINI-1 or, for a deed such as ``7:pass``, MINI-7."""
    split = [deed.rpartition(":") for deed in does]
    cases = [MiniCase(f"MINI-{clause or 1}/c{number}", deed) for number, (clause, _, deed) in enumerate(split)]
    return Plan(
        cases=list(enumerate(cases)),
        targets=tuple(targets),
        spec_root=mini_spec(root / "spec"),
        known_cases=[case.id for case in cases],
        device="cpu",
        jobs=jobs,
        checks=CHECKS,
        opener=OPENER,
        **rest,
    )


SOURCES = """\
documents:
  - id: suite
    title: A tiny suite
    statements:
      - {id: MSK-1, scope: attention, says: "Later keys are hidden."}
      - {id: ATT-3, scope: attention, says: "The output is the values weighted by the softmax."}
papers: []
reports: []
"""
CAUSAL = """\
clause: MSK-1
title: Causal mask
text: Query i sees key j only if j <= i + T_kv - T_q.
source: [{document: suite, statement: MSK-1}]
defaults:
  shapes: {B: 2, N_q: 4, N_kv: 2, T_q: 5, T_kv: 9, D: 16}
  call: {op: attention, causal: true}
cases:
  - id: equals-oracle
    vary: {dtype: [float32, float16]}
    check: equals_oracle
  - id: window-zero
    call: {window: 0}
    expect: {raises: {type: ValueError, names: window}}
"""
PLAIN = """\
clause: ATT-3
title: Attention
text: The output is the values weighted by the softmax of the scores.
source: [{document: suite, statement: ATT-3}]
cases:
  - id: equals-oracle
    shapes: {B: 1, N_q: 2, N_kv: 2, T_q: 4, T_kv: 4, D: 16}
    call: {op: attention}
    check: equals_oracle
"""


def tiny_spec(root: Path) -> Path:
    """A real spec of two clauses and four cases."""
    for name, text in (("sources", SOURCES), ("mask/msk-1", CAUSAL), ("attention/att-3", PLAIN)):
        path = root / f"{name}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


# Attentions in files of their own: right, aligned to the upper left, and one that does not know windows.
RIGHT = """\
import mlx.core as mx

def attention(q, k, v, scale, mask=None, causal=False):
    k, v = (mx.repeat(x, q.shape[1] // x.shape[1], axis=1) for x in (k, v))
    s = (q.astype(mx.float32) @ k.swapaxes(-1, -2).astype(mx.float32)) * scale
    i, j = mx.arange(q.shape[2])[:, None], mx.arange(k.shape[2])
    if causal:
        s = mx.where(j <= i + OFFSET, s, -mx.inf)
    if mask is not None:
        s = mx.where(mask, s, -mx.inf)
    return (mx.softmax(s, axis=-1) @ v.astype(mx.float32)).astype(q.dtype)
""".replace("OFFSET", "k.shape[2] - q.shape[2]")
UPPER_LEFT = RIGHT.replace("i + k.shape[2] - q.shape[2]", "i")
