"""The emulated Metal device: Metal kernel sources compiled with the system's C++ compiler, run on the CPU and watched.

    from mlx_tx_conformance import emulator

    with emulator.device(checked=True, order="random", seed=3) as emulated:
        ...                      # kernels of mlx_tx.kernels run here; emulated.counts says what they did

A fault raises `KernelError` with its kind, buffer, offset, thread and source line. What a run without faults does not
prove: that Apple's compiler accepts the source, speed, fast-math accuracy, register pressure, weak memory ordering.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from .errors import KINDS, KernelError
from .options import ORDERS, Counts, Options

if TYPE_CHECKING:
    from .executor import EmulatedDevice


@contextmanager
def device(options: Options | None = None, **changes: Any) -> Iterator[EmulatedDevice]:
    """Inside the ``with`` block kernels of `mlx_tx.kernels` run on the emulated device.

    ``changes`` are fields of `Options`. Raises KernelError (unsupported) at once where there is no compiler.
    """
    from mlx_tx.kernels.executor import use_executor

    from . import toolchain
    from .executor import EmulatedDevice

    toolchain.compiler()
    emulated = EmulatedDevice(replace(options or Options(), **changes))
    with use_executor(emulated):
        yield emulated


def unavailable() -> str | None:
    """None if the emulated device works on this machine, else what is missing and how to get it."""
    from . import toolchain

    try:
        toolchain.machine_flags()
        toolchain.compiler()
        toolchain.check_cache()
    except KernelError as error:
        return error.message
    return None


__all__ = ["KINDS", "ORDERS", "Counts", "KernelError", "Options", "device", "unavailable"]
