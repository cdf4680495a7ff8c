"""Everything that an MLX implementation needs between a call and its result: arrays, gradients, compile, figures."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from ..call import Call, Result, Unsupported
from .arrays import to_numpy
from .base import BaseTarget
from .graph import export
from .layouts import Placed, place

FIGURES = frozenset({"peak_bytes", "flops", "depth"})

Arrays = dict[str, Any]
Function = Callable[[Arrays], Arrays]


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
        with _on(self.device):
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
        """Peak memory beyond inputs and results while running, or the exported graph's operation count or depth."""
        import mlx.core as mx

        if figure not in FIGURES:
            raise Unsupported(f"no figure {figure}")
        posed = self.prepare(call)
        with _on(self.device):
            arrays = {n: place(array, posed.layout.get(n, "contiguous")).view for n, array in posed.arrays.items()}
            mx.eval(arrays)
            function = self._function(posed)
            if figure == "peak_bytes":
                return float(_peak_bytes(function, arrays))
            names = list(arrays)
            graph = export(
                lambda *values: list(function(dict(zip(names, values, strict=True))).values()), list(arrays.values())
            )
        try:
            return float(graph.flops() if figure == "flops" else graph.depth())
        except ValueError as error:
            raise Unsupported(str(error)) from error

    def _function(self, call: Call) -> Function:
        options = {name: value for name, value in call.options.items() if name != "compiled" and value is not None}
        if call.op == "attention":
            function = self._attention(options, call.outputs)
        elif call.op == "attention_gradients":
            function = self._gradients(options, call.outputs, call)
        else:
            function = lambda arrays: _wanted(self.other(call.op, arrays, options), call.outputs)  # noqa: E731
        return _compiled(function) if call.options.get("compiled") else function

    def _attention(self, options: Mapping[str, Any], outputs: tuple[str, ...]) -> Function:
        def function(arrays: Arrays) -> Arrays:
            out, lse = self.attend(arrays, options, "lse" in outputs)
            return {"out": out} if lse is None else {"out": out, "lse": lse}

        return function

    def _gradients(self, options: Mapping[str, Any], outputs: tuple[str, ...], call: Call) -> Function:
        names = [name for name in outputs if name in call.arrays]

        def function(arrays: Arrays) -> Arrays:
            import mlx.core as mx

            # Copies of the names, not of the arrays: the caller drops its own and donation stays possible.
            arrays = dict(arrays)
            cotangents = [arrays.pop(name) for name in ("d_out", "d_lse") if name in arrays]
            fixed = {name: array for name, array in arrays.items() if name not in names}

            def values(*primals: Any) -> list[Any]:
                given = {**fixed, **dict(zip(names, primals, strict=True))}
                out, lse = self.attend(given, options, len(cotangents) > 1 or "lse" in outputs)
                return [out] if lse is None else [out, lse]

            if "lse" in outputs and len(cotangents) == 1:
                cotangents.append(mx.zeros(cotangents[0].shape[:-1], dtype=mx.float32))
            results, gradients = mx.vjp(values, [arrays[name] for name in names], cotangents)
            found = dict(zip(names, gradients, strict=True))
            return {**found, **dict(zip(("out", "lse"), results, strict=False))}

        return function


def _compiled(function: Function) -> Function:
    """The same function through mx.compile."""

    def run(arrays: Arrays) -> Arrays:
        import mlx.core as mx

        names, found = list(arrays), []

        def flat(*values: Any) -> list[Any]:
            results = function(dict(zip(names, values, strict=True)))
            found[:] = list(results)
            return list(results.values())

        values = mx.compile(flat)(*arrays.values())
        return dict(zip(found, values, strict=True))

    return run


def _wanted(results: Arrays, outputs: tuple[str, ...]) -> Arrays:
    return {name: results[name] for name in outputs if name in results}


def _changed(placed: Placed, original: np.ndarray) -> bool:
    now = to_numpy(placed.view)
    return now.dtype != original.dtype or now.tobytes() != original.tobytes() or placed.written_around()


def _peak_bytes(function: Function, arrays: Arrays) -> int:
    """Bytes that the call holds at its peak beyond its inputs (live before) and its results."""
    import mlx.core as mx

    mx.eval(function(arrays))  # the first run may compile or cache something that belongs to no single call
    mx.synchronize()
    mx.clear_cache()
    before = mx.get_active_memory()
    mx.reset_peak_memory()
    results = function(arrays)
    mx.eval(results)
    mx.synchronize()
    return max(0, mx.get_peak_memory() - before - sum(array.nbytes for array in results.values()))


@contextmanager
def _on(device: str) -> Iterator[None]:
    """Run on a device without changing the process's default for anybody else."""
    import mlx.core as mx

    if device == "emulated":
        from .. import emulator

        with mx.stream(mx.cpu), emulator.device():  # type: ignore[attr-defined]
            yield
        return
    with mx.stream(mx.gpu if device == "gpu" else mx.cpu):
        yield
