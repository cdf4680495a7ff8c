"""The header of a safetensors file, checked before any array of it is read.

A header that lies about shapes or places would make a reader return foreign bytes or ask for absurd amounts of memory.
Format: eight bytes of length, JSON of that length, then the bytes of the tensors one after the other.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MAX_HEADER = 100_000_000  # bytes; the limit of the format's own readers
ITEM_SIZES = {
    "BOOL": 1, "U8": 1, "I8": 1, "F8_E4M3": 1, "F8_E5M2": 1, "U16": 2, "I16": 2, "F16": 2, "BF16": 2,
    "U32": 4, "I32": 4, "F32": 4, "U64": 8, "I64": 8, "F64": 8, "C64": 8,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Tensor:
    """What the header says of one tensor; ``begin`` and ``end`` count from the end of the header."""

    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class Header:
    """Tensors by name, and the metadata."""

    tensors: Mapping[str, Tensor]
    metadata: Mapping[str, str]


def read_header(path: str | os.PathLike[str]) -> Header:
    """The header of the file at ``path``; ``ValueError`` that says what is wrong where it is not consistent."""
    place = Path(path)
    size = place.stat().st_size
    with place.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if size < 8 or length > min(size - 8, MAX_HEADER):
            raise _wrong(path, f"its header would have {length} bytes in a file of {size}")
        text = file.read(length)
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError):
        raise _wrong(path, "its header is not JSON") from None
    if not isinstance(fields, dict):
        raise _wrong(path, "its header is no JSON object")
    metadata = fields.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise _wrong(path, "its metadata must hold strings")
    tensors = {name: _tensor(path, name, entry) for name, entry in fields.items()}
    at = 0
    for name, tensor in sorted(tensors.items(), key=lambda item: (item[1].begin, item[1].end)):
        if tensor.begin != at:
            raise _wrong(path, f"tensor {name!r} must begin at byte {at}; got {tensor.begin}")
        at = tensor.end
    if at != size - 8 - length:
        raise _wrong(path, f"its tensors take {at} bytes of {size - 8 - length}")
    return Header(tensors, metadata)


def _tensor(path: Any, name: str, entry: Any) -> Tensor:
    try:
        dtype, shape, (begin, end) = entry["dtype"], entry["shape"], entry["data_offsets"]
        numbers = [*shape, begin, end]
    except (KeyError, TypeError, ValueError):
        raise _wrong(path, f"tensor {name!r} must have dtype, shape and data_offsets") from None
    if not all(isinstance(n, int) and not isinstance(n, bool) and n >= 0 for n in numbers):
        raise _wrong(path, f"tensor {name!r} must have whole numbers for shape and data_offsets; got {entry!r}")
    if not isinstance(dtype, str) or dtype not in ITEM_SIZES:
        raise _wrong(path, f"tensor {name!r} must have a dtype of {', '.join(ITEM_SIZES)}; got {dtype!r}")
    if end - begin != math.prod(shape) * ITEM_SIZES[dtype]:
        raise _wrong(path, f"tensor {name!r} of {dtype} {shape} takes other than {end - begin} bytes")
    return Tensor(dtype, tuple(shape), begin, end)


def _wrong(path: Any, problem: str) -> ValueError:
    return ValueError(f"[safetensors] {os.fspath(path)} is no sound safetensors file: {problem}")
