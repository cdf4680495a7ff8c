"""How far a long run is, on stderr: a bar where rich is installed and a terminal shows it, else a line now and then."""

from __future__ import annotations

import importlib.util
import os
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from mlx_tx_conformance.runner import Watcher

LINE_EVERY_SECONDS = 5.0


@contextmanager
def watching(quiet: bool) -> Iterator[Watcher]:
    """A watcher for :func:`mlx_tx_conformance.runner.conform`."""
    if quiet:
        yield Watcher()
    elif sys.stderr.isatty() and not os.environ.get("NO_COLOR") and importlib.util.find_spec("rich") is not None:
        with _bar() as watcher:
            yield watcher
    else:
        yield _lines()


def _lines() -> Watcher:
    state = {"done": 0, "total": 0, "bad": 0, "said": time.monotonic()}

    def started(header: Mapping[str, Any], done: int, total: int) -> None:
        _say_start(header, done, total)
        state.update(done=done, total=total)

    def row(row: Mapping[str, Any]) -> None:
        state["done"] += 1
        state["bad"] += row["verdict"] in ("fail", "error")
        if time.monotonic() - state["said"] >= LINE_EVERY_SECONDS:
            state["said"] = time.monotonic()
            _say(f"{state['done']}/{state['total']}, {state['bad']} failed")

    return Watcher(started, row)


@contextmanager
def _bar() -> Iterator[Watcher]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("starting", total=None)
        bad = 0

        def started(header: Mapping[str, Any], done: int, total: int) -> None:
            _say_start(header, done, total)
            progress.update(task, total=total, completed=done, description="")

        def row(row: Mapping[str, Any]) -> None:
            nonlocal bad
            bad += row["verdict"] in ("fail", "error")
            progress.update(task, advance=1, description=f"{bad} failed" if bad else str(row["clause"]))

        yield Watcher(started, row)


def _say_start(header: Mapping[str, Any], done: int, total: int) -> None:
    if done:
        _say(f"resuming: {done} of {total} results are there")
    del header


def _say(text: str) -> None:
    # A run does not end because nobody can hear how far it is.
    with suppress(OSError):
        print(text, file=sys.stderr, flush=True)
