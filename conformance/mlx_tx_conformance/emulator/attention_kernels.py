"""The attention kernels of mlx_tx in every instantiation that matters: calls that cover all pairs of what they vary in.

Dtype, head size, band, mask and each feature that can be on or off: every value of one meets every value of another in
some call, in the kernel for many queries and in the one for few. The strict check parses these instantiations, the
checked build runs them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import mlx.core as mx
import numpy as np

from mlx_tx.arguments import AttentionArrays, AttentionSpec, normalise
from mlx_tx.kernels.chassis import Work
from mlx_tx.kernels.trust import works_of

from ..spec.pairwise import all_pairs
from .strict import Instance, KernelInput, KernelOutput, KernelSource

HEADS = (
    *((8, 8), (20, 33), (32, 32), (64, 64), (64, 128), (80, 80)),
    *((96, 64), (112, 112), (128, 128), (192, 192), (256, 256)),
)
DTYPES = ("float32", "float16", "bfloat16")
BANDS: tuple[Mapping[str, Any], ...] = (
    {},
    {"causal": True},
    {"window": 9},
    {"window": (None, 3)},
    {"window": (6, None)},
)
MASKS = ("none", "bool", "float32", "float16", "bfloat16")
SEGMENTS = ("none", "int32", "int64")
FLAGS = ("bias", "alibi", "softcap", "sinks", "kv_lengths")
MOST_CALLS = 200  # more than are ever needed
MANY = (37, 75)
FEW = (5, 300)
_ABSENT: Mapping[str, Any] = dict.fromkeys(
    ("scale", "mask", "bias", "sinks", "window", "alibi", "softcap", "kv_lengths", "segments", "q_offset")
)


@dataclass(frozen=True)
class KernelCall:
    """One call of the attention function, checked and in its plain form."""

    label: str
    spec: AttentionSpec
    arrays: AttentionArrays

    @property
    def works(self) -> tuple[Work, ...]:
        """The kernels it launches."""
        return works_of(self.spec, self.arrays)


def calls(lengths: tuple[int, int], B: int = 2, N_q: int = 4, N_kv: int = 2) -> Iterator[KernelCall]:
    """Calls of T_q, T_kv = ``lengths`` that cover all pairs; the first has nothing but a dtype and a head size."""
    axes: tuple[Sequence[Any], ...] = (DTYPES, HEADS, BANDS, MASKS, SEGMENTS, *((False, True) for _ in FLAGS))
    rows = all_pairs([len(axis) for axis in axes], MOST_CALLS)
    for number, row in enumerate(rows):
        values = [axis[row[i]] for i, axis in enumerate(axes)]
        dtype, heads, band, mask, segments = values[:5]
        features = dict(band) | {name: True for name, on in zip(FLAGS, values[5:], strict=True) if on}
        features |= {} if mask == "none" else {"mask": mask}
        features |= {} if segments == "none" else {"segments": segments}
        yield call(number, dtype, heads, lengths, (B, N_q, N_kv), features)


def call(
    seed: int,
    dtype: str,
    heads: tuple[int, int],
    lengths: tuple[int, int],
    counts: tuple[int, int, int],
    features: Mapping[str, Any],
) -> KernelCall:
    """A call on random arrays. ``features`` hold a band (``causal``, ``window``), the dtype of a ``mask`` and of
    ``segments``, and the names of the others with the value True."""
    rng = np.random.default_rng(seed)
    (D, D_v), (T_q, T_kv), (B, N_q, N_kv) = heads, lengths, counts
    kind = getattr(mx, dtype)

    def normal(*shape: int) -> mx.array:
        return mx.array(rng.standard_normal(shape, np.float32))

    given: dict[str, Any] = {**_ABSENT, "causal": False, "return_lse": True, "check": False}
    given |= {name: value for name, value in features.items() if name in ("causal", "window")}
    if "mask" in features:
        drawn = rng.standard_normal((B, 1, T_q, T_kv), np.float32)
        added = mx.array(np.where(drawn < -1.0, -np.inf, drawn))
        given["mask"] = (
            mx.array(drawn > -1.0) if features["mask"] == "bool" else added.astype(getattr(mx, features["mask"]))
        )
    if "segments" in features:
        ids = [np.sort(rng.integers(0, 3, (B, T))) for T in lengths]
        given["segments"] = tuple(mx.array(x).astype(getattr(mx, features["segments"])) for x in ids)
    makers: Mapping[str, Any] = {
        "bias": lambda: normal(N_q, 1, T_kv).astype(kind),
        "alibi": lambda: mx.abs(normal(N_q)) * 0.1,
        "softcap": lambda: 3.0,
        "sinks": lambda: normal(N_q),
        "kv_lengths": lambda: [T_kv - 7 * b for b in range(B)],
    }
    given |= {name: make() for name, make in makers.items() if features.get(name)}
    # An array: what the host does not know it cannot use to choose another kernel.
    given["q_offset"] = mx.array([T_kv - T_q] * B)
    q, k, v = (normal(B, n, T, d).astype(kind) for n, T, d in ((N_q, T_q, D), (N_kv, T_kv, D), (N_kv, T_kv, D_v)))
    spec, arrays = normalise(q, k, v, **given)
    shown = ", ".join(f"{name}={value}" for name, value in features.items())
    return KernelCall(f"{dtype} D={D} D_v={D_v} T_q={T_q} {shown}", spec, arrays)


def kernel_sources() -> list[KernelSource]:
    """The kernels with their instantiations, for the strict check: every input large, and small."""
    return sources_of(work for lengths in (MANY, FEW) for item in calls(lengths) for work in item.works)


def sources_of(works: Iterable[Work]) -> list[KernelSource]:
    """Launches as sources with instances: one source for all that differ in template values only."""
    found: dict[tuple[Any, ...], tuple[Work, list[Instance]]] = {}
    for work in works:
        dtypes = tuple(str(x.dtype) for x in work.inputs[3:])  # those that no template parameter names
        _, instances = found.setdefault((work.kernel.name, dtypes), (work, []))
        template = {name: _plain(value) for name, value in work.template}
        instance = Instance(template, (work.threads, 1, 1))
        if instance not in instances:
            instances.append(instance)
    return [_source(work, tuple(instances)) for work, instances in found.values()]


def _source(work: Work, instances: tuple[Instance, ...]) -> KernelSource:
    kernel = work.kernel
    of_template = {"q", "k", "v", "out"}

    def dtype(name: str, array_dtype: mx.Dtype) -> str:
        return "T" if name in of_template else str(_plain(array_dtype))

    inputs = list(zip(kernel.input_names, work.inputs, strict=True))
    outputs = zip(kernel.output_names, work.output_dtypes, strict=True)
    kinds = [str(_plain(x.dtype)) for name, x in inputs if name in ("mask", "bias", "q_segments")]
    return KernelSource(
        "_".join((kernel.name, *kinds)),
        kernel.source,
        tuple(KernelInput(name, dtype(name, x.dtype), x.ndim) for name, x in inputs),
        tuple(KernelOutput(name, dtype(name, kind)) for name, kind in outputs),
        header=kernel.header,
        instances=instances,
        source_file=(f"{kernel.name}.metal", 1),
        header_file=("attention_common.metal", 1),
    )


def _plain(value: Any) -> Any:
    return str(value).removeprefix("mlx.core.") if isinstance(value, mx.Dtype) else value
