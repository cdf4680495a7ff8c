"""Kernels of `mx.fast.metal_kernel` on the emulated device, on NumPy arrays."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import ml_dtypes
import numpy as np

from . import mlx_headers
from .build import Variant, kernel_library
from .entry import entry_function, numbered
from .errors import KernelError
from .launch import Compiled, Memory, execute
from .options import Counts, Options
from .signature import METAL_NAMES, SMALL, Argument, Signature, TemplateValue, generate

NUMPY_DTYPES = {name: np.dtype(name) for name in METAL_NAMES if name != "bfloat16"} | {
    "bfloat16": np.dtype(ml_dtypes.bfloat16)
}
_NAMES = {dtype: name for name, dtype in NUMPY_DTYPES.items()}


@dataclass(frozen=True)
class Source:
    """A kernel's text and names, as given to `mx.fast.metal_kernel`."""

    name: str
    input_names: tuple[str, ...]
    output_names: tuple[str, ...]
    source: str
    header: str = ""
    ensure_row_contiguous: bool = True
    atomic_outputs: bool = False


@dataclass(frozen=True)
class Shape:
    """How a kernel is launched: outputs, grid in threads, threadgroup, template values, initial value of outputs."""

    output_shapes: tuple[tuple[int, ...], ...]
    output_dtypes: tuple[str, ...]
    grid: tuple[int, int, int]
    threadgroup: tuple[int, int, int]
    template: tuple[tuple[str, TemplateValue], ...] = ()
    init_value: float | None = None


def dtype_name(array: np.ndarray) -> str:
    """The dtype by MLX's name. TypeError where Metal has none."""
    name = _NAMES.get(array.dtype)
    if name is None:
        raise TypeError(f"[emulator] an input must have a dtype Metal knows; got {array.dtype}")
    return name


class _Stretch:
    """Memory by address, kept alive by the array it belongs to."""

    def __init__(self, array: np.ndarray, size: int) -> None:
        self.array = array
        self.__array_interface__ = {"data": (array.ctypes.data, True), "shape": (size,), "typestr": "|u1", "version": 3}


def memory_of(name: str, array: np.ndarray) -> Memory:
    """The stretch of memory an array's elements lie in, as it is, and where in it the first element stands."""
    if array.size == 0:
        return Memory(name, 0)
    turned: Any = (*(slice(None, None, -1 if stride < 0 else 1) for stride in array.strides), ...)
    upward = array[turned]
    reach = [(extent - 1) * stride for extent, stride in zip(array.shape, array.strides, strict=True)]
    size = sum(map(abs, reach)) + array.itemsize
    return Memory(name, size, np.asarray(_Stretch(upward, size)), -sum(r for r in reach if r < 0))


def _input_memories(arrays: Sequence[np.ndarray], source: Source, signature: Signature) -> list[Memory]:
    by_name = dict(zip(source.input_names, arrays, strict=True))
    memories = []
    for use in signature.buffers:
        if use.role == "output":
            continue
        array = by_name[use.name]
        if use.role == "input":
            memories.append(memory_of(use.name, array))
            continue
        facts: dict[str, np.ndarray] = {
            "shape": np.array(array.shape, np.int32),
            "strides": np.array([stride // array.itemsize for stride in array.strides], np.int64),
            "ndim": np.array([array.ndim], np.int32),
        }
        memories.append(memory_of(f"{use.name}_{use.role}", facts[use.role]))
    return memories


def _output_memory(name: str, shape: tuple[int, ...], dtype: str, init_value: float | None) -> Memory:
    kind = NUMPY_DTYPES[dtype]
    size = int(np.prod(shape, dtype=np.int64)) * kind.itemsize
    if init_value is None:
        return Memory(name, size, writable=True)
    return Memory(name, size, np.full(size // kind.itemsize, init_value, kind).view(np.uint8), writable=True)


@functools.lru_cache(maxsize=1024)
def _compiled(
    source: Source, inputs: tuple[Argument, ...], launch: Shape, variant: Variant
) -> tuple[Compiled, Signature]:
    """``launch`` counts by its dtypes and template only: callers leave the rest at a fixed value."""
    signature = generate(
        source.name,
        source.source,
        inputs,
        source.output_names,
        launch.output_dtypes,
        launch.template,
        source.atomic_outputs,
    )
    header_file, body_file = f"{source.name}.header.metal", f"{source.name}.metal"
    text = "".join(
        (
            numbered(header_file, source.header),
            f'#line 1 "signature"\n{signature.text}',
            numbered(body_file, source.source),
            "}\n",
            entry_function(signature.call, signature.parameters),
        )
    )
    library = kernel_library(text, mlx_headers.prelude(), variant, source.name)
    return Compiled(source.name, library, (body_file, header_file)), signature


def run(
    source: Source, arrays: Sequence[np.ndarray], launch: Shape, options: Options | None = None
) -> tuple[list[np.ndarray], Counts]:
    """Runs the kernel: its outputs and what was counted.

    Arrays of the dtypes of `NUMPY_DTYPES`, in the order of the input names; strided ones are copied unless
    ``source.ensure_row_contiguous`` is False. Raises KernelError for every fault of the kernel, ValueError and
    TypeError for arguments that do not fit.
    """
    options = options or Options()
    if len(arrays) != len(source.input_names):
        raise ValueError(f"[{source.name}] inputs must have {len(source.input_names)} entries; got {len(arrays)}")
    if source.ensure_row_contiguous:
        arrays = [np.ascontiguousarray(a) if a.ndim else a for a in arrays]
    arguments = tuple(Argument(n, dtype_name(a), a.shape) for n, a in zip(source.input_names, arrays, strict=True))
    fixed = replace(launch, output_shapes=(), grid=(1, 1, 1), threadgroup=(1, 1, 1), init_value=None)
    # Sizes matter only as small or not, so that a new shape does not mean a new build.
    marks = tuple(replace(a, shape=_mark(a)) for a in arguments)
    compiled, signature = _compiled(source, marks, fixed, Variant(options.checked, options.fma))
    memories = _input_memories(arrays, source, signature)
    for name, shape, dtype in zip(source.output_names, launch.output_shapes, launch.output_dtypes, strict=True):
        memories.append(_output_memory(name, shape, dtype, launch.init_value))
    outcome = execute(compiled, memories, launch.grid, launch.threadgroup, options)
    results = [
        data.view(NUMPY_DTYPES[dtype]).reshape(shape)
        for data, shape, dtype in zip(
            outcome.outputs[len(memories) - len(source.output_names) :],
            launch.output_shapes,
            launch.output_dtypes,
            strict=True,
        )
        if data is not None
    ]
    return results, outcome.counts


def _mark(argument: Argument) -> tuple[int, ...]:
    if not argument.shape:
        return ()
    return (1,) if argument.size < SMALL else (SMALL,)


__all__ = ["NUMPY_DTYPES", "KernelError", "Shape", "Source", "dtype_name", "memory_of", "run"]
