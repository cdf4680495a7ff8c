"""The attention kernels of mlx_tx on the emulated device, on NumPy arrays, for counting."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import mlx.core as mx
import numpy as np

from mlx_tx.arguments import AttentionArrays, AttentionSpec, normalise
from mlx_tx.kernels.decode import decode
from mlx_tx.kernels.forward import forward_work

from . import device
from .mlx_attention import Attention
from .options import Counts, Options


def forward_counts(call: Attention, options: Options, **features: Any) -> dict[str, Counts]:
    """What `attention_forward` does for a call, by kernel name."""
    spec, arrays = plain(call, **features)
    with mx.stream(mx.cpu), device(options) as emulated:
        mx.eval(forward_work(spec, arrays).run())
    return emulated.counts


def decode_counts(call: Attention, options: Options, **features: Any) -> dict[str, Counts]:
    """What `attention_decode` and `attention_merge` do for a call, by kernel name."""
    spec, arrays = plain(call, **features)
    with mx.stream(mx.cpu), device(options) as emulated:
        mx.eval(decode(spec, arrays))
    return emulated.counts


def plain(call: Attention, **features: Any) -> tuple[AttentionSpec, AttentionArrays]:
    """The call as the kernels' host code takes it. ``features`` are arguments of the attention function."""
    names = ("bias", "window", "alibi", "softcap", "kv_lengths", "segments", "q_offset")
    given: dict[str, Any] = {**dict.fromkeys(names), **features}
    given["mask"] = None if call.mask is None else _to_mlx(call.mask)
    given["sinks"] = None if call.sinks is None else _to_mlx(call.sinks)
    q, k, v = (_to_mlx(x) for x in (call.q, call.k, call.v))
    return normalise(q, k, v, scale=call.scale, causal=call.causal, return_lse=True, check=False, **given)


def _to_mlx(array: np.ndarray) -> mx.array:
    if array.dtype == ml_dtypes.bfloat16:
        return mx.array(array.view(np.uint16)).view(mx.bfloat16)
    return mx.array(array)
