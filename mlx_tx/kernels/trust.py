"""Trust on a GPU that nobody has tried: every instantiation is run once on tiny inputs before its result is used.

On Metal the first call that needs an instantiation runs it against the composed path. Where it does not compile, needs
more threads than the device gives it, or disagrees, it is not used: one warning names it, and other paths take over.
Executors that were installed on purpose vouch for themselves.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import Any

import mlx.core as mx
import numpy as np

from mlx_tx.arguments import AttentionArrays, AttentionSpec
from mlx_tx.kernels.chassis import Work
from mlx_tx.kernels.decode import decode, decode_work, is_decode, merge_work
from mlx_tx.kernels.executor import current_executor
from mlx_tx.kernels.forward import forward_work
from mlx_tx.kernels.limits import METAL
from mlx_tx.kernels.tiles import FEW_QUERIES

Reference = Callable[[AttentionSpec, AttentionArrays], tuple[mx.array, mx.array]]

# Largest difference from the composed path on inputs of order one: ten roundings of the result, or a broken kernel.
TOLERANCE = {mx.float32: 1e-4, mx.float16: 1e-2, mx.bfloat16: 8e-2}
PROBE_QUERIES = 37
PROBE_KEYS, PROBE_CACHE = 75, 300  # several blocks; several parts of a split, with a ragged end
MOST_PROBE_HEADS = 8


@dataclass
class Trust:
    """The verdicts of one process: by instantiation, ``None`` where it may be used, else the reason why not."""

    verdicts: dict[tuple[Any, ...], str | None] = field(default_factory=dict)
    lock: Any = field(default_factory=Lock)

    def distrust(
        self, spec: AttentionSpec, arrays: AttentionArrays, reference: Reference, stream: Any = None
    ) -> str | None:
        """Why the kernels of this call must not be used on the device in force, or ``None``."""
        if current_executor().name != METAL:
            return None
        works = works_of(spec, arrays)
        key = tuple(work.instantiation for work in works)
        with self.lock:
            if key not in self.verdicts:
                self.verdicts[key] = reason = examine(spec, arrays, reference, stream)
                if reason is not None:
                    names = " and ".join(work.label for work in works)
                    warnings.warn(
                        f"[mlx_tx] Metal kernel {names} is not used on this device: {reason}. "
                        "Another path takes its calls.",
                        RuntimeWarning,
                        stacklevel=4,
                    )
            return self.verdicts[key]


def works_of(spec: AttentionSpec, arrays: AttentionArrays) -> tuple[Work, ...]:
    """The launches of a call, not run."""
    if not is_decode(spec):
        return (forward_work(spec, arrays),)
    first = decode_work(spec, arrays)
    outputs = zip(first.output_shapes, first.output_dtypes, strict=True)
    partial, stats = (mx.zeros(shape, dtype=dtype) for shape, dtype in outputs)
    return (first, merge_work(spec, arrays, partial, stats))


def examine(spec: AttentionSpec, arrays: AttentionArrays, reference: Reference, stream: Any = None) -> str | None:
    """Runs the kernels of a call on tiny inputs with the same features: the reason not to use them, or ``None``."""
    tiny, inputs = probe(spec, arrays)
    try:
        out, lse = decode(tiny, inputs, stream) if is_decode(spec) else forward_work(tiny, inputs).run(stream)
        mx.eval(out, lse)
    except (RuntimeError, ValueError) as error:
        return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    expected, expected_lse = reference(tiny, inputs)
    worst = max(_difference(out, expected), _difference(lse, expected_lse))
    if not worst <= TOLERANCE[spec.dtype]:
        return f"its result on a trial call is off by {worst:.3g}"
    return None


def probe(spec: AttentionSpec, arrays: AttentionArrays) -> tuple[AttentionSpec, AttentionArrays]:
    """A small call of the same instantiation: as many features, head sizes and dtypes as in the real one."""
    few = is_decode(spec)
    T_q = min(spec.T_q, FEW_QUERIES) if few else PROBE_QUERIES
    # The group decides about the tile of few queries; the number of heads, which arrays are small.
    N_kv = -(-min(spec.N_q, MOST_PROBE_HEADS) // spec.group)
    B, N_q = min(spec.B, MOST_PROBE_HEADS), spec.group * N_kv
    T_kv = PROBE_CACHE if few else PROBE_KEYS
    offset = T_kv - T_q
    tiny = replace(
        spec,
        B=B,
        N_q=N_q,
        N_kv=N_kv,
        T_q=T_q,
        T_kv=T_kv,
        shared_segments=False,
        left=None if spec.left is None else 40,
        right=None if spec.right is None else min(spec.right, 3),
        offsets=(offset,),
        lengths=None,
    )
    keys = iter(mx.random.split(mx.random.key(20), 16))

    def normal(*shape: int, dtype: mx.Dtype) -> mx.array:
        return mx.random.normal(shape, key=next(keys)).astype(dtype)

    def like_scores(x: mx.array | None) -> mx.array | None:
        if x is None:
            return None
        drawn = normal(1, N_q, T_q, T_kv, dtype=mx.float32)
        return drawn > -1.0 if x.dtype == mx.bool_ else mx.where(drawn < -1.0, -mx.inf, drawn).astype(x.dtype)

    def segments(x: mx.array | None, T: int) -> mx.array | None:
        return None if x is None else mx.broadcast_to(mx.arange(T) * 3 // T, (B, T)).astype(x.dtype)

    return tiny, AttentionArrays(
        q=normal(B, N_q, T_q, spec.D, dtype=arrays.q.dtype),
        k=normal(B, N_kv, T_kv, spec.D, dtype=arrays.k.dtype),
        v=normal(B, N_kv, T_kv, spec.D_v, dtype=arrays.v.dtype),
        mask=like_scores(arrays.mask),
        bias=like_scores(arrays.bias),
        sinks=None if arrays.sinks is None else normal(1, N_q, dtype=mx.float32),
        slopes=None if arrays.slopes is None else mx.abs(normal(1, N_q, dtype=mx.float32)) * 0.1,
        kv_lengths=None if arrays.kv_lengths is None else mx.array([T_kv - 5 * b for b in range(B)]),
        q_segments=segments(arrays.q_segments, T_q),
        kv_segments=segments(arrays.kv_segments, T_kv),
        q_offset=None if arrays.q_offset is None else mx.array([offset], dtype=mx.int32),
    )


def _difference(x: mx.array, expected: mx.array) -> float:
    """The largest absolute difference; equal infinities do not differ, NaN always does."""
    x, expected = x.astype(mx.float32), expected.astype(mx.float32)
    apart = mx.where(x == expected, mx.zeros((), dtype=mx.float32), mx.abs(x - expected))
    return float("inf") if bool(mx.any(mx.isnan(apart)).item()) else float(np.max(np.asarray(apart)))


TRUST = Trust()
