"""What kernels are counted by, and the checks of counts, as the spec sees them; see :mod:`.check_signatures`."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from . import kinds
from .signature import Argument, CheckSignature, check

KERNEL_FIGURES: Mapping[str, str] = MappingProxyType(
    {
        "device_bytes": "Bytes that kernels read and write in device and constant memory.",
        "device_bytes_read": "Bytes that they read there.",
        "device_bytes_written": "Bytes that they write there: results, and whatever they keep between launches.",
        "q_bytes_read": "Bytes read of the queries.",
        "kv_bytes_read": "Bytes read of the keys and values.",
        "feature_bytes_read": "Bytes read of masks, biases, sinks, slopes, lengths and segments.",
        "kernel_mma": "8x8x8 products of matrices.",
        "kernel_exp": "Exponentials, one a lane.",
        "threadgroups": "Threadgroups launched.",
        "threadgroup_bytes": "Threadgroup memory of the largest threadgroup.",
    }
)
# Names that an expression of a count may use besides the dims, the numeric options and the figures.
TILE_NAMES: Mapping[str, str] = MappingProxyType(
    {
        "itemsize": "bytes of an element of q",
        "rows": "queries of a threadgroup",
        "columns": "keys of a step of a threadgroup",
        "splits": "threadgroups that share the keys of a head",
        "threads": "threads of a threadgroup",
    }
)

_ATTENTION = ("attention",)

COUNT_CHECKS: tuple[CheckSignature, ...] = (
    check(
        "counts_equal",
        "What the kernels of a call do is counted, and equals a closed form in the dims and the sizes of the tiles.",
        *(Argument(name, kinds.EXPRESSION_OR_NUMBER, help) for name, help in KERNEL_FIGURES.items()),
        ops=_ATTENTION,
        names=tuple(TILE_NAMES),
    ),
    check(
        "counts_hold",
        "A relation between what the kernels of a call do, the dims and the sizes of the tiles.",
        Argument("that", kinds.EXPRESSION, "Over the figures, dims, options and sizes of tiles.", required=True),
        ops=_ATTENTION,
        names=(*TILE_NAMES, *KERNEL_FIGURES),
    ),
    check(
        "equal_paths",
        "Another path of the implementation gives the same numbers.",
        Argument("to", kinds.TEXT, "The other path.", required=True),
        ops=_ATTENTION,
    ),
)
