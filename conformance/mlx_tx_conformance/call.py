"""What crosses the border between the suite and an implementation: a call, its result, and the target protocol.

Numbers cross as NumPy arrays (float32, float16, bfloat16 from ``ml_dtypes``, bool, int32), so that nothing on
the suite's side needs to know which array library an implementation is written in.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Protocol, runtime_checkable

import ml_dtypes
import numpy as np

DTYPES: Mapping[str, np.dtype] = MappingProxyType(
    {
        "float32": np.dtype(np.float32),
        "float16": np.dtype(np.float16),
        "bfloat16": np.dtype(ml_dtypes.bfloat16),
    }
)

# Precision classes a target may declare for a dtype: which roundings happen inside, besides that of the result.
PRECISION_CLASSES = ("f32-internal", "P", "split")
DEFAULT_PRECISION: Mapping[str, str] = MappingProxyType({"float32": "f32-internal", "float16": "P", "bfloat16": "P"})

# How an input lies in memory. The values are the same in every layout; only strides and offsets differ.
LAYOUTS = ("contiguous", "transposed", "sliced", "broadcast", "offset", "donated")


@dataclass(frozen=True)
class Call:
    """One operation with its arguments.

    ``arrays`` holds the array arguments by name, ``options`` the rest (scale, causal, window, ...), ``layout``
    the memory layout by array name (contiguous where absent), and ``outputs`` the names of the results wanted.
    """

    op: str
    arrays: Mapping[str, np.ndarray]
    options: Mapping[str, Any] = field(default_factory=dict)
    layout: Mapping[str, str] = field(default_factory=dict)
    outputs: tuple[str, ...] = ("out",)

    def with_arrays(self, **arrays: np.ndarray | None) -> Call:
        """The same call with some arrays replaced (``None`` removes one)."""
        merged = {**self.arrays, **arrays}
        return replace(self, arrays={name: array for name, array in merged.items() if array is not None})

    def with_options(self, **options: Any) -> Call:
        """The same call with some options replaced (``None`` removes one)."""
        merged = {**self.options, **options}
        return replace(self, options={name: value for name, value in merged.items() if value is not None})

    @property
    def dtype(self) -> str:
        """The floating dtype of the call: that of its first floating array."""
        for array in self.arrays.values():
            for name, dtype in DTYPES.items():
                if array.dtype == dtype:
                    return name
        return "float32"


@dataclass(frozen=True)
class Result:
    """What a target answered: arrays by output name, the path that ran, and which inputs the call changed."""

    outputs: Mapping[str, np.ndarray]
    path: str = ""
    mutated: tuple[str, ...] = ()


class Unsupported(Exception):
    """Raised by a target for a call outside its declared capabilities; the message is the reason."""


@runtime_checkable
class Target(Protocol):
    """An implementation under test.

    ``supports`` answers before any run: ``None`` for yes, or the reason for no. ``precision`` names the class of
    roundings that the target declares for a dtype. ``figure`` measures something other than values
    (``peak_bytes``, ``flops``, ``depth``) or raises :class:`Unsupported`.
    """

    name: str
    device: str

    def precision(self, dtype: str) -> str: ...

    def supports(self, call: Call) -> str | None: ...

    def run(self, call: Call) -> Result: ...

    def figure(self, call: Call, figure: str) -> float: ...
