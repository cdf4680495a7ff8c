"""What the kernels of a call do, as the emulated device counts it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..emulator import Counts

# Buffers of attention kernels by what they hold. What is in none of them is a parameter of the launch.
KEYS_AND_VALUES = ("k", "v")
FEATURES = ("mask", "bias", "sinks", "slopes", "kv_lengths", "q_segments", "kv_segments")


@dataclass(frozen=True)
class KernelCounts:
    """The figures of all kernels of a call together, the sizes of their tiles, and the path that ran."""

    figures: Mapping[str, int]
    tiles: Mapping[str, int] = field(default_factory=dict)
    path: str = ""


def figures_of(counts: Counts) -> dict[str, int]:
    """The counts by the names that the spec knows."""

    def read(names: tuple[str, ...]) -> int:
        return sum(counts.bytes_read.get(name, 0) for name in names)

    return {
        "device_bytes": counts.device_bytes_read + counts.device_bytes_written,
        "device_bytes_read": counts.device_bytes_read,
        "device_bytes_written": counts.device_bytes_written,
        "q_bytes_read": read(("q",)),
        "kv_bytes_read": read(KEYS_AND_VALUES),
        "feature_bytes_read": read(FEATURES),
        "kernel_mma": counts.mma,
        "kernel_exp": counts.exp,
        "threadgroups": counts.threadgroups,
        "threadgroup_bytes": counts.threadgroup_bytes,
    }
