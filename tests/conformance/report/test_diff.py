"""What changed between two runs."""

from __future__ import annotations

import pytest

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


def of(*rows) -> Run:
    return Run(({},), rows)


def test_runs_of_one_target_each_are_compared_whatever_they_are_called():
    before = of(row("A-1/a", target="old"), row("A-1/b", "fail", target="old"))
    after = of(row("A-1/a", "fail", target="new"), row("A-1/b", "fail", target="new"))
    found = changes(before, after)
    assert [(change.case, change.target, change.before, change.after) for change in found] == [
        ("A-1/a", "new", "pass", "fail")
    ]
    assert diff_text(before, after, found).splitlines()[0] == "old, cpu → new, cpu"
    same = of(row("A-1/a", target="new"), row("A-1/b", "fail", target="new"))
    assert "no verdict changed" in diff_text(before, same, changes(before, same))


def test_runs_of_several_targets_have_to_share_one():
    before = of(row("A-1/a", target="one"), row("A-1/a", target="two"))
    with pytest.raises(ValueError, match="no target in common: one, cpu and two, cpu before, three, cpu after"):
        changes(before, of(row("A-1/a", target="three")))
    assert len(changes(before, of(row("A-1/a", "fail", target="two")))) == 2
