"""Where kernels run: on Metal unless an executor is in force, with what it was given."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mlx.core as mx
import pytest

from mlx_tx.kernels import Kernel, Launch, current_executor, kernels_available, use_executor
from mlx_tx.kernels import executor as module

KERNEL = Kernel("double", ("x",), ("out",), "out[thread_position_in_grid.x] = 2 * x[thread_position_in_grid.x];")


class Recorder:
    name = "recorder"

    def __init__(self) -> None:
        self.launches: list[tuple[Kernel, Launch]] = []

    def launch(self, kernel: Kernel, launch: Launch) -> list[mx.array]:
        self.launches.append((kernel, launch))
        return [mx.zeros(shape, dtype) for shape, dtype in zip(launch.output_shapes, launch.output_dtypes, strict=True)]


def double(x: mx.array, **options: Any) -> list[mx.array]:
    return KERNEL(
        [x], output_shapes=[list(x.shape)], output_dtypes=[x.dtype], grid=(4, 1, 1), threadgroup=(2, 1, 1), **options
    )


def test_an_executor_gets_the_kernel_and_the_launch() -> None:
    recorder, x = Recorder(), mx.ones((4,))
    with use_executor(recorder) as installed:
        assert installed is recorder
        assert kernels_available()
        double(x, template=[("T", mx.float16), ("N", 3)], init_value=0.0)
    ((kernel, launch),) = recorder.launches
    assert kernel is KERNEL
    assert launch.inputs == (x,)
    assert (launch.output_shapes, launch.output_dtypes) == (((4,),), (mx.float32,))
    assert (launch.grid, launch.threadgroup) == ((4, 1, 1), (2, 1, 1))
    assert (launch.template, launch.init_value) == ((("T", mx.float16), ("N", 3)), 0.0)


def test_executors_nest_and_end_with_their_block() -> None:
    outer, inner = Recorder(), Recorder()
    with use_executor(outer):
        with use_executor(inner):
            double(mx.ones(4))
        with pytest.raises(RuntimeError, match="stop"), use_executor(inner):
            raise RuntimeError("stop")
        double(mx.ones(4))
    assert (len(outer.launches), len(inner.launches)) == (1, 1)
    assert current_executor().name == "metal"
    assert kernels_available() == mx.metal.is_available()


def test_metal_gets_one_kernel_object_and_the_arguments_of_each_call(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[dict[str, Any]] = []
    called: list[dict[str, Any]] = []

    def metal_kernel(**arguments: Any) -> Callable[..., list[mx.array]]:
        made.append(arguments)
        return lambda **options: called.append(options) or [mx.zeros(4)]  # type: ignore[func-returns-value]

    monkeypatch.setattr(mx.fast, "metal_kernel", metal_kernel)
    module._metal_kernel.cache_clear()
    x = mx.ones((4,))
    double(x, template=[("N", 3)])
    double(x, init_value=1.5, stream=mx.cpu)
    module._metal_kernel.cache_clear()
    assert len(made) == 1
    assert made[0] == {
        "name": "double",
        "input_names": ["x"],
        "output_names": ["out"],
        "source": KERNEL.source,
        "header": "",
        "ensure_row_contiguous": True,
        "atomic_outputs": False,
    }
    assert called[0] == {
        "inputs": [x],
        "template": [("N", 3)],
        "grid": (4, 1, 1),
        "threadgroup": (2, 1, 1),
        "output_shapes": [(4,)],
        "output_dtypes": [mx.float32],
    }
    assert (called[1]["init_value"], called[1]["stream"]) == (1.5, mx.cpu)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"output_shapes": []}, r"\[double\] output_shapes must have 1 entries; got 0"),
        ({"output_dtypes": [mx.float32, mx.float32]}, r"\[double\] output_dtypes must have 1 entries; got 2"),
    ],
)
def test_wrong_numbers_are_named(change: dict[str, Any], message: str) -> None:
    arguments: dict[str, Any] = {"output_shapes": [(4,)], "output_dtypes": [mx.float32], **change}
    with use_executor(Recorder()), pytest.raises(ValueError, match=message):
        KERNEL([mx.ones(4)], grid=(4, 1, 1), threadgroup=(2, 1, 1), **arguments)
