"""MLX's own kernels on the emulated device: compiled from the headers MLX ships, launched slot by slot."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import ml_dtypes
import numpy as np

from . import mlx_headers
from .build import Variant, kernel_library
from .custom import NUMPY_DTYPES, memory_of
from .entry import entry_function, numbered, parse_parameters
from .launch import EMPTY, Compiled, Memory, execute
from .options import Counts, Options
from .rewrite import function_constants
from .signature import METAL_NAMES, Parameter


@dataclass(frozen=True)
class LibraryKernel:
    """A kernel function of one of MLX's headers.

    header: the file's name below MLX's kernels directory; ``text`` replaces its contents when given.
    function, template: the function and the template arguments as they stand in C++.
    includes: headers of MLX that must come first, by name below the kernels directory.
    before: Metal code that must come first.
    """

    header: str
    function: str
    template: tuple[str, ...] = ()
    includes: tuple[str, ...] = ()
    before: str = ""
    text: str | None = None

    @property
    def call(self) -> str:
        return self.function + (f"<{', '.join(self.template)}>" if self.template else "")


@dataclass(frozen=True)
class Output:
    """A buffer the kernel writes: undefined before, or filled with ``init``."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    init: float | None = None


Buffers = dict[int, tuple[str, np.ndarray] | Output]  # by slot: (name, array) for an input


def headers_root() -> Path:
    """The headers of the installed MLX, which are those of the macOS wheel of its version; else that wheel's."""
    return mlx_headers.installed_root() or mlx_headers.wheel_root()


@functools.lru_cache(maxsize=1024)
def _compiled(
    kernel: LibraryKernel, variant: Variant, root: Path
) -> tuple[Compiled, tuple[Parameter, ...], dict[str, tuple[int, str]]]:
    text = kernel.text
    if text is None:
        text = (root / mlx_headers.KERNELS / kernel.header).read_text(encoding="utf-8")
    parameters = parse_parameters(text, kernel.function)
    headers = mlx_headers.headers(root, *(f"{mlx_headers.KERNELS}/{name}" for name in kernel.includes))
    file = Path(kernel.header).name
    source = numbered("before", kernel.before) + numbered(file, text) + entry_function(kernel.call, parameters)
    library = kernel_library(source, headers, variant, kernel.call)
    return Compiled(kernel.call, library, (file,)), parameters, function_constants(text)


def launch(
    kernel: LibraryKernel,
    buffers: Mapping[int, tuple[str, np.ndarray] | Output],
    groups: Sequence[int],
    threadgroup: Sequence[int],
    options: Options | None = None,
    constants: Mapping[str, bool | int] | None = None,
    root: Path | None = None,
) -> tuple[list[np.ndarray], Counts]:
    """Runs ``groups`` threadgroups. ``buffers`` by slot: (name, array) for an input, `Output` for an output.

    Function constants that are not given are false or 0. Returns the outputs in the order of their slots.
    """
    options = options or Options()
    compiled, parameters, declared = _compiled(kernel, Variant(options.checked, options.fma), root or headers_root())
    unknown = set(constants or {}) - set(declared)
    if unknown:
        raise ValueError(f"[{kernel.function}] no function constants {sorted(unknown)}; there are {sorted(declared)}")
    slots = 1 + max(parameter.slot for parameter in parameters)
    memories: list[Memory] = [EMPTY] * slots
    outputs: list[tuple[int, Output]] = []
    for slot, content in sorted(buffers.items()):
        if isinstance(content, Output):
            kind = NUMPY_DTYPES[content.dtype]
            size = int(np.prod(content.shape, dtype=np.int64)) * kind.itemsize
            data = None if content.init is None else np.full(size // kind.itemsize, content.init, kind).view(np.uint8)
            memories[slot] = Memory(content.name, size, data, writable=True)
            outputs.append((slot, content))
        else:
            memories[slot] = memory_of(*content)
    values = {name: (kind, (constants or {}).get(name, 0)) for name, (_, kind) in declared.items()}
    grid = [g * t for g, t in zip(groups, threadgroup, strict=True)]
    outcome = execute(compiled, memories, grid, threadgroup, options, values)
    results = []
    for slot, output in outputs:
        data = outcome.outputs[slot]
        assert data is not None
        results.append(data.view(NUMPY_DTYPES[output.dtype]).reshape(output.shape))
    return results, outcome.counts


def scalar(value: float, dtype: str) -> np.ndarray:
    """A 0-d array for a parameter that is passed by reference."""
    return np.array(value, NUMPY_DTYPES[dtype])


def metal_type(array: np.ndarray) -> str:
    """The type of the array's elements, as MLX's templates are instantiated."""
    name = "bfloat16" if array.dtype == ml_dtypes.bfloat16 else array.dtype.name
    return METAL_NAMES[name]
