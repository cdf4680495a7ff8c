"""The generated kernel function is the one MLX itself prints, character for character."""

from __future__ import annotations

import re
from collections.abc import Sequence

import mlx.core as mx
import pytest

from mlx_tx_conformance.emulator.signature import ATTRIBUTES, Argument, generate

DTYPES = (
    "float32",
    "float16",
    "bfloat16",
    "bool",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
)


def mlx_dtype(name: str) -> mx.Dtype:
    return getattr(mx, "bool_" if name == "bool" else name)


def printed_by_mlx(
    capfd: pytest.CaptureFixture[str],
    source: str,
    inputs: Sequence[mx.array],
    output_dtypes: Sequence[str],
    template: Sequence[tuple[str, object]] = (),
    atomic_outputs: bool = False,
) -> str:
    """What MLX's own generator writes, from a traced (never evaluated) call."""
    names = [f"in{i}" for i in range(len(inputs))]
    kernel = mx.fast.metal_kernel(
        name="probe",
        input_names=names,
        output_names=[f"out{i}" for i in range(len(output_dtypes))],
        source=source,
        atomic_outputs=atomic_outputs,
    )

    def call(*arrays: mx.array) -> list[mx.array]:
        return kernel(
            inputs=list(arrays),
            template=list(template),
            grid=(4, 1, 1),
            threadgroup=(4, 1, 1),
            output_shapes=[(4,)] * len(output_dtypes),
            output_dtypes=[mlx_dtype(dtype) for dtype in output_dtypes],
            verbose=True,
            stream=mx.gpu,
        )

    mx.export_function(lambda _: None, call, *inputs)
    text = re.search(r"```\n(.*)```", capfd.readouterr().out, re.S)
    assert text
    return text.group(1)


def generated(
    source: str,
    inputs: Sequence[mx.array],
    output_dtypes: Sequence[str],
    template: Sequence[tuple[str, object]] = (),
    atomic_outputs: bool = False,
) -> str:
    arguments = [Argument(f"in{i}", str(a.dtype).split(".")[-1], a.shape) for i, a in enumerate(inputs)]
    values = [(n, str(v).split(".")[-1] if isinstance(v, mx.Dtype) else v) for n, v in template]
    outputs = [f"out{i}" for i in range(len(output_dtypes))]
    signature = generate("probe", source, arguments, outputs, output_dtypes, values, atomic_outputs)  # type: ignore[arg-type]
    text = signature.text + source + "\n}\n"
    if template:
        name = signature.function
        text += f'\ntemplate [[host_name("{name}")]] [[kernel]] decltype({signature.call}) {signature.call};\n'
    return text


def normalised(text: str) -> str:
    return "\n".join(line for line in text.splitlines() if line.strip())


SHAPES = [(), (1,), (7,), (8,), (3, 2), (2, 4), (33, 5)]
SOURCES = [
    "out0[thread_position_in_grid.x] = in0[0];",
    "int n = in0_shape[0]; out0[thread_position_in_grid.x] = n;",
    "out0[thread_position_in_grid.x] = in0_strides[0] + in1_ndim + in1_shape[0];",
    "// in0_ndim in a comment counts too\n out0[0] = threads_per_threadgroup.x;",
]


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("shape", SHAPES)
def test_inputs_by_size_and_the_names_the_source_uses(
    capfd: pytest.CaptureFixture[str], source: str, shape: tuple[int, ...]
) -> None:
    inputs = [mx.zeros(shape), mx.zeros((9,), mx.int32)]
    expected = printed_by_mlx(capfd, source, inputs, ["float32"])
    assert normalised(generated(source, inputs, ["float32"])) == normalised(expected)


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_as_input_output_and_template(capfd: pytest.CaptureFixture[str], dtype: str) -> None:
    source = "out0[thread_position_in_grid.x] = in0[0];"
    inputs = [mx.zeros((9,), mlx_dtype(dtype)), mx.array(1).astype(mlx_dtype(dtype))]
    template = [("T", mlx_dtype(dtype)), ("D", 64), ("CAUSAL", True), ("WINDOW", False)]
    expected = printed_by_mlx(capfd, source, inputs, [dtype, "float32"], template)
    assert normalised(generated(source, inputs, [dtype, "float32"], template)) == normalised(expected)


def test_every_attribute_and_atomic_outputs(capfd: pytest.CaptureFixture[str]) -> None:
    source = " ".join(ATTRIBUTES)
    inputs = [mx.zeros((3,)), mx.zeros((40,))]
    expected = printed_by_mlx(capfd, source, inputs, ["float32", "int32"], atomic_outputs=True)
    assert normalised(generated(source, inputs, ["float32", "int32"], atomic_outputs=True)) == normalised(expected)


def test_python_scalars_are_references(capfd: pytest.CaptureFixture[str]) -> None:
    source = "out0[thread_position_in_grid.x] = in0 + in1 + in2;"
    inputs = [mx.array(1), mx.array(2.0), mx.array(True)]
    expected = printed_by_mlx(capfd, source, inputs, ["float16"])
    assert normalised(generated(source, inputs, ["float16"])) == normalised(expected)
    assert "const constant int32_t& in0 [[buffer(0)]]" in expected
