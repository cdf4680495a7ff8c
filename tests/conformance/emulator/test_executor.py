"""Kernels of mlx_tx.kernels on the emulated device: MLX arrays in and out, gradients, and what is refused."""

from __future__ import annotations

import mlx.core as mx
import numpy as np
import pytest

from mlx_tx.kernels import Kernel, current_executor, kernels_available
from mlx_tx_conformance import emulator
from mlx_tx_conformance.emulator import KernelError

SCALE_AND_ADD = Kernel(
    "scale_and_add",
    ("x", "y", "a"),
    ("out",),
    """
    uint i = thread_position_in_grid.x;
    out[i] = T(a * float(x[i]) + float(y[i]));
    """,
)


def scale_and_add(x: mx.array, y: mx.array, a: float) -> mx.array:
    return SCALE_AND_ADD(
        [x, y, a],
        output_shapes=[x.shape],
        output_dtypes=[x.dtype],
        grid=(x.size, 1, 1),
        threadgroup=(32, 1, 1),
        template=[("T", x.dtype)],
    )[0]


@pytest.mark.parametrize("dtype", [mx.float32, mx.float16, mx.bfloat16])
@pytest.mark.parametrize("size", [1, 7, 8, 40])
@pytest.mark.parametrize("checked", [False, True])
def test_a_kernel_computes_on_mlx_arrays(dtype: mx.Dtype, size: int, checked: bool) -> None:
    x = mx.arange(size).astype(dtype)
    y = mx.full((size,), 0.5, dtype)
    with emulator.device(checked=checked):
        out = scale_and_add(x, y, 2.0)
    assert out.dtype == dtype
    assert out.tolist() == [2.0 * i + 0.5 for i in range(size)]


def test_outside_the_block_kernels_are_metal_s_again() -> None:
    with emulator.device():
        assert current_executor().name == "metal (emulated)"
        assert kernels_available()
    assert current_executor().name == "metal"


def test_strided_inputs_are_copied_or_handed_over_as_they_lie() -> None:
    body = "uint i = thread_position_in_grid.x; out[i] = x[i * {step}];"
    whole = mx.arange(24, dtype=mx.bfloat16).reshape(12, 2)
    column = whole[:, 1]
    for contiguous, step in ((True, "1"), (False, "x_strides[0]")):
        kernel = Kernel("column", ("x",), ("out",), body.format(step=step), ensure_row_contiguous=contiguous)
        with emulator.device(checked=True):
            out = kernel(
                [column], output_shapes=[(12,)], output_dtypes=[mx.bfloat16], grid=(12, 1, 1), threadgroup=(4, 1, 1)
            )[0]
        assert out.tolist() == [float(n) for n in range(1, 24, 2)]


def test_the_stretch_behind_a_slice_is_out_of_bounds() -> None:
    kernel = Kernel("past", ("x",), ("out",), "out[thread_position_in_grid.x] = x[16];", ensure_row_contiguous=False)
    front = mx.arange(32, dtype=mx.float32)[:16]
    with emulator.device(checked=True), pytest.raises(KernelError) as caught:
        kernel([front], output_shapes=[(1,)], output_dtypes=[mx.float32], grid=(1, 1, 1), threadgroup=(1, 1, 1))
    assert (caught.value.kind, caught.value.buffer, caught.value.offset) == ("out-of-bounds", "x", 64)


def test_gradients_pass_through_a_custom_function() -> None:
    @mx.custom_function
    def twice(x: mx.array) -> mx.array:
        return scale_and_add(x, mx.zeros_like(x), 2.0)

    @twice.vjp
    def twice_vjp(primals: mx.array, cotangent: mx.array, _: mx.array) -> mx.array:
        del primals
        return scale_and_add(cotangent, mx.zeros_like(cotangent), 2.0)

    with emulator.device():
        gradient = mx.grad(lambda x: twice(x * x).sum())(mx.array([1.0, 2.0, 3.0]))
        checkpointed = mx.grad(lambda x: mx.checkpoint(lambda y: twice(y * y))(x).sum())(mx.array([1.0, 2.0, 3.0]))
    assert gradient.tolist() == [4.0, 8.0, 12.0]
    assert checkpointed.tolist() == [4.0, 8.0, 12.0]


@pytest.mark.parametrize("transform", [mx.compile, mx.vmap])
def test_compile_and_vmap_are_refused_with_the_reason(transform: object) -> None:
    with emulator.device(), pytest.raises(KernelError, match=r"mx\.compile or mx\.vmap") as caught:
        transform(lambda x: scale_and_add(x, x, 1.0))(mx.ones((4, 8)))  # type: ignore[operator]
    assert caught.value.kind == "unsupported"


def test_counts_add_up_by_kernel() -> None:
    x = mx.ones((40,))
    with emulator.device(checked=True) as emulated:
        scale_and_add(x, x, 1.0)
        scale_and_add(x, x, 1.0)
    counts = emulated.counts["scale_and_add"]
    assert counts.bytes_read["x"] == 2 * 160
    assert counts.bytes_written == {"x": 0, "y": 0, "a": 0, "out": 2 * 160}
    assert counts.threadgroups == 4


def test_wrong_numbers_of_arrays_are_named() -> None:
    with emulator.device(), pytest.raises(ValueError, match=r"inputs must have 3 entries; got 1"):
        SCALE_AND_ADD(
            [mx.ones(4)], output_shapes=[(4,)], output_dtypes=[mx.float32], grid=(4, 1, 1), threadgroup=(4, 1, 1)
        )


def test_initial_values_and_python_scalars() -> None:
    kernel = Kernel("sparse", ("flag", "n"), ("out",), "if (flag && thread_position_in_grid.x == 0) out[0] = n;")
    with emulator.device(checked=True):
        out = kernel(
            [True, 3],
            output_shapes=[(4,)],
            output_dtypes=[mx.int32],
            grid=(4, 1, 1),
            threadgroup=(4, 1, 1),
            init_value=7,
        )[0]
    assert np.array(out).tolist() == [3, 7, 7, 7]


def test_a_cache_that_cannot_be_used_is_said_with_what_to_set(tmp_path, monkeypatch):
    from mlx_tx_conformance import emulator

    taken = tmp_path / "file"
    taken.touch()
    monkeypatch.setenv("MLX_TX_CACHE", str(taken))
    reason = emulator.unavailable()
    assert str(taken) in reason
    assert "MLX_TX_CACHE" in reason
