"""Operation counts and dependency depth of any MLX function, from its exported graph.

``mx.export_function`` lists every operation with its operands and shapes without running anything. Counted are
floating-point operations: a product of [m, k] and [k, n] is 2·m·n·k, an element-wise operation one per element of
its result, a reduction one per element of its operand, a softmax four (maximum, subtraction and exponential, sum,
division). Moving and converting data costs nothing. The depth is the number of operations on the longest path from
an input to an output, data movement included.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from typing import Any

# Operations that move, convert or order data.
# fmt: off
FREE = frozenset(
    {
        "Arange", "AsStrided", "AsType", "Broadcast", "BroadcastAxes", "Concatenate", "Contiguous", "Copy",
        "CustomTransforms", "Depends", "DynamicSlice", "DynamicSliceUpdate", "ExpandDims", "Flatten", "Full",
        "Gather", "GatherAxis", "NumberOfElements", "Pad", "RandomBits", "Reshape", "Scatter", "ScatterAxis",
        "Slice", "SliceUpdate", "Split", "Squeeze", "StopGradient", "Transpose", "Unflatten", "View",
    }
)
# fmt: on
REDUCTIONS = frozenset({"Reduce", "Scan", "ArgReduce", "LogSumExp", "Sort", "Partition", "ArgSort", "ArgPartition"})
PRODUCTS = frozenset({"Matmul", "AddMM", "BlockMaskedMM", "GatherMM"})
# Operations whose cost the graph does not tell.
OPAQUE = frozenset({"CustomKernel", "CustomFunction", "Load"})
SOFTMAX_OPS = 4


@dataclass(frozen=True)
class Node:
    """One operation: its name and the names and shapes of its operands and results."""

    name: str
    inputs: tuple[tuple[str, tuple[int, ...]], ...]
    outputs: tuple[tuple[str, tuple[int, ...]], ...]


@dataclass(frozen=True)
class Graph:
    """The operations of a function in execution order, and the names of its results."""

    nodes: tuple[Node, ...]
    outputs: tuple[str, ...]

    def flops(self) -> int:
        """Floating-point operations. Raises ValueError where the graph holds an operation it cannot see into."""
        return sum(flops_of(node) for node in self.nodes)

    def matmul_flops(self) -> int:
        """Those of products alone."""
        return sum(flops_of(node) for node in self.nodes if node.name in PRODUCTS)

    def depth(self) -> int:
        """Operations on the longest path to any output."""
        level: dict[str, int] = {}
        for node in self.nodes:
            here = 1 + max((level.get(name, 0) for name, _ in node.inputs), default=0)
            for name, _ in node.outputs:
                level[name] = here
        return max((level.get(name, 0) for name in self.outputs), default=0)

    def count(self, name: str) -> int:
        """How many operations of one name there are."""
        return sum(node.name == name for node in self.nodes)


def export(function: Callable[..., Any], arrays: Sequence[Any], *, forward: bool = True) -> Graph:
    """The graph of ``function(*arrays)``; the function returns an array or a list of arrays.

    ``forward=False`` for a function that differentiates something.

    Raises ValueError where MLX cannot export an operation.
    """
    import mlx.core as mx

    nodes: list[Node] = []
    outputs: list[str] = []

    def collect(entry: dict[str, Any]) -> None:
        if entry["type"] == "primitive":
            nodes.append(Node(entry["name"], _operands(entry["inputs"]), _operands(entry["outputs"])))
        elif entry["type"] == "outputs":
            outputs.extend(name for name, *_ in entry["outputs"])

    with _exportable(mx, forward):
        mx.export_function(collect, function, *arrays)
    return Graph(tuple(nodes), tuple(outputs))


class _Plain:
    """A stand-in for ``mx.custom_function``: the function itself, its rules for derivatives left out."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        return self.function(*args, **keywords)

    def vjp(self, rule: Any) -> Any:
        return rule

    jvp = vmap = vjp


@contextmanager
def _exportable(mx: Any, forward: bool) -> Iterator[None]:
    """While a graph is traced, what MLX cannot export gives way to what it stands for.

    ``mx.contiguous`` moves data and costs nothing. ``mx.custom_function`` is its function as long as nothing is
    differentiated; a gradient needs its rules, so there it stays (and MLX refuses the export).
    """
    contiguous, custom_function = mx.contiguous, mx.custom_function
    mx.contiguous = lambda array, *_, **__: array
    if forward:
        mx.custom_function = _Plain
    try:
        yield
    finally:
        mx.contiguous, mx.custom_function = contiguous, custom_function


def flops_of(node: Node) -> int:
    """Floating-point operations of one node."""
    result = prod(node.outputs[0][1]) if node.outputs else 0
    if node.name in FREE:
        return 0
    if node.name in OPAQUE:
        raise ValueError(f"the graph holds {node.name}, whose operations it does not tell")
    if node.name in PRODUCTS:
        inner = node.inputs[0][1][-1]
        return 2 * result * inner + (result if node.name == "AddMM" else 0)
    if node.name == "Softmax":
        return SOFTMAX_OPS * result
    if node.name in REDUCTIONS:
        return prod(node.inputs[0][1])
    if "ScaledDotProductAttention" in node.name:
        q, k, v = (shape for _, shape in node.inputs[:3])
        scores = prod(q[:-1]) * k[-2]
        return 2 * scores * (q[-1] + v[-1]) + SOFTMAX_OPS * scores
    return result


def _operands(entries: Sequence[Sequence[Any]]) -> tuple[tuple[str, tuple[int, ...]], ...]:
    return tuple((entry[0], tuple(entry[1])) for entry in entries)
