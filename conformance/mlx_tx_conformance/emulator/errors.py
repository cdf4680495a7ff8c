"""What the emulated device reports: one exception with its kind, and where in the kernel it happened."""

from __future__ import annotations

from dataclasses import dataclass

# The order agrees with `enum class Kind` in runtime/runtime.h; the last two never come from the runtime.
KINDS = (
    "",
    "race",
    "out-of-bounds",
    "uninitialised",
    "divergence",
    "threadgroup-memory",
    "threads",
    "deadlock",
    "crash",
    "compile",
    "unsupported",
)


@dataclass(eq=False)
class KernelError(Exception):
    """A fault of a kernel, or of its use, on the emulated device.

    ``kind`` is one of `KINDS`. ``buffer`` names the input, output or threadgroup array, ``offset`` is in bytes from
    its start, ``thread`` is ``thread_index_in_threadgroup``, ``threadgroup`` the group's position in the grid, and
    ``line`` the line of the kernel's source (``file`` says whether of its body or of its header). What is not known
    is None or empty.
    """

    kind: str
    message: str
    kernel: str = ""
    buffer: str = ""
    offset: int | None = None
    thread: int | None = None
    threadgroup: tuple[int, int, int] | None = None
    file: str = ""
    line: int | None = None

    def __str__(self) -> str:
        where = []
        if self.kernel:
            where.append(f"kernel {self.kernel}")
        if self.line:
            where.append(f"{self.file or 'source'}:{self.line}")
        if self.buffer:
            where.append(f"buffer {self.buffer}" + ("" if self.offset is None else f" at byte {self.offset}"))
        if self.thread is not None:
            group = "" if self.threadgroup is None else f" of threadgroup {self.threadgroup}"
            where.append(f"thread {self.thread}{group}")
        place = f" ({', '.join(where)})" if where else ""
        return f"{self.kind}: {self.message}{place}"


def unsupported(message: str, kernel: str = "") -> KernelError:
    """The emulated device cannot do this here; the message says why and what would help."""
    return KernelError("unsupported", message, kernel=kernel)
