"""From a call of the attention function to what a kernel is given: the kernel objects, their switches, their operands.

Every attention kernel has the same inputs in the same order, so that one kernel object serves all calls; a feature
that a call does not have is switched off by a template constant, and a placeholder of one element stands for its array.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import mlx.core as mx

from mlx_tx.arguments import AttentionArrays, AttentionSpec
from mlx_tx.kernels.executor import Kernel, TemplateValue
from mlx_tx.kernels.sources import COMMON, read_source

Template = tuple[tuple[str, TemplateValue], ...]

INPUTS = (
    *("q", "k", "v", "mask", "bias", "sinks", "slopes", "kv_lengths"),
    *("q_segments", "kv_segments", "q_offset", "sizes", "factors"),
)
# Names and order of the kernels: inputs, outputs.
SIGNATURES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "attention_forward": (INPUTS, ("out", "lse")),
    "attention_decode": (INPUTS, ("partial", "stats")),
    "attention_merge": (("partial", "stats", "sinks", "sizes"), ("out", "lse")),
}
# Distances fit in 32 bits: lengths below this, offsets within 2**30 of zero.
LONGEST = 2**29
UNBOUNDED = 2**31 - 1
BOOLEAN, ADDITIVE = 1, 2


@lru_cache(maxsize=16)
def kernel(name: str) -> Kernel:
    """The kernel of that name; its source and the shared header are read once."""
    inputs, outputs = SIGNATURES[name]
    source = read_source(f"{name}.metal")
    return Kernel(name, inputs, outputs, source, read_source(COMMON), ensure_row_contiguous=False)


@dataclass(frozen=True)
class Work:
    """One launch, ready to run: everything but the stream."""

    kernel: Kernel
    inputs: tuple[mx.array, ...]
    output_shapes: tuple[tuple[int, ...], ...]
    output_dtypes: tuple[mx.Dtype, ...]
    groups: tuple[int, int, int]
    threads: int
    template: Template

    @property
    def label(self) -> str:
        """Kernel and template values, by which a user can tell instantiations apart."""
        values = ", ".join(f"{name}={_shown(value)}" for name, value in self.template)
        return f"{self.kernel.name}<{values}>"

    @property
    def instantiation(self) -> tuple[Any, ...]:
        """What makes a kernel another one to the compiler: template, dtypes, and which inputs are small."""
        marks = tuple((str(x.dtype), x.size < 8) for x in self.inputs)
        return (self.kernel.name, str(self.template), marks)

    def run(self, stream: Any = None) -> list[mx.array]:
        """Launches on the executor in force."""
        x, y, z = self.groups
        return self.kernel(
            self.inputs,
            output_shapes=self.output_shapes,
            output_dtypes=self.output_dtypes,
            grid=(x * self.threads, y, z),
            threadgroup=(self.threads, 1, 1),
            template=self.template,
            stream=stream,
        )


def _shown(value: TemplateValue) -> str:
    return str(value).removeprefix("mlx.core.") if isinstance(value, mx.Dtype) else str(int(value))


def switches(spec: AttentionSpec, arrays: AttentionArrays) -> Template:
    """The features of a call as template values, in the order in which every kernel has them."""
    mask = 0
    if arrays.mask is not None:
        mask = BOOLEAN if arrays.mask.dtype == mx.bool_ else ADDITIVE
    return (
        ("Id", _id_dtype(arrays)),
        ("LEFT", spec.left is not None),
        ("RIGHT", spec.right is not None),
        ("LENGTHS", arrays.kv_lengths is not None),
        ("SEGMENTS", arrays.q_segments is not None),
        ("MASK", mask),
        ("BIAS", arrays.bias is not None),
        ("ALIBI", arrays.slopes is not None),
        ("SOFTCAP", spec.softcap is not None),
    )


def operands(spec: AttentionSpec, arrays: AttentionArrays, splits: int = 1) -> tuple[mx.array, ...]:
    """The inputs of a kernel, in the order of ``INPUTS``: views of the caller's arrays, not copies.

    Masks and biases are broadcast by strides of zero. The small arrays, which the kernels read by index, are laid out
    row by row.
    """
    whole = (spec.B, spec.N_q, spec.T_q, spec.T_kv)
    ids = _id_dtype(arrays)

    def scores_like(x: mx.array | None) -> mx.array:
        return placeholder(mx.bool_, 4) if x is None else mx.broadcast_to(x, whole)

    return (
        *(x.astype(spec.dtype) for x in (arrays.q, arrays.k, arrays.v)),
        *(scores_like(x) for x in (arrays.mask, arrays.bias)),
        *(small(by_batch(spec, x), mx.float32) for x in (arrays.sinks, arrays.slopes)),
        small(arrays.kv_lengths, mx.int32),
        *(small(x, ids) for x in (arrays.q_segments, arrays.kv_segments)),
        small(by_batch(spec, arrays.q_offset), mx.int32),
        sizes(spec, splits),
        mx.array([spec.scale, 1.0 if spec.softcap is None else spec.softcap], dtype=mx.float32),
    )


def small(x: mx.array | None, dtype: mx.Dtype) -> mx.array:
    """An array that kernels read by index, row by row in memory, or its placeholder."""
    return placeholder(dtype, 1) if x is None else mx.contiguous(x.astype(dtype))


@lru_cache(maxsize=16)
def placeholder(dtype: mx.Dtype, ndim: int) -> mx.array:
    """What stands for an array that a call does not have: one zero, made once, since making it would be a launch."""
    value: Any = 0
    for _ in range(ndim):
        value = [value]
    return mx.array(value, dtype=dtype)


def by_batch(spec: AttentionSpec, x: mx.array | None) -> mx.array | None:
    """An array whose first axis is the batch or 1, with a row for each batch row."""
    return None if x is None else mx.broadcast_to(x, (spec.B, *x.shape[1:]))


def sizes(spec: AttentionSpec, splits: int = 1) -> mx.array:
    """The numbers that kernels read as ``sizes``. Those that the grid tells are not among them."""
    left, right = (UNBOUNDED if side is None else min(side, UNBOUNDED) for side in (spec.left, spec.right))
    values = (spec.T_q, spec.T_kv, spec.group, spec.D, spec.D_v, left, right, splits)
    return mx.array(values, dtype=mx.int32)


def _id_dtype(arrays: AttentionArrays) -> mx.Dtype:
    """The dtype segment ids are compared in: it keeps different ids different."""
    if arrays.q_segments is None or arrays.kv_segments is None:
        return mx.int32
    one, other = arrays.q_segments.dtype, arrays.kv_segments.dtype
    common = one if one == other else mx.result_type(arrays.q_segments, arrays.kv_segments)
    return mx.int64 if common.size == 8 else mx.int32
