"""The caller's side of the worker processes: their shared memory, their requests, and what their end means."""

from __future__ import annotations

import atexit
import contextlib
import json
import mmap
import os
import select
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

from . import toolchain
from .errors import KernelError

_GRACE = 10.0  # seconds past a launch's own limit before the worker is ended from outside
_SMALLEST_ARENA = 1 << 22


def _shared_file() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create("mlx-tx-arena")
    fd, name = tempfile.mkstemp(prefix="mlx-tx-arena-")
    Path(name).unlink()
    return fd


class Worker:
    """One process that runs kernels. It is started on first use and started again after it died."""

    def __init__(self) -> None:
        self._fd = _shared_file()
        self._memory: mmap.mmap | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._runtime = ""
        self._unread = b""

    def arena(self, size: int) -> mmap.mmap:
        """Shared memory of at least ``size`` bytes; views of an earlier, smaller one stay valid but are stale."""
        if self._memory is None or len(self._memory) < size:
            rounded = max(_SMALLEST_ARENA, 1 << (size - 1).bit_length())
            os.ftruncate(self._fd, rounded)
            self._memory = mmap.mmap(self._fd, rounded)
        return self._memory

    def request(self, message: dict[str, Any], time_limit: float) -> dict[str, Any]:
        """The worker's answer. KernelError: deadlock after the time limit, crash if it ended without a word."""
        process = self._started()
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(json.dumps(message).encode() + b"\n")
            process.stdin.flush()
        except BrokenPipeError:
            self.stop()
            raise KernelError("crash", "the worker process ended before the launch") from None
        while b"\n" not in self._unread:
            ready, _, _ = select.select([process.stdout], [], [], time_limit + _GRACE)
            if not ready:
                self.stop()
                raise KernelError("deadlock", f"the launch did not end within {time_limit:g} s")
            piece = os.read(process.stdout.fileno(), 1 << 16)
            if not piece:
                status = process.wait()
                self.stop()
                raise KernelError("crash", f"the worker process ended with status {status}")
            self._unread += piece
        line, _, self._unread = self._unread.partition(b"\n")
        answer = json.loads(line)
        if answer.get("fatal"):  # its last words
            self.stop()
        return answer

    def _started(self) -> subprocess.Popen[bytes]:
        runtime = str(toolchain.runtime_library())
        if self._process is not None and (self._process.poll() is not None or runtime != self._runtime):
            self.stop()
        if self._process is None:
            script = Path(__file__).with_name("worker.py")
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", str(script), runtime, str(self._fd)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                pass_fds=[self._fd],
            )
            self._runtime = runtime
            self._unread = b""
        return self._process

    def stop(self) -> None:
        """Ends the process; the next request starts another."""
        process, self._process = self._process, None
        if process is None:
            return
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()
        try:
            process.wait(timeout=0.2)  # it ends at the end of its input, unless a kernel loops
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def close(self) -> None:
        self.stop()
        os.close(self._fd)


class Pool:
    """Workers, one for each launch that runs at the same time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: list[Worker] = []
        self._owner = os.getpid()

    def borrow(self) -> Worker:
        with self._lock:
            if self._owner != os.getpid():  # after a fork the parent's workers are not ours
                self._idle, self._owner = [], os.getpid()
            return self._idle.pop() if self._idle else Worker()

    def give_back(self, worker: Worker) -> None:
        with self._lock:
            self._idle.append(worker)

    def close(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, []
        if self._owner == os.getpid():
            for worker in idle:
                worker.close()


POOL = Pool()
atexit.register(POOL.close)

__all__ = ["POOL", "Pool", "Worker"]
