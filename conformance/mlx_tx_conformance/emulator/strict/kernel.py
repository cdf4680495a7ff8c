"""What the check is told about a kernel, and the text that MLX makes of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from ..signature import SMALL, Argument, Signature, TemplateValue, generate

SHAPE_SUFFIXES = ("_shape", "_strides", "_ndim")


@dataclass(frozen=True)
class KernelInput:
    """An input: its dtype is an MLX dtype name or a template parameter's; ``ndim`` 0 is a scalar by reference.

    ``min_size`` and ``max_size`` bound the number of elements the host ever passes (``None``: no bound).
    """

    name: str
    dtype: str = "T"
    ndim: int = 4
    min_size: int = 1
    max_size: int | None = None

    @property
    def spaces(self) -> tuple[str, ...]:
        """The address spaces it can arrive in."""
        if self.ndim == 0:
            return ("constant",)
        large = self.max_size is None or self.max_size >= SMALL
        return (*(("device",) if large else ()), *(("constant",) if self.min_size < SMALL else ()))


@dataclass(frozen=True)
class KernelOutput:
    """An output and its dtype: an MLX dtype name or a template parameter's."""

    name: str
    dtype: str = "T"


@dataclass(frozen=True)
class Instance:
    """One set of template values (dtype names, booleans, integers) and the threadgroup it is launched with."""

    template: Mapping[str, TemplateValue] = field(default_factory=dict)
    threadgroup: tuple[int, int, int] | None = None

    @property
    def label(self) -> str:
        """The values in short: ``T=float16 D=64``."""
        return " ".join(f"{name}={value}" for name, value in self.template.items())


@dataclass(frozen=True)
class KernelSource:
    """What ``mx.fast.metal_kernel`` is given, and the instances it is used with.

    ``source_file`` and ``header_file`` are (name, first line) of the files the texts were read from, for messages.
    """

    name: str
    source: str
    inputs: tuple[KernelInput, ...]
    outputs: tuple[KernelOutput, ...]
    header: str = ""
    instances: tuple[Instance, ...] = (Instance(),)
    atomic_outputs: bool = False
    source_file: tuple[str, int] = ("source", 1)
    header_file: tuple[str, int] = ("header", 1)


@dataclass(frozen=True)
class Variant:
    """The address space of every input in one call, by name."""

    spaces: Mapping[str, str]
    label: str = ""


def variants(kernel: KernelSource, *, thorough: bool) -> Iterator[Variant]:
    """Calls to check: every input large, every input small and, if ``thorough``, each alone small."""
    large = {i.name: i.spaces[0] for i in kernel.inputs}
    small = {i.name: i.spaces[-1] for i in kernel.inputs}
    yield Variant(large)
    if small == large:
        return
    yield Variant(small, "every input that can be under 8 elements is")
    free = [name for name in large if large[name] != small[name]]
    if thorough and len(free) > 1:
        for name in free:
            yield Variant({**large, name: small[name]}, f"`{name}` under 8 elements")


def signature(kernel: KernelSource, instance: Instance, variant: Variant) -> Signature:
    """The function that MLX generates for an instance, with each input in the address space of the variant."""
    inputs = [
        Argument(item.name, _dtype(item.dtype, instance), _shape(item.ndim, variant.spaces[item.name]))
        for item in kernel.inputs
    ]
    outputs = [_dtype(output.dtype, instance) for output in kernel.outputs]
    names = [output.name for output in kernel.outputs]
    template = tuple(instance.template.items())
    return generate(kernel.name, kernel.source, inputs, names, outputs, template, kernel.atomic_outputs)


def instantiation(found: Signature) -> str:
    """The text after a body: its brace, and the explicit instantiation of a template."""
    return f"\n}}\ntemplate decltype({found.call}) {found.call};\n" if "<" in found.call else "\n}\n"


def _dtype(dtype: str, instance: Instance) -> str:
    return str(instance.template.get(dtype, dtype))


def _shape(ndim: int, space: str) -> tuple[int, ...]:
    """A shape that puts an array in that address space."""
    return (SMALL if space == "device" else 1, *(1,) * (ndim - 1)) if ndim else ()
