"""A short way to launch a kernel on NumPy arrays, for the tests of the emulated device."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np

from mlx_tx_conformance.emulator import Counts, KernelError, Options
from mlx_tx_conformance.emulator.custom import Shape, Source, run


def launch(
    body: str,
    inputs: dict[str, np.ndarray],
    outputs: dict[str, tuple[tuple[int, ...], str]],
    threads: int | tuple[int, int, int] = 32,
    group: int | tuple[int, int, int] | None = None,
    header: str = "",
    options: Options | None = None,
    template: Sequence[tuple[str, str | bool | int]] = (),
    init_value: float | None = None,
    atomic: bool = False,
    name: str = "probe",
) -> tuple[list[np.ndarray], Counts]:
    """Runs ``body`` over ``threads``, in one group unless ``group`` says otherwise."""
    grid = (threads, 1, 1) if isinstance(threads, int) else threads
    if group is None:
        group = grid
    source = Source(name, tuple(inputs), tuple(outputs), body, header, atomic_outputs=atomic)
    shape = Shape(
        tuple(shape for shape, _ in outputs.values()),
        tuple(dtype for _, dtype in outputs.values()),
        grid,
        (group, 1, 1) if isinstance(group, int) else group,
        tuple(template),
        init_value,
    )
    return run(source, list(inputs.values()), shape, options)


def value(body: str, threads: int = 32, dtype: str = "float32", header: str = "", **inputs: np.ndarray) -> np.ndarray:
    """One value a thread: ``body`` sets ``out[i]``, where ``i`` is the thread and ``lane`` its lane."""
    prologue = "uint i = thread_position_in_grid.x; uint lane = thread_index_in_simdgroup; (void)lane;\n"
    return launch(prologue + body, inputs, {"out": ((threads,), dtype)}, threads, header=header)[0][0]


def fault(launch_it: functools.partial[object] | None = None, **arguments: object) -> KernelError:
    """The error a launch raises. AssertionError if it raises none."""
    try:
        launch(**arguments) if launch_it is None else launch_it()  # type: ignore[arg-type]
    except KernelError as error:
        return error
    raise AssertionError("the fault was not seen")
