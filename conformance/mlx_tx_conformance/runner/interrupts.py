"""Telling the user's Ctrl-C from a KeyboardInterrupt that an implementation raised."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def listening() -> Iterator[Callable[[], bool]]:
    """While an implementation runs: a function that says whether SIGINT has come. Its handler still does its work."""
    before = signal.getsignal(signal.SIGINT) if threading.current_thread() is threading.main_thread() else None
    if before is None or isinstance(before, int | signal.Handlers):
        # Another thread gets no signal, and an ignored or default one raises nothing.
        yield lambda: False
        return
    came = False

    def handler(number: int, frame: FrameType | None) -> None:
        nonlocal came
        came = True
        before(number, frame)

    signal.signal(signal.SIGINT, handler)
    try:
        yield lambda: came
    finally:
        signal.signal(signal.SIGINT, before)
