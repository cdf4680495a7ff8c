"""Small attention calls on the emulated device, and what the float64 oracle expects of them."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import numpy as np

from mlx_tx.arguments import AttentionArrays, AttentionSpec, normalise
from mlx_tx_conformance.oracle.attention import attention

NAMES = ("scale", "mask", "bias", "sinks", "window", "alibi", "softcap", "kv_lengths", "segments", "q_offset")
# Largest difference for inputs of order one: the last digit of a result of order one, some times over.
CLOSE = {mx.float32: 4e-6, mx.float16: 2e-3, mx.bfloat16: 1.6e-2}


def normal(seed: int, *shape: int, dtype: mx.Dtype = mx.float32) -> mx.array:
    return mx.array(np.random.default_rng(seed).standard_normal(shape, np.float32)).astype(dtype)


def qkv(
    B: int = 2, N_q: int = 4, N_kv: int = 2, T_q: int = 33, T_kv: int = 70, D: int = 16, D_v: int = 16, dtype=mx.float32
) -> tuple[mx.array, mx.array, mx.array]:
    return (
        normal(1, B, N_q, T_q, D, dtype=dtype),
        normal(2, B, N_kv, T_kv, D, dtype=dtype),
        normal(3, B, N_kv, T_kv, D_v, dtype=dtype),
    )


def plain(q: mx.array, k: mx.array, v: mx.array, **options: Any) -> tuple[AttentionSpec, AttentionArrays]:
    """A call in the plain form that kernels are launched with."""
    given = {**dict.fromkeys(NAMES), "causal": False, **options}
    return normalise(q, k, v, return_lse=True, check=False, **given)


def to_numpy(x: Any) -> Any:
    if isinstance(x, tuple):
        return tuple(to_numpy(part) for part in x)
    if not isinstance(x, mx.array):
        return x
    return np.array(x) if x.dtype in (mx.bool_, mx.int32, mx.int64) else np.array(x.astype(mx.float32))


def agrees(out: mx.array, lse: mx.array, q: mx.array, k: mx.array, v: mx.array, **options: Any) -> None:
    """Output and log-sum-exp are those of the oracle."""
    expected = attention(*(to_numpy(x) for x in (q, k, v)), **{name: to_numpy(x) for name, x in options.items()})
    np.testing.assert_allclose(to_numpy(out), expected.out, rtol=0, atol=CLOSE[q.dtype])
    np.testing.assert_allclose(to_numpy(lse), expected.lse, rtol=0, atol=1e-5)
