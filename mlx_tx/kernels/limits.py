"""What the fused kernels cannot take, said on the host before any launch."""

from __future__ import annotations

from typing import Any

import mlx.core as mx

from mlx_tx.arguments import AttentionSpec
from mlx_tx.kernels.chassis import LONGEST
from mlx_tx.kernels.executor import current_executor, kernels_available
from mlx_tx.kernels.tiles import LARGEST_HEAD

METAL = "metal"


def refusal(spec: AttentionSpec, stream: Any) -> str | None:
    """Why no kernel can take the call here, or ``None``."""
    if not kernels_available():
        return "there is no Metal GPU, and no executor of kernels is installed (the emulated device is one)"
    if current_executor().name == METAL and not on_gpu(stream):
        return "the call is for the CPU, and the kernels run on Metal"
    if max(spec.D, spec.D_v) > LARGEST_HEAD:
        return f"head sizes must be at most {LARGEST_HEAD}; got D={spec.D}, D_v={spec.D_v}"
    if max(spec.T_q, spec.T_kv) >= LONGEST:
        return f"lengths must be below {LONGEST}; got T_q={spec.T_q}, T_kv={spec.T_kv}"
    return None


def on_gpu(stream: Any) -> bool:
    """Whether work on ``stream`` (``None``: the default device) is for a GPU."""
    if stream is None:
        return mx.default_device().type == mx.gpu
    if isinstance(stream, mx.DeviceType):
        return stream == mx.gpu
    device = stream if isinstance(stream, mx.Device) else stream.device
    return bool(device.type == mx.gpu)
