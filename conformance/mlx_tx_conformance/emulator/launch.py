"""One launch: buffers laid out in the arena, run in a worker, results, counts and faults read back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .build import source_line
from .errors import KINDS, KernelError
from .options import ORDERS, Counts, Options
from .process import POOL, Worker

MAX_SLOTS = 31  # buffers a Metal kernel can be given
_ALIGNMENT = 256
_ZONE = 64 << 10
_ZONE_CHECKED = 1 << 20  # hooks watch it; it is never touched, so it costs address space only

Constants = Mapping[str, tuple[str, bool | int | float]]


@dataclass(frozen=True)
class Compiled:
    """A kernel library; ``files`` are the names its source is known by in line information."""

    name: str
    library: Path
    files: tuple[str, ...]


@dataclass(frozen=True)
class Memory:
    """What lies in one buffer slot.

    ``data`` are the bytes before the launch (uint8, one-dimensional), or None for ``size`` undefined ones. The
    kernel's pointer starts ``origin`` bytes into it. An empty slot (a parameter that is not used) has size 0.
    """

    name: str
    size: int
    data: np.ndarray | None = None
    origin: int = 0
    writable: bool = False


EMPTY = Memory("", 0)


@dataclass(frozen=True)
class Outcome:
    """Bytes of the writable slots (None elsewhere) and what was counted."""

    outputs: tuple[np.ndarray | None, ...]
    counts: Counts


def _layout(memories: Sequence[Memory], zone: int) -> tuple[list[int], int]:
    offsets, position = [], zone
    for memory in memories:
        offsets.append(position)
        if memory.size:
            position += -(-memory.size // _ALIGNMENT) * _ALIGNMENT + zone
    return offsets, position


def _fault(record: Mapping[str, Any], compiled: Compiled, memories: Sequence[Memory]) -> KernelError:
    """The runtime's record in the kernel's own words."""
    place = (record["file"], record["line"]) if record["line"] else None
    place = place or source_line(compiled.library, record["pc"], compiled.files)
    buffer = record["name"] or (memories[record["buffer"]].name if record["buffer"] >= 0 else "")
    located = record["offset"] >= 0 or buffer
    return KernelError(
        KINDS[record["kind"]],
        record["message"],
        kernel=compiled.name,
        buffer=buffer,
        offset=record["offset"] if located else None,
        thread=record["thread"] if record["thread"] >= 0 else None,
        threadgroup=tuple(record["threadgroup"]) if record["thread"] >= 0 else None,
        file=place[0] if place else "",
        line=place[1] if place else None,
    )


def _check(compiled: Compiled, memories: Sequence[Memory], grid: Sequence[int], threadgroup: Sequence[int]) -> None:
    if len(memories) > MAX_SLOTS:
        raise KernelError(
            "compile", f"{len(memories)} buffers; a Metal kernel takes at most {MAX_SLOTS}", compiled.name
        )
    for name, extent in (("grid", grid), ("threadgroup", threadgroup)):
        if len(extent) != 3 or any(not 1 <= n < 1 << 32 for n in extent):
            raise KernelError("threads", f"{name} must be three positive numbers; got {tuple(extent)}", compiled.name)


def execute(
    compiled: Compiled,
    memories: Sequence[Memory],
    grid: Sequence[int],
    threadgroup: Sequence[int],
    options: Options,
    constants: Constants | None = None,
) -> Outcome:
    """Runs a kernel over ``grid`` threads in groups of ``threadgroup``, clipped to the grid as Metal does.

    ``constants`` are the function constants: name to (type, value). Raises KernelError with what went wrong.
    """
    _check(compiled, memories, grid, threadgroup)
    clipped = [min(t, g) for t, g in zip(threadgroup, grid, strict=True)]
    offsets, used = _layout(memories, _ZONE_CHECKED if options.checked else _ZONE)
    worker = POOL.borrow()
    try:
        return _run_in(worker, compiled, memories, offsets, used, (grid, clipped), options, constants or {})
    finally:
        POOL.give_back(worker)


def _run_in(
    worker: Worker,
    compiled: Compiled,
    memories: Sequence[Memory],
    offsets: Sequence[int],
    used: int,
    extent: tuple[Sequence[int], Sequence[int]],
    options: Options,
    constants: Constants,
) -> Outcome:
    shared = worker.arena(used)
    arena = np.frombuffer(shared, np.uint8)
    for memory, offset in zip(memories, offsets, strict=True):
        # Undefined bytes are NaN in every floating type.
        arena[offset : offset + memory.size] = 0xFF if memory.data is None else memory.data
    rows = [
        [offset, memory.size, memory.origin, int(memory.writable), int(memory.data is not None)]
        for memory, offset in zip(memories, offsets, strict=True)
    ]
    request = {
        "library": str(compiled.library),
        "arena_size": len(shared),
        "used": used,
        "buffers": rows,
        "grid": [int(n) for n in extent[0]],
        "threadgroup": [int(n) for n in extent[1]],
        "order": ORDERS.index(options.order),
        "checked": int(options.checked),
        "flush_denormals": int(options.flush_denormals),
        "seed": options.seed,
        "constants": constants,
        "time_limit": options.time_limit,
    }
    try:
        answer = worker.request(request, options.time_limit)
    except KernelError as error:
        error.kernel = compiled.name
        raise
    if "failure" in answer:
        raise _fault(answer["failure"], compiled, memories)
    if "error" in answer:
        raise KernelError("crash", f"the worker could not launch the kernel: {answer['error']}", compiled.name)
    outputs = tuple(
        arena[offset : offset + memory.size].copy() if memory.writable else None
        for memory, offset in zip(memories, offsets, strict=True)
    )
    return Outcome(outputs, _counts(answer, memories, options.checked))


def _counts(answer: Mapping[str, Any], memories: Sequence[Memory], checked: bool) -> Counts:
    native = answer["counters"]

    def by_name(values: Sequence[int]) -> dict[str, int]:
        return {m.name: n for m, n in zip(memories, values, strict=True) if m.size} if checked else {}

    return Counts(
        mma=native["mma"],
        exp=native["exp"],
        barriers=native["threadgroup_barriers"],
        simdgroup_barriers=native["simdgroup_barriers"],
        collectives=native["collectives"],
        threadgroups=native["threadgroups"],
        threadgroup_bytes=native["threadgroup_bytes"],
        threadgroup_bytes_read=native["threadgroup_bytes_read"],
        threadgroup_bytes_written=native["threadgroup_bytes_written"],
        bytes_read=by_name(answer["read"]),
        bytes_written=by_name(answer["written"]),
        bytes_unwritten={name: n for name, n in by_name(answer["unwritten"]).items() if n},
    )
