"""``mx.fast``: MLX's own attention, with the arguments that it has and those that a mask says as well."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..call import Call, Unsupported
from .base import ATTENTION_OPS, Capabilities, Reproduction
from .derive import Arrays
from .mlx_target import FIGURES, MLXTarget
from .posing import pose_as_mask, spelled_out

NATIVE = frozenset({"scale", "mask", "causal", "sinks"})
# Its two-pass decoding kernel keeps its partial outputs in the input dtype.
PRECISION = {"float16": "split", "bfloat16": "split"}


class MxFast(MLXTarget):
    """``mx.fast.scaled_dot_product_attention``.

    ``causal`` goes in as ``mask="causal"``; next to another mask, both become one array, as its users do. A bias is
    an additive mask. It takes no window, ALiBi, soft-cap, lengths, segments or query offset.
    """

    def __init__(self, device: str = "cpu") -> None:
        super().__init__(
            "mx.fast",
            Capabilities({"attention": NATIVE | {"bias"}}, lse=False, figures=FIGURES),
            device=device,
            precision=PRECISION,
        )

    def supports(self, call: Call) -> str | None:
        reason = super().supports(call)
        if reason is not None or call.op not in ATTENTION_OPS:
            return reason
        try:
            call = self.prepare(call)
        except Unsupported as error:
            return str(error)
        mask = call.arrays.get("mask")
        dtype = call.arrays["q"].dtype
        if mask is None or mask.dtype.kind in "biu" or mask.dtype == dtype or mask.dtype.itemsize < dtype.itemsize:
            return None
        return f"no {mask.dtype} mask with {call.dtype} inputs"

    def prepare(self, call: Call) -> Call:
        call = spelled_out(call)
        posed = {"bias"} & call.arrays.keys()
        if call.options.get("causal") and ("mask" in call.arrays or posed):
            posed = posed | {"causal"}
        return pose_as_mask(call, frozenset(posed))

    def attend(self, arrays: Arrays, options: Mapping[str, Any], want_lse: bool) -> tuple[Any, Any]:
        import mlx.core as mx

        del want_lse
        mask = "causal" if options.get("causal") else arrays.get("mask")
        scale = options.get("scale")
        if scale is None:
            scale = float(np.float32(1 / np.sqrt(arrays["q"].shape[-1])))
        extra = {"sinks": arrays["sinks"]} if "sinks" in arrays else {}
        return mx.fast.scaled_dot_product_attention(
            arrays["q"], arrays["k"], arrays["v"], scale=scale, mask=mask, **extra
        ), None

    def reproduce(self, call: Call) -> Reproduction | None:
        if call.op != "attention":
            return None
        call = self.prepare(call)
        scale = call.options.get("scale")
        text = {"scale": "q.shape[-1] ** -0.5" if scale is None else repr(scale)}
        text["mask"] = "'causal'" if call.options.get("causal") else "mask" if "mask" in call.arrays else "None"
        text |= {"sinks": "sinks"} if "sinks" in call.arrays else {}
        given = ", ".join(f"{name}={value}" for name, value in text.items())
        return Reproduction("mlx", (), f"mx.fast.scaled_dot_product_attention(q, k, v, {given})", call)
