"""Worker processes: started, fed in small batches, killed at the time limit, replaced when they crash."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from typing import Any

from ..outcome import Outcome
from .breaker import Breaker
from .rows import Row, make_row
from .worker import Setup, Task

# A batch is large enough to hide the pipe and small enough to keep every worker busy to the end.
MOST_IN_A_BATCH = 8
# Importing MLX and a user's module may take a while on a loaded machine; a case may not.
STARTUP_SECONDS = 120.0
MOST_FAILED_STARTS = 2


class PoolError(RuntimeError):
    """The workers cannot be started; the message says why."""


class RefusedError(ValueError):
    """A target or a device that a worker could not open; the message is for the user."""


@dataclass
class _Worker:
    process: subprocess.Popen[bytes]
    connection: Connection
    stderr: Any
    facts: dict[str, Any] | None = None
    tasks: deque[Task] = field(default_factory=deque)
    deadline: float = 0.0
    since: float = 0.0

    def tail(self) -> list[str]:
        """The last lines that the process wrote to stdout and stderr."""
        self.stderr.seek(0, os.SEEK_END)
        self.stderr.seek(max(0, self.stderr.tell() - 4000))
        return self.stderr.read().decode(errors="replace").splitlines()[-20:]

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.connection.close()
        self.stderr.close()


def run_tasks(
    setup: Setup,
    tasks: Iterable[Task],
    *,
    jobs: int,
    time_limit: float,
    on_ready: Callable[[dict[str, Any]], None],
    on_row: Callable[[Row], None],
) -> None:
    """Run every task and hand over its row as soon as it is known.

    ``on_ready`` gets the environment once, before the first row. A case that takes longer than ``time_limit``
    seconds, or takes its process down, gets the verdict error, and the run goes on in a new process; after several in
    a row the rest of the clause, and at last of the target, gets it unrun (see :mod:`.breaker`).

    Raises RefusedError for a target or device that cannot be opened, PoolError where no worker starts.
    """
    with _Pool(setup, deque(tasks), jobs, time_limit, on_ready, on_row).running() as pool:
        pool.loop()


class _Pool:
    def __init__(
        self,
        setup: Setup,
        pending: deque[Task],
        jobs: int,
        time_limit: float,
        on_ready: Callable[[dict[str, Any]], None],
        on_row: Callable[[Row], None],
    ) -> None:
        self.setup = setup
        self.pending = pending
        self.jobs = max(1, min(jobs, len(pending)))
        self.time_limit = time_limit
        self.on_ready = on_ready
        self.on_row = on_row
        self.workers: list[_Worker] = []
        self.facts: dict[str, Any] | None = None
        self.failed_starts = 0
        self.breaker = Breaker()

    @contextmanager
    def running(self) -> Iterator[_Pool]:
        try:
            yield self
        finally:
            for worker in self.workers:
                worker.close()

    def loop(self) -> None:
        for _ in range(self.jobs):
            self.workers.append(self._start())
        while self.pending or any(worker.tasks for worker in self.workers) or self.facts is None:
            for worker in list(self.workers):
                if worker.facts is not None and not worker.tasks:
                    self._feed(worker)
            busy = [worker for worker in self.workers if worker.tasks or worker.facts is None]
            soonest = min(worker.deadline for worker in busy)
            ready = wait([worker.connection for worker in busy], timeout=max(0.0, soonest - time.monotonic()))
            for worker in [worker for worker in busy if worker.connection in ready]:
                self._receive(worker)
            for worker in list(self.workers):
                if (worker.tasks or worker.facts is None) and time.monotonic() > worker.deadline:
                    self._expire(worker)

    def _feed(self, worker: _Worker) -> None:
        size = max(1, min(MOST_IN_A_BATCH, len(self.pending) // (2 * self.jobs)))
        batch = [self.pending.popleft() for _ in range(min(size, len(self.pending)))]
        if not batch:
            return
        worker.tasks.extend(batch)
        self._restart_clock(worker)
        try:
            worker.connection.send(batch)
        except OSError:
            self._crashed(worker)

    def _restart_clock(self, worker: _Worker) -> None:
        worker.since = time.monotonic()
        worker.deadline = worker.since + self.time_limit

    def _receive(self, worker: _Worker) -> None:
        try:
            kind, content = worker.connection.recv()
        except (EOFError, OSError):
            self._crashed(worker)
            return
        if kind == "row":
            self.breaker.ended(worker.tasks.popleft(), content["verdict"])
            self._restart_clock(worker)
            self.on_row(content)
        elif kind == "ready":
            worker.facts = content
            self.failed_starts = 0
            if self.facts is None:
                self.facts = content
                self.on_ready(content)
        elif kind == "refused":
            raise RefusedError(content)
        else:
            raise PoolError(f"a worker cannot start:\n{content.rstrip()}")

    def _expire(self, worker: _Worker) -> None:
        if worker.facts is None:
            raise PoolError(f"a worker did not start within {STARTUP_SECONDS:g} s{_quoted(worker.tail())}")
        self._lost(worker, f"timed out after {self.time_limit:g} s", {})

    def _crashed(self, worker: _Worker) -> None:
        code = worker.process.wait()
        tail = worker.tail()
        if worker.facts is None:
            self.failed_starts += 1
            if self.failed_starts >= MOST_FAILED_STARTS:
                raise PoolError(f"the workers end before they start: {_ending(code)}{_quoted(tail)}")
            self._replace(worker)
            return
        self._lost(worker, f"the target took its process down: {_ending(code)}", {"stderr": tail})

    def _lost(self, worker: _Worker, message: str, details: dict[str, Any]) -> None:
        """The first of the worker's tasks gets the blame, the others go back, and another process takes over."""
        if worker.tasks:
            task = worker.tasks.popleft()
            self.pending.extendleft(reversed(worker.tasks))
            self.breaker.lost(task, message)
            self._error(task, message, details, time.monotonic() - worker.since)
            self._give_up()
        self._replace(worker)

    def _give_up(self) -> None:
        """Turn the pending tasks that the breaker refuses into errors, before another process is started for them."""
        refused = [(task, self.breaker.refusal(task)) for task in self.pending]
        self.pending = deque(task for task, reason in refused if reason is None)
        for task, reason in refused:
            if reason is not None:
                self._error(task, reason, {}, 0.0)

    def _error(self, task: Task, message: str, details: dict[str, Any], seconds: float) -> None:
        devices = (self.facts or {}).get("target_devices", [])
        device = devices[task.target] if devices else self.setup.device
        outcome = Outcome("error", message, details=details)
        target = self.setup.targets[task.target]
        self.on_row(make_row(task.case, target, device, outcome, order=task.order, seconds=seconds))

    def _replace(self, worker: _Worker) -> None:
        worker.close()
        self.workers.remove(worker)
        if self.pending or self.facts is None:
            self.workers.append(self._start())

    def _start(self) -> _Worker:
        here, there = Pipe()
        stderr = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the worker
        # No __main__ of ours or of the user's is imported again, and Ctrl-C reaches the parent alone.
        code = f"from mlx_tx_conformance.runner.worker import main; main({there.fileno()})"
        environment = dict(os.environ)
        environment["PYTHONPATH"] = os.pathsep.join(entry for entry in sys.path if entry)
        # What a target prints must not be its undoing where the locale is plain ASCII.
        environment["PYTHONIOENCODING"] = "utf-8:backslashreplace"
        if self.jobs > 1:
            for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
                environment.setdefault(name, "1")
        process = subprocess.Popen(
            [sys.executable, "-P", "-c", code],
            stdin=subprocess.DEVNULL,
            stdout=stderr,
            stderr=stderr,
            pass_fds=[there.fileno()],
            env=environment,
            start_new_session=True,
        )
        there.close()
        worker = _Worker(process, here, stderr)
        worker.deadline = time.monotonic() + STARTUP_SECONDS
        with contextlib.suppress(OSError):  # it is gone already; the closed pipe says so when it is read
            here.send(self.setup)
        return worker


def _ending(code: int) -> str:
    if code < 0:
        try:
            return f"killed by {signal.Signals(-code).name}"
        except ValueError:
            return f"killed by signal {-code}"
    return f"exit status {code}"


def _quoted(lines: list[str]) -> str:
    return ":\n" + "\n".join(f"  {line}" for line in lines) if lines else ""
