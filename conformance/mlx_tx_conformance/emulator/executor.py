"""The emulated device as an executor of `mlx_tx.kernels`: MLX arrays in, MLX arrays out."""

from __future__ import annotations

import ml_dtypes
import mlx.core as mx
import numpy as np

from mlx_tx.kernels.executor import Kernel, Launch

from .custom import Shape, Source, run
from .errors import unsupported
from .options import Counts, Options


def _dtype_name(dtype: mx.Dtype) -> str:
    return str(dtype).rpartition(".")[2]


def _to_numpy(value: mx.array | float | int | bool) -> np.ndarray:
    """The array as it lies in memory, strides included. Python scalars become what MLX makes of them."""
    array = value if isinstance(value, mx.array) else mx.array(value)
    if array.dtype == mx.bfloat16:
        return np.asarray(array.view(mx.uint16)).view(ml_dtypes.bfloat16)
    return np.asarray(array)


def _to_mlx(array: np.ndarray) -> mx.array:
    if array.dtype == ml_dtypes.bfloat16:
        return mx.array(array.view(np.uint16)).view(mx.bfloat16)
    return mx.array(array)


class EmulatedDevice:
    """Runs kernels on the CPU, at once (not lazily), and adds up what they count.

    ``counts`` maps kernel names to the sum of their launches' counts.
    """

    name = "metal (emulated)"

    def __init__(self, options: Options | None = None) -> None:
        self.options = options or Options()
        self.counts: dict[str, Counts] = {}

    def launch(self, kernel: Kernel, launch: Launch) -> list[mx.array]:
        """Raises KernelError: unsupported inside mx.compile and mx.vmap, whose traces have no values to compute on."""
        arrays = [value for value in launch.inputs if isinstance(value, mx.array)]
        try:
            mx.eval(*arrays)
        except (RuntimeError, ValueError) as error:
            raise unsupported(
                "the emulated device computes at once and cannot run inside mx.compile or mx.vmap "
                f"({str(error).splitlines()[0]})",
                kernel.name,
            ) from error
        source = Source(
            kernel.name,
            kernel.input_names,
            kernel.output_names,
            kernel.source,
            kernel.header,
            kernel.ensure_row_contiguous,
            kernel.atomic_outputs,
        )
        template = tuple((n, _dtype_name(v) if isinstance(v, mx.Dtype) else v) for n, v in launch.template)
        shape = Shape(
            launch.output_shapes,
            tuple(_dtype_name(dtype) for dtype in launch.output_dtypes),
            launch.grid,
            launch.threadgroup,
            template,
            launch.init_value,
        )
        outputs, counts = run(source, [_to_numpy(value) for value in launch.inputs], shape, self.options)
        self.counts[kernel.name] = self.counts.get(kernel.name, Counts()) + counts
        return [_to_mlx(output) for output in outputs]
