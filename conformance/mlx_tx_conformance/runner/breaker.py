"""When to stop posing cases: a target that hangs or dies again and again would cost a time limit or a start each."""

from __future__ import annotations

from collections import Counter

from .worker import Task

# Losses in a row of one target in one clause that end this clause for it, and clauses so ended that end its run.
LOSSES_IN_A_ROW = 3
CLAUSES_GIVEN_UP = 3


class Breaker:
    """Which tasks are not worth running, from the crashes and timeouts (losses) so far."""

    def __init__(self) -> None:
        self._in_a_row: Counter[tuple[int, str]] = Counter()
        self._clauses: dict[tuple[int, str], str] = {}
        self._targets: dict[int, str] = {}

    def ended(self, task: Task, verdict: str) -> None:
        """A task came to its end. One that was unsupported says nothing: the target was not run."""
        if verdict != "unsupported":
            self._in_a_row.pop(_place(task), None)

    def lost(self, task: Task, message: str) -> None:
        """A task took its process down or did not come to its end; ``message`` says which."""
        place = _place(task)
        self._in_a_row[place] += 1
        if self._in_a_row[place] < LOSSES_IN_A_ROW or place in self._clauses:
            return
        times = f"not run: the target crashed or timed out {LOSSES_IN_A_ROW} times in a row in"
        self._clauses[place] = f"{times} {task.case.clause} (at last: {message})"
        ended = [clause for target, clause in self._clauses if target == task.target]
        if len(ended) >= CLAUSES_GIVEN_UP:
            self._targets.setdefault(task.target, f"{times} each of {', '.join(ended)} (at last: {message})")

    def refusal(self, task: Task) -> str | None:
        """Why a task is not run, or ``None``."""
        return self._clauses.get(_place(task)) or self._targets.get(task.target)


def _place(task: Task) -> tuple[int, str]:
    return task.target, task.case.clause
