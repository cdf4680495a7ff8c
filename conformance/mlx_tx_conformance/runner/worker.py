"""The process that runs cases: imports MLX, opens the targets, answers one row a case.

It is started by :mod:`.pool` and speaks pickled tuples over a pipe of its own, so that what an implementation prints
disturbs nothing. It never outlives the run: a closed pipe or another parent ends it.
"""

from __future__ import annotations

import faulthandler
import importlib
import os
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from typing import Any

from ..call import Unsupported
from ..outcome import Outcome
from .interrupts import listening
from .rows import Row, make_row

CHECKS = "mlx_tx_conformance.checks:run_case"
OPENER = "mlx_tx_conformance.targets:open_target"


@dataclass(frozen=True)
class Setup:
    """What a worker needs to know before its first case. ``checks`` and ``opener`` are dotted names."""

    targets: tuple[str, ...]
    device: str = "auto"
    seed: int = 0
    checks: str = CHECKS
    opener: str = OPENER


@dataclass(frozen=True)
class Task:
    """One case on one target: ``order`` is the case's place in the spec, ``target`` the target's place in the setup."""

    order: int
    target: int
    case: Any


def judge(check: Callable[[Any, Any], Outcome], case: Any, target: Any) -> Outcome:
    """The outcome of one case; whatever goes wrong becomes a verdict, and so does a path that the target is not.

    Raises KeyboardInterrupt for a Ctrl-C of the user's alone: what a target raises to end the process is its error.
    """
    refusal = getattr(target, "path_refusal", None)
    reason = refusal(case.path) if case.path and refusal is not None else None
    if reason is not None:
        return Outcome("unsupported", reason)
    with listening() as interrupted:
        try:
            return check(case, target)
        except Unsupported as unsupported:
            return Outcome("unsupported", str(unsupported))
        except Exception as error:
            return _error("the check itself failed", error)
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt) and interrupted():
                raise
            return _error("the target would end the process", error, ends_process=True)


def _error(what: str, error: BaseException, **details: bool) -> Outcome:
    lines = traceback.format_exc().splitlines()[-12:]
    return Outcome("error", f"{what}: {type(error).__name__}: {error}", details={"traceback": lines, **details})


def run_task(
    check: Callable[[Any, Any], Outcome], case: Any, target: Any, *, order: int, seed: int = 0, name: str | None = None
) -> Row:
    """Run one case and make its row; ``seed`` draws the random inputs anew."""
    started = time.perf_counter()
    outcome = judge(check, replace(case, seed=case.seed + seed) if seed else case, target)
    seconds = time.perf_counter() - started
    return make_row(case, name or target.name, target.device, outcome, order=order, seconds=seconds)


def serve(connection: Connection) -> None:
    """Answer the setup, then batches of tasks, until told to stop or the pipe closes."""
    setup: Setup = connection.recv()
    opened = _open(connection, setup)
    if opened is None:
        return
    check, targets = opened
    while True:
        batch: list[Task] | None = connection.recv()
        if batch is None:
            return
        for task in batch:
            target = targets[task.target]
            row = run_task(check, task.case, target, order=task.order, seed=setup.seed, name=setup.targets[task.target])
            connection.send(("row", row))


def _open(connection: Connection, setup: Setup) -> tuple[Callable[[Any, Any], Outcome], list[Any]] | None:
    """Import what the setup names and report the environment, or why it cannot be had."""
    from ..targets import TargetError, source_hash
    from .environment import DeviceError, choose_device, describe, preload_blas

    try:
        blas = preload_blas()
        device = choose_device(setup.device)
        opener = _named(setup.opener)
        targets = [opener(text, device) for text in setup.targets]
        check = _named(setup.checks)
        facts = describe(device, blas)
    except (TargetError, DeviceError) as error:
        connection.send(("refused", str(error)))
        return None
    except Exception:
        connection.send(("broken", traceback.format_exc()))
        return None
    facts["target_hashes"] = {text: source_hash(text) for text in setup.targets}
    connection.send(("ready", {**facts, "target_devices": [target.device for target in targets]}))
    return check, targets


def _named(dotted: str) -> Any:
    module, _, name = dotted.partition(":")
    return getattr(importlib.import_module(module), name)


def _watch_parent(parent: int) -> None:
    """End with the parent, in the middle of a case too."""
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)


def main(descriptor: int) -> None:
    """Entry point of the process: serve the pipe with this file descriptor."""
    faulthandler.enable()
    threading.Thread(target=_watch_parent, args=(os.getppid(),), daemon=True).start()
    try:
        serve(Connection(descriptor))
    except (EOFError, BrokenPipeError, ConnectionResetError):
        os._exit(1)
