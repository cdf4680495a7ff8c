"""What changed between two runs."""

from __future__ import annotations

from mlx_tx_conformance.report import changes, diff_text
from mlx_tx_conformance.runner import Run

from ..runner.test_journal import row


def run(**verdicts) -> Run:
    return Run(({},), tuple(row(f"A-1/{name}", verdict) for name, verdict in verdicts.items()))


BEFORE = run(a="pass", b="fail", c="pass", d="pass", e="error")
AFTER = run(a="fail", b="pass", c="pass", e="fail", f="fail", g="pass")


def test_only_what_differs_is_a_change():
    found = {change.case[4:]: (change.before, change.after, change.worse) for change in changes(BEFORE, AFTER)}
    assert found == {
        "a": ("pass", "fail", True),
        "b": ("fail", "pass", False),
        "e": ("error", "fail", False),
        "f": (None, "fail", True),
        "g": (None, "pass", False),
        "d": ("pass", None, False),
    }


def test_the_same_run_twice_has_no_change():
    assert changes(BEFORE, BEFORE) == []
    assert "no verdict changed" in diff_text(BEFORE, BEFORE, [])


def test_the_text_has_the_worse_ones_first():
    lines = diff_text(BEFORE, AFTER, changes(BEFORE, AFTER)).splitlines()
    assert [line.split("A-1/")[1][0] for line in lines if "A-1/" in line] == ["a", "f", "b", "e", "g", "d"]
    assert "pass → fail" in lines[0]
