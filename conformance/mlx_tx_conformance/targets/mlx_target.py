"""Everything that an MLX implementation needs between a call and its result: arrays, gradients, compile, figures."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from ..call import Call, Result, Unsupported
from ..spec.count_checks import KERNEL_FIGURES
from .arrays import to_numpy
from .base import BaseTarget
from .counted import KernelCounts, figures_of
from .derive import DERIVED, FORWARD_OPS, Arrays, Function, compiled
from .graph import export
from .layouts import Placed, place

FIGURES = frozenset({"peak_bytes", "flops", "matmul_flops", "depth", "seconds"})
MEASURED_RUNS = 3
# Ops whose results have names of their own: those of a model's stages or parameters.
WHOLE_OPS = frozenset({"model", "model_gradients", "model_steps", "cache"})
TIMED_RUNS = 5
# An 8x8 product with accumulation: 512 multiplications and as many additions.
FLOPS_OF_PRODUCT = 1024


class MLXTarget(BaseTarget):
    """An implementation that takes and returns MLX arrays. Subclasses give ``attend`` and, where they have it, more."""

    def attend(self, arrays: Arrays, options: Mapping[str, Any], want_lse: bool) -> tuple[Any, Any]:
        """Attention: (out, lse), the latter ``None`` unless wanted."""
        raise NotImplementedError

    def other(self, op: str, arrays: Arrays, options: Mapping[str, Any]) -> Arrays:
        """Any other op: results by name."""
        del arrays, options
        raise Unsupported(f"no op {op}")

    @contextmanager
    def recording(self, paths: list[str]) -> Iterator[None]:
        """While a call runs: collect the names of the paths that it takes."""
        del paths
        yield

    def prepare(self, call: Call) -> Call:
        """The call as the implementation is given it (an adapter may pose one argument through another)."""
        return call

    def run(self, call: Call) -> Result:
        """See the protocol. Inputs are laid out as the call says and compared afterwards."""
        import mlx.core as mx

        posed = self.prepare(call)
        with on_device(self.device):
            placed = {name: place(array, posed.layout.get(name, "contiguous")) for name, array in posed.arrays.items()}
            watched = {name: p for name, p in placed.items() if posed.layout.get(name) != "donated"}
            arrays = {name: p.view for name, p in placed.items()}
            del placed
            paths: list[str] = []
            with self.recording(paths):
                outputs = self._function(posed)(arrays)
                # Drop the last references but the watched ones: what was handed over as donated can be reused now.
                del arrays
                mx.eval(outputs)
            mutated = tuple(name for name, p in watched.items() if _changed(p, posed.arrays[name]))
            values = {name: to_numpy(array) for name, array in outputs.items()}
        return Result(values, path="+".join(sorted(set(paths))), mutated=mutated)

    def figure(self, call: Call, figure: str) -> float:
        """Peak memory beyond inputs and results, the graph's operation count or depth, or the median time of a run."""
        import mlx.core as mx

        if figure in KERNEL_FIGURES:
            return float(self.kernel_counts(call).figures[figure])
        if figure not in FIGURES:
            raise Unsupported(f"no figure {figure}")
        posed = self.prepare(call)
        with on_device(self.device):
            arrays = {n: place(array, posed.layout.get(n, "contiguous")).view for n, array in posed.arrays.items()}
            mx.eval(arrays)
            function = self._function(posed)
            if self.device == "emulated":
                return _counted(function, arrays, figure)
            if figure == "peak_bytes":
                return float(_peak_bytes(function, arrays))
            if figure == "seconds":
                return _seconds(function, arrays)
            names = list(arrays)
            try:
                graph = export(
                    lambda *values: list(function(dict(zip(names, values, strict=True))).values()),
                    list(arrays.values()),
                    forward=posed.op in FORWARD_OPS,
                )
                return float(getattr(graph, figure)())
            except ValueError as error:
                raise Unsupported(f"no {figure}: {error}") from error

    def kernel_counts(self, call: Call) -> KernelCounts:
        """What the kernels of a call do: every load and store counted by the checked build of the emulated device."""
        import mlx.core as mx

        from .. import emulator

        if self.device != "emulated":
            raise Unsupported("kernels are counted on the emulated device (--device emulated) only")
        posed = self.prepare(call)
        paths: list[str] = []
        with on_device(self.device), emulator.device(checked=True) as device:
            arrays = {n: place(array, posed.layout.get(n, "contiguous")).view for n, array in posed.arrays.items()}
            with self.recording(paths):
                mx.eval(self._function(posed)(arrays))
        if not device.counts:
            raise Unsupported(f"{self.name} runs no kernel of its own for this call, so there is nothing to count")
        counts = sum(device.counts.values(), emulator.Counts())
        return KernelCounts(figures_of(counts), self.tiles(call), "+".join(sorted(set(paths))))

    def tiles(self, call: Call) -> Mapping[str, int]:
        """Sizes of the tiles in which kernels take a call, by the names that closed forms use; none are known here."""
        del call
        return {}

    def _function(self, call: Call) -> Function:
        options = {name: native(value) for name, value in call.options.items() if name != "compiled"}
        options = {name: value for name, value in options.items() if value is not None}
        if call.op in DERIVED:
            function = DERIVED[call.op](self.attend, options, call)
        else:

            def function(arrays: Arrays) -> Arrays:
                results = self.other(call.op, arrays, options)
                return results if call.op in WHOLE_OPS else _wanted(results, call.outputs)

        return compiled(function) if call.options.get("compiled") else function


def native(value: Any) -> Any:
    """A pair from the spec as a Python user writes it."""
    return tuple(value) if isinstance(value, list) else value


def _wanted(results: Arrays, outputs: tuple[str, ...]) -> Arrays:
    return {name: results[name] for name in outputs if name in results}


def _changed(placed: Placed, original: np.ndarray) -> bool:
    now = to_numpy(placed.view)
    return now.dtype != original.dtype or now.tobytes() != original.tobytes() or placed.written_around()


def _peak_bytes(function: Function, arrays: Arrays) -> int:
    """Bytes that the call holds at its peak beyond its inputs (live before) and its results.

    The median of several runs: a device that keeps up with the host frees some arrays before others are made. What is
    live before is the least: a stream may let go of the last run's temporaries after it has reported that run as done.
    """
    import mlx.core as mx

    before, peaks = [], []
    for _ in range(MEASURED_RUNS):
        mx.synchronize()
        mx.clear_cache()
        before.append(mx.get_active_memory())
        mx.reset_peak_memory()
        results = function(arrays)
        mx.eval(results)
        mx.synchronize()
        peaks.append(mx.get_peak_memory() - sum(array.nbytes for array in results.values()))
        del results
    return max(0, int(statistics.median(peaks)) - min(before))


def _counted(function: Function, arrays: Arrays, figure: str) -> float:
    """Operations that kernels did on the emulated device: of the 8x8 products, and the exponentials with them."""
    import mlx.core as mx

    from .. import emulator

    if figure not in ("flops", "matmul_flops"):
        raise Unsupported(f"no figure {figure} on the emulated device, which counts what kernels do")
    with emulator.device() as device:
        mx.eval(function(arrays))
    counts = sum(device.counts.values(), emulator.Counts())
    products = FLOPS_OF_PRODUCT * counts.mma
    return float(products if figure == "matmul_flops" else products + counts.exp)


def _seconds(function: Function, arrays: Arrays) -> float:
    """Median wall time of a run on arrays that are there, the first run apart."""
    import mlx.core as mx

    times = []
    for _ in range(1 + TIMED_RUNS):
        start = time.perf_counter()
        mx.eval(function(arrays))
        mx.synchronize()
        times.append(time.perf_counter() - start)
    return statistics.median(times[1:])


@contextmanager
def on_device(device: str) -> Iterator[None]:
    """Run on a device without changing the process's default for anybody else."""
    import mlx.core as mx

    if device == "emulated":
        from .. import emulator

        with mx.stream(mx.cpu), emulator.device():
            yield
        return
    with mx.stream(mx.gpu if device == "gpu" else mx.cpu):
        yield
