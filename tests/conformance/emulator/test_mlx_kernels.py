"""MLX's kernels that are not attention, on the emulated device: softmax, logsumexp, cross entropy, reductions, scans,
dot products, ranges, a recurrent layer on simdgroup matrices, and a matrix product."""

from __future__ import annotations

from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest

from mlx_tx_conformance.emulator import Options
from mlx_tx_conformance.emulator.mlx_library import LibraryKernel, Output, launch, metal_type, scalar

DTYPES = {"float32": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16}
ROUNDING = {"float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}
ORDERS = (
    Options(),
    Options(order="reverse"),
    Options(order="random", seed=5),
    Options(checked=True),
    Options(checked=True, order="random", seed=6),
)
REDUCE = ("atomic.h", "reduction/ops.h")


def normal(seed: int, shape: tuple[int, ...], dtype: str = "float32", scale: float = 1.0) -> np.ndarray:
    values = np.random.default_rng(seed).standard_normal(shape) * scale
    return values.astype(np.float32).astype(DTYPES[dtype])


def in_every_order(run: Callable[[Options], np.ndarray]) -> np.ndarray:
    """The result, which must be the same bit for bit in every order and build."""
    first, *others = [run(options) for options in ORDERS]
    for options, other in zip(ORDERS[1:], others, strict=True):
        assert other.tobytes() == first.tobytes(), options
    return first.astype(np.float64)


def row_kernel(kernel: LibraryKernel, x: np.ndarray, output: Output, threads: int) -> np.ndarray:
    axis = scalar(x.shape[-1], "int32")

    def run(options: Options) -> np.ndarray:
        buffers = {0: ("in", x), 1: output, 2: ("axis_size", axis)}
        return launch(kernel, buffers, (x.shape[0], 1, 1), (threads, 1, 1), options)[0][0]

    return in_every_order(run)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("size", "threads", "function"), [(37, 32, "single_row"), (300, 96, "single_row"), (5000, 1024, "looped")]
)
def test_softmax(dtype: str, size: int, threads: int, function: str) -> None:
    x = normal(1, (2, size), dtype, scale=3.0)
    kernel = LibraryKernel("softmax.h", f"softmax_{function}", (metal_type(x), "float"))
    out = row_kernel(kernel, x, Output("out", x.shape, dtype), threads)
    wide = x.astype(np.float64)
    expected = np.exp(wide - wide.max(-1, keepdims=True))
    expected /= expected.sum(-1, keepdims=True)
    np.testing.assert_allclose(out, expected, rtol=ROUNDING[dtype] + 4e-6, atol=6e-8)  # atol: half's denormals


@pytest.mark.parametrize(("size", "threads", "function"), [(37, 32, "logsumexp"), (5000, 1024, "logsumexp_looped")])
def test_log_sum_exp(size: int, threads: int, function: str) -> None:
    x = normal(2, (3, size), scale=5.0)
    out = row_kernel(LibraryKernel("logsumexp.h", function, ("float",)), x, Output("out", (3,), "float32"), threads)
    wide = x.astype(np.float64)
    largest = wide.max(-1)
    np.testing.assert_allclose(out, largest + np.log(np.exp(wide - largest[:, None]).sum(-1)), rtol=1e-6)


def test_cross_entropy_and_its_gradient() -> None:
    x, targets = normal(3, (4, 70)), np.array([0, 69, -1, 17], np.int32)
    axis = ("axis_size", scalar(70, "int32"))
    wide = x.astype(np.float64)
    log_sum = np.log(np.exp(wide).sum(-1))
    loss = log_sum - wide[np.arange(4), targets]

    def forward(options: Options) -> np.ndarray:
        buffers = {0: ("in", x), 1: ("targets", targets), 2: Output("out", (4,), "float32"), 3: axis}
        return launch(
            LibraryKernel("cross_entropy.h", "cross_entropy", ("float",)), buffers, (4, 1, 1), (64, 1, 1), options
        )[0][0]

    np.testing.assert_allclose(in_every_order(forward), loss, rtol=2e-6)
    cotangent = normal(4, (4,))

    def backward(options: Options) -> np.ndarray:
        buffers = {
            0: ("in", x),
            1: ("targets", targets),
            2: ("loss", loss.astype(np.float32)),
            3: ("cotan", cotangent),
            4: Output("out", x.shape, "float32"),
            5: axis,
        }
        kernel = LibraryKernel("cross_entropy.h", "cross_entropy_vjp", ("float",))
        return launch(kernel, buffers, (4, 1, 1), (64, 1, 1), options)[0][0]

    gradient = np.exp(wide - log_sum[:, None])
    gradient[np.arange(4), targets] -= 1
    np.testing.assert_allclose(in_every_order(backward), gradient * cotangent[:, None], atol=1e-6)


@pytest.mark.parametrize(("operation", "numpy_of"), [("Sum", np.sum), ("Max", np.max), ("Min", np.min)])
@pytest.mark.parametrize("size", [5, 1000, 4099])
def test_reduction_of_everything(operation: str, numpy_of: Callable[..., float], size: int) -> None:
    x = normal(size, (size,))
    kernel = LibraryKernel("reduction/reduce_all.h", "all_reduce", ("float", "float", f"{operation}<float>"), REDUCE)

    def run(options: Options) -> np.ndarray:
        n = scalar(size, "uint64")
        buffers = {0: ("in", x), 1: Output("out", (1,), "float32"), 2: ("in_size", n), 3: ("row_size", n)}
        return launch(kernel, buffers, (1, 1, 1), (256, 1, 1), options)[0][0]

    np.testing.assert_allclose(
        in_every_order(run)[0], numpy_of(x.astype(np.float64)), atol=2e-4 if operation == "Sum" else 0
    )


def test_reduction_of_integers_is_exact() -> None:
    x = np.arange(-500, 777, dtype=np.int32)
    kernel = LibraryKernel("reduction/reduce_all.h", "all_reduce", ("int", "int64_t", "Sum<int64_t>"), REDUCE)

    def run(options: Options) -> np.ndarray:
        n = scalar(x.size, "uint64")
        buffers = {0: ("in", x), 1: Output("out", (1,), "int64"), 2: ("in_size", n), 3: ("row_size", n)}
        return launch(kernel, buffers, (1, 1, 1), (128, 1, 1), options)[0][0]

    assert in_every_order(run)[0] == x.astype(np.int64).sum()


@pytest.mark.parametrize("inclusive", [True, False])
@pytest.mark.parametrize("reverse", [True, False])
def test_cumulative_sum(inclusive: bool, reverse: bool) -> None:
    x = np.random.default_rng(8).integers(-9, 9, (2, 4500)).astype(np.float32)  # sums of integers are exact
    template = ("float", "float", "CumSum<float>", "4", str(inclusive).lower(), str(reverse).lower())
    kernel = LibraryKernel("scan.h", "contiguous_scan", template, ("binary_ops.h",))

    def run(options: Options) -> np.ndarray:
        buffers = {0: ("in", x), 1: Output("out", x.shape, "float32"), 2: ("axis_size", scalar(x.shape[1], "uint64"))}
        return launch(kernel, buffers, (1, 2, 1), (1024, 1, 1), options)[0][0]

    turned = x[:, ::-1] if reverse else x
    sums = np.cumsum(turned, axis=1)
    expected = sums if inclusive else sums - turned
    np.testing.assert_array_equal(in_every_order(run), expected[:, ::-1] if reverse else expected)


@pytest.mark.parametrize("dtype", DTYPES)
def test_dot_product(dtype: str) -> None:
    a, b = normal(9, (3001,), dtype), normal(10, (3001,), dtype)
    per_thread = 16 // a.itemsize
    kernel = LibraryKernel("dot.h", "dot_product", (metal_type(a), str(per_thread), "256", "8"))
    groups = -(-3001 // (256 * per_thread))

    def run(options: Options) -> np.ndarray:
        buffers = {0: ("a", a), 1: ("b", b), 2: Output("out", (groups,), "float32"), 3: ("n", scalar(3001, "int32"))}
        return launch(kernel, buffers, (groups, 1, 1), (256, 1, 1), options)[0][0]

    expected = (a.astype(np.float64) * b.astype(np.float64)).sum()
    np.testing.assert_allclose(in_every_order(run).sum(), expected, atol=1e-4)


def test_range() -> None:
    def run(options: Options) -> np.ndarray:
        buffers = {
            0: ("start", scalar(1.5, "float32")),
            1: ("step", scalar(0.25, "float32")),
            2: Output("out", (50,), "float32"),
        }
        return launch(LibraryKernel("arange.h", "arange", ("float",)), buffers, (5, 1, 1), (10, 1, 1), options)[0][0]

    np.testing.assert_array_equal(in_every_order(run), 1.5 + 0.25 * np.arange(50))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("M", "N", "K"), [(64, 64, 32), (45, 70, 33)])
def test_matrix_product(dtype: str, M: int, N: int, K: int) -> None:
    a, b = normal(11, (M, K), dtype), normal(12, (N, K), dtype)
    bm = bn = 32
    bk = 16
    parameters = np.zeros(
        1, np.dtype([("ints", np.int32, 8), ("strides", np.int64, 3), ("more", np.int32, 3), ("pad", np.int32)])
    )
    parameters["ints"] = (M, N, K, K, K, N, -(-N // bn), -(-M // bm))
    parameters["more"] = (0, K // bk, 0)
    template = (metal_type(a), str(bm), str(bn), str(bk), "2", "2", "false", "true")
    kernel = LibraryKernel("steel/gemm/kernels/steel_gemm_fused.h", "gemm", template, ("steel/gemm/gemm.h",))
    aligned = {"align_M": M % bm == 0, "align_N": N % bn == 0, "align_K": K % bk == 0}

    def run(options: Options) -> np.ndarray:
        unused = ("addmm_params", np.zeros(24, np.uint8))  # the kernel reads alpha and beta even then
        buffers = {
            0: ("a", a),
            1: ("b", b),
            3: Output("d", (M, N), dtype),
            4: ("params", parameters.view(np.uint8)),
            5: unused,
        }
        groups = (-(-N // bn), -(-M // bm), 1)
        return launch(kernel, buffers, groups, (32, 2, 2), options, aligned)[0][0]

    expected = a.astype(np.float64) @ b.astype(np.float64).T
    np.testing.assert_allclose(in_every_order(run), expected, rtol=ROUNDING[dtype], atol=2e-5)
