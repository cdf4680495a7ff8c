"""Cases times targets: run them, journal them, and hand back the run."""

from __future__ import annotations

import datetime
import hashlib
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .. import __version__
from ..spec.loader import spec_hash
from .journal import JournalWriter, check_resumable, read_journal
from .pool import run_tasks
from .result import Run
from .rows import Row, count_verdicts, in_order
from .waivers import CLAUSE as WAIVERS_CLAUSE
from .waivers import Waivers
from .worker import CHECKS, OPENER, Setup, Task

TIME_LIMIT = 60.0


@dataclass(frozen=True)
class Plan:
    """What to run. ``cases`` come with their place in the spec; ``known_cases`` are the ids of the whole spec."""

    cases: Sequence[tuple[int, Any]]
    targets: tuple[str, ...]
    spec_root: Path
    known_cases: Sequence[str] = ()
    device: str = "auto"
    seed: int = 0
    jobs: int = 1
    time_limit: float = TIME_LIMIT
    checks: str = CHECKS
    opener: str = OPENER
    # What chose the cases, by option, for those who read the journal.
    selection: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @property
    def cases_hash(self) -> str:
        """A sha256 of the ids of the cases to run, in the order of the spec."""
        ids = [case.id for _, case in sorted(self.cases, key=lambda item: item[0])]
        return hashlib.sha256("\n".join(ids).encode()).hexdigest()


def _nobody(*_: Any) -> None:
    """Whom nobody told to watch."""


@dataclass(frozen=True)
class Watcher:
    """Who is told how the run goes: once with the header and the number of results to come, then row by row."""

    started: Callable[[Mapping[str, Any], int, int], None] = _nobody
    row: Callable[[Row], None] = _nobody


class InterruptedRunError(Exception):
    """Ctrl-C: the run so far, whose journal is whole but for its footer."""

    def __init__(self, run: Run) -> None:
        super().__init__("interrupted")
        self.run = run


def default_jobs() -> int:
    """One worker for each core that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def conform(
    plan: Plan,
    *,
    out: Path | None = None,
    resume: Path | None = None,
    waivers: Waivers | None = None,
    watcher: Watcher | None = None,
) -> Run:
    """Run a plan.

    ``out`` is the journal to write; ``resume`` a journal to go on with (in place, unless ``out`` names another file).
    Raises JournalError for one that belongs to another run, and what :func:`.pool.run_tasks` raises.
    """
    session = _Session(plan, out or resume, resume, waivers or Waivers(), watcher or Watcher())
    try:
        return session.run()
    except KeyboardInterrupt:
        raise InterruptedRunError(session.so_far(("interrupted",))) from None
    finally:
        session.writer.close()


class _Session:
    def __init__(self, plan: Plan, out: Path | None, resume: Path | None, waivers: Waivers, watcher: Watcher) -> None:
        self.plan = plan
        self.waivers = waivers
        self.watcher = watcher
        self.writer = JournalWriter(out)
        self.journal = read_journal(resume) if resume is not None else None
        self.rows: list[Row] = []
        self.header: dict[str, Any] = {}
        self.started = time.perf_counter()
        if self.journal is not None:
            self.rows = [waivers.apply(row) for row in self.journal.rows if row["clause"] != WAIVERS_CLAUSE]

    def run(self) -> Run:
        plan = self.plan
        # Slow cases first, so that no worker ends up alone with one.
        cases = sorted(plan.cases, key=lambda item: ("slow" not in item[1].tags, item[0]))
        done = {(row["case"], row["target"]) for row in self.rows}
        tasks = [
            Task(order, number, case)
            for order, case in cases
            for number, target in enumerate(plan.targets)
            if (case.id, target) not in done
        ]
        setup = Setup(plan.targets, plan.device, plan.seed, plan.checks, plan.opener)
        self.total = len(self.rows) + len(tasks)
        run_tasks(setup, tasks, jobs=plan.jobs, time_limit=plan.time_limit, on_ready=self._ready, on_row=self._row)
        order = len(plan.known_cases)
        for row in self.waivers.complaints(self.header["device"], plan.known_cases, order):
            self._add(row)
        seconds = round(time.perf_counter() - self.started, 3)
        summary = count_verdicts(self.rows)
        self.writer.finish({"summary": summary, "results": len(self.rows), "seconds": seconds})
        return self.so_far(())

    def so_far(self, truncated: tuple[str, ...]) -> Run:
        seconds = time.perf_counter() - self.started
        return Run((self.header,), tuple(in_order(self.rows, self.plan.targets)), truncated, seconds)

    def _ready(self, facts: Mapping[str, Any]) -> None:
        self.header = {
            "suite": __version__,
            **{name: value for name, value in facts.items() if name != "target_devices"},
            "seed": self.plan.seed,
            "spec_hash": spec_hash(self.plan.spec_root),
            "targets": list(self.plan.targets),
            "cases": len(self.plan.cases),
            "cases_hash": self.plan.cases_hash,
            "selection": {name: list(globs) for name, globs in self.plan.selection.items() if globs},
            "started": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        }
        if self.journal is None:
            self.writer.start(self.header)
        else:
            check_resumable(self.journal, self.header)
            self.header = {name: value for name, value in self.journal.header.items() if name != "kind"}
            self.writer.resume(type(self.journal)(self.journal.path, self.journal.header, self.rows))
        self.watcher.started(self.header, len(self.rows), self.total)

    def _row(self, row: Row) -> None:
        self._add(self.waivers.apply(row))

    def _add(self, row: Row) -> None:
        self.rows.append(row)
        self.writer.row(row)
        self.watcher.row(row)
