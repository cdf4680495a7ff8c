"""How a launch is to run, and what it counted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

ORDERS = ("forward", "reverse", "random")


@dataclass(frozen=True)
class Options:
    """Settings of the emulated device.

    checked: hooks on every load and store: races, uninitialised reads, exact bounds and byte counts; several times
        slower. Without it bounds are watched by red zones, and divergence, threadgroup memory and thread count as ever.
    order: in which order the groups of a grid run, and the threads of a group between barriers; ``random`` is drawn
        from ``seed``.
    flush_denormals: float results below 1.2e-38 become zero, which Metal allows.
    fma: let the compiler contract a * b + c, which Metal allows; ``metal::fma`` is fused in any case.
    time_limit: seconds for one launch, after which it counts as a deadlock.
    """

    checked: bool = False
    order: str = "forward"
    seed: int = 0
    flush_denormals: bool = False
    fma: bool = False
    time_limit: float = 60.0

    def __post_init__(self) -> None:
        if self.order not in ORDERS:
            raise ValueError(f"[emulator] order must be one of {', '.join(ORDERS)}; got {self.order!r}")
        if not self.time_limit > 0:
            raise ValueError(f"[emulator] time_limit must be > 0; got {self.time_limit}")
        if self.seed < 0:
            raise ValueError(f"[emulator] seed must be >= 0; got {self.seed}")


@dataclass(frozen=True)
class Counts:
    """What one launch, or several added up, did.

    Bytes by buffer name are exact and present in checked builds only; ``bytes_unwritten`` are those of an output that
    no thread wrote, where there are any. ``threadgroup_bytes`` is the largest static
    threadgroup memory of a group; everything else is a sum over groups (barriers) or lanes (exp).
    """

    mma: int = 0
    exp: int = 0
    barriers: int = 0
    simdgroup_barriers: int = 0
    collectives: int = 0
    threadgroups: int = 0
    threadgroup_bytes: int = 0
    threadgroup_bytes_read: int = 0
    threadgroup_bytes_written: int = 0
    bytes_read: Mapping[str, int] = field(default_factory=dict)
    bytes_written: Mapping[str, int] = field(default_factory=dict)
    bytes_unwritten: Mapping[str, int] = field(default_factory=dict)

    @property
    def device_bytes_read(self) -> int:
        return sum(self.bytes_read.values())

    @property
    def device_bytes_written(self) -> int:
        return sum(self.bytes_written.values())

    def __add__(self, other: Counts) -> Counts:
        def merged(a: Mapping[str, int], b: Mapping[str, int]) -> dict[str, int]:
            return {name: a.get(name, 0) + b.get(name, 0) for name in {**a, **b}}

        return Counts(
            mma=self.mma + other.mma,
            exp=self.exp + other.exp,
            barriers=self.barriers + other.barriers,
            simdgroup_barriers=self.simdgroup_barriers + other.simdgroup_barriers,
            collectives=self.collectives + other.collectives,
            threadgroups=self.threadgroups + other.threadgroups,
            threadgroup_bytes=max(self.threadgroup_bytes, other.threadgroup_bytes),
            threadgroup_bytes_read=self.threadgroup_bytes_read + other.threadgroup_bytes_read,
            threadgroup_bytes_written=self.threadgroup_bytes_written + other.threadgroup_bytes_written,
            bytes_read=merged(self.bytes_read, other.bytes_read),
            bytes_written=merged(self.bytes_written, other.bytes_written),
            bytes_unwritten=merged(self.bytes_unwritten, other.bytes_unwritten),
        )
