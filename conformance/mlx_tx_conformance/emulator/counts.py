"""What kernels read, write and compute, counted exactly by the checked build: the rows of `mlx-tx bench --counts`.

Byte counts are those of the program's loads and stores. They ignore caches and coalescing, and say nothing about time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from .mlx_attention import Attention, steel, vector, vector_two_pass
from .mlx_unfused import unfused
from .options import Counts, Options

KERNELS = ("forward", "decode", "dq", "dkv")
IMPLEMENTATIONS = ("mlx_tx", "mlx", "unfused")
STEEL_HEAD_DIMS = (64, 72, 80, 96, 128, 192, 256)
TWO_PASS_FROM = 1024  # keys from which on MLX splits a decode step, on its larger devices

_DTYPES = {"float32": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16}


@dataclass(frozen=True)
class CountCase:
    """One kernel at one size. Batch 1; ``decode`` has few queries, ``forward`` many."""

    kernel: str = "forward"
    dtype: str = "float16"
    D: int = 64
    T_q: int = 128
    T_kv: int = 128
    N_q: int = 2
    N_kv: int = 2
    causal: bool = False

    def __post_init__(self) -> None:
        if self.kernel not in KERNELS:
            raise ValueError(f"[counts] kernel must be one of {', '.join(KERNELS)}; got {self.kernel!r}")
        if self.dtype not in _DTYPES:
            raise ValueError(f"[counts] dtype must be one of {', '.join(_DTYPES)}; got {self.dtype!r}")
        if self.N_q % self.N_kv:
            raise ValueError(f"[counts] N_q must be a multiple of N_kv; got {self.N_q} and {self.N_kv}")

    def attention(self) -> Attention:
        """Its arrays, always the same ones. Counts depend on shapes alone."""
        rng = np.random.default_rng(0)

        def normal(heads: int, length: int) -> np.ndarray:
            return rng.standard_normal((1, heads, length, self.D), np.float32).astype(_DTYPES[self.dtype])

        q, k, v = normal(self.N_q, self.T_q), normal(self.N_kv, self.T_kv), normal(self.N_kv, self.T_kv)
        return Attention(q, k, v, self.D**-0.5, self.causal)


Counter = Callable[[CountCase, Options], Counts | None]  # None: the implementation has no kernel for this case


def _mlx_forward(case: CountCase, options: Options) -> Counts | None:
    return steel(case.attention(), options)[1] if case.D in STEEL_HEAD_DIMS else None


def _mlx_decode(case: CountCase, options: Options) -> Counts | None:
    if case.D not in (64, 96, 128, 256) or case.T_q > 8 or case.T_q * case.N_q // case.N_kv > 32:
        return None
    run = vector if case.T_kv < TWO_PASS_FROM else vector_two_pass
    return run(case.attention(), options)[1]


def _unfused(case: CountCase, options: Options) -> Counts | None:
    return unfused(case.attention(), options)[1]


def _ours_forward(case: CountCase, options: Options) -> Counts | None:
    from .mlx_tx_counts import forward_counts

    return sum(forward_counts(case.attention(), options).values(), Counts())


def _ours_decode(case: CountCase, options: Options) -> Counts | None:
    from .mlx_tx_counts import decode_counts

    return sum(decode_counts(case.attention(), options).values(), Counts())


COUNTERS: dict[tuple[str, str], Counter] = {
    ("mlx_tx", "forward"): _ours_forward,
    ("mlx_tx", "decode"): _ours_decode,
    ("mlx", "forward"): _mlx_forward,
    ("mlx", "decode"): _mlx_decode,
    ("unfused", "forward"): _unfused,
    ("unfused", "decode"): _unfused,
}

DEFAULT_CASES = (
    *(
        CountCase("forward", dtype, D, T, T, 2, 2, causal)
        for dtype in ("float16", "float32")
        for D in (64, 128)
        for T in (128, 256)
        for causal in (False, True)
    ),
    *(
        CountCase("decode", dtype, D, 1, T, 4, 2)
        for dtype in ("float16", "float32")
        for D in (64, 128)
        for T in (512, 2048)
    ),
)


def row(case: CountCase, implementation: str, counts: Counts) -> dict[str, Any]:
    """One row as `mlx-tx bench --counts --format json` prints it."""
    return {
        "kernel": case.kernel,
        "implementation": implementation,
        "dtype": case.dtype,
        "D": case.D,
        "T_q": case.T_q,
        "T_kv": case.T_kv,
        "N_q": case.N_q,
        "N_kv": case.N_kv,
        "causal": case.causal,
        "device_bytes_read": counts.device_bytes_read,
        "device_bytes_written": counts.device_bytes_written,
        "mma": counts.mma,
        "exp": counts.exp,
        "barriers": counts.barriers,
        "threadgroup_bytes": counts.threadgroup_bytes,
    }


def iter_count_rows(
    cases: Sequence[CountCase] = DEFAULT_CASES, implementations: Sequence[str] = IMPLEMENTATIONS
) -> Iterator[dict[str, Any]]:
    """Rows one by one, for progress. ValueError for an unknown implementation; KernelError (unsupported) without a
    compiler."""
    for implementation in implementations:
        if implementation not in IMPLEMENTATIONS:
            allowed = ", ".join(IMPLEMENTATIONS)
            raise ValueError(f"[counts] implementations must be among {allowed}; got {implementation!r}")
    options = Options(checked=True)
    for case in cases:
        for implementation in implementations:
            counter = COUNTERS.get((implementation, case.kernel))
            counts = counter(case, options) if counter else None
            if counts is not None:
                yield row(case, implementation, counts)


def count_rows(
    cases: Sequence[CountCase] = DEFAULT_CASES, implementations: Sequence[str] = IMPLEMENTATIONS
) -> list[dict[str, Any]]:
    """A row for every case and implementation that has a kernel for it."""
    return list(iter_count_rows(cases, implementations))
