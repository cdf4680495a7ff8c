"""How a Metal kernel is launched: on the GPU by `mx.fast.metal_kernel`, or by an executor that stands in for one.

A `Kernel` is source text with names. Calling it launches it wherever kernels run at the moment: an executor installed
with `use_executor` (the emulated device of `mlx_tx_conformance` is one), else Metal.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Protocol

import mlx.core as mx

TemplateValue = mx.Dtype | bool | int
Template = Sequence[tuple[str, TemplateValue]]


@dataclass(frozen=True)
class Launch:
    """Everything a launch needs besides the kernel itself.

    inputs: arrays or Python scalars, in the order of the kernel's input names.
    output_shapes, output_dtypes: one for each output name.
    grid: threads in x, y, z (threads, not threadgroups).
    threadgroup: threads of a group in x, y, z; clipped to the grid.
    template: names of the source's template parameters with their values, in order.
    init_value: what every output holds before the launch; undefined when None.
    """

    inputs: tuple[mx.array | float | int | bool, ...]
    output_shapes: tuple[tuple[int, ...], ...]
    output_dtypes: tuple[mx.Dtype, ...]
    grid: tuple[int, int, int]
    threadgroup: tuple[int, int, int]
    template: tuple[tuple[str, TemplateValue], ...] = ()
    init_value: float | None = None
    stream: Any = None


class Executor(Protocol):
    """Something that runs kernels."""

    name: str

    def launch(self, kernel: Kernel, launch: Launch) -> list[mx.array]:
        """The outputs, in the order of the kernel's output names."""


@dataclass(frozen=True)
class Kernel:
    """A Metal kernel: the body of the function in ``source``, helper functions in ``header``.

    ensure_row_contiguous=False hands inputs over as they lie in memory; the source then reads `<input>_strides`.
    """

    name: str
    input_names: tuple[str, ...]
    output_names: tuple[str, ...]
    source: str
    header: str = ""
    ensure_row_contiguous: bool = True
    atomic_outputs: bool = False

    def __call__(
        self,
        inputs: Sequence[mx.array | float | int | bool],
        *,
        output_shapes: Sequence[Sequence[int]],
        output_dtypes: Sequence[mx.Dtype],
        grid: tuple[int, int, int],
        threadgroup: tuple[int, int, int],
        template: Template = (),
        init_value: float | None = None,
        stream: Any = None,
    ) -> list[mx.array]:
        """Launches the kernel. Raises ValueError where the numbers of arrays do not match the names."""
        for what, given, names in (
            ("inputs", inputs, self.input_names),
            ("output_shapes", output_shapes, self.output_names),
            ("output_dtypes", output_dtypes, self.output_names),
        ):
            if len(given) != len(names):
                raise ValueError(f"[{self.name}] {what} must have {len(names)} entries; got {len(given)}")
        launch = Launch(
            tuple(inputs),
            tuple(tuple(shape) for shape in output_shapes),
            tuple(output_dtypes),
            grid,
            threadgroup,
            tuple(template),
            init_value,
            stream,
        )
        return current_executor().launch(self, launch)


@functools.lru_cache(maxsize=512)
def _metal_kernel(kernel: Kernel) -> Any:
    return mx.fast.metal_kernel(
        name=kernel.name,
        input_names=list(kernel.input_names),
        output_names=list(kernel.output_names),
        source=kernel.source,
        header=kernel.header,
        ensure_row_contiguous=kernel.ensure_row_contiguous,
        atomic_outputs=kernel.atomic_outputs,
    )


class MetalExecutor:
    """Runs kernels on the GPU of this machine."""

    name = "metal"

    def launch(self, kernel: Kernel, launch: Launch) -> list[mx.array]:
        """Lazy, as everything in MLX: compile errors appear when the outputs are evaluated."""
        options: dict[str, Any] = {}
        if launch.init_value is not None:
            options["init_value"] = launch.init_value
        if launch.stream is not None:
            options["stream"] = launch.stream
        return list(
            _metal_kernel(kernel)(
                inputs=list(launch.inputs),
                template=list(launch.template),
                grid=launch.grid,
                threadgroup=launch.threadgroup,
                output_shapes=[tuple(shape) for shape in launch.output_shapes],
                output_dtypes=list(launch.output_dtypes),
                **options,
            )
        )


_METAL = MetalExecutor()
_installed: ContextVar[Executor | None] = ContextVar("mlx_tx_kernel_executor", default=None)


def current_executor() -> Executor:
    """The executor in force: the one installed last in this context, else Metal."""
    return _installed.get() or _METAL


def kernels_available() -> bool:
    """Can kernels be launched here: is there a Metal GPU, or an executor in force?"""
    return _installed.get() is not None or mx.metal.is_available()


@contextmanager
def use_executor(executor: Executor) -> Iterator[Executor]:
    """Kernels launched inside the ``with`` block run on ``executor``."""
    token = _installed.set(executor)
    try:
        yield executor
    finally:
        _installed.reset(token)
