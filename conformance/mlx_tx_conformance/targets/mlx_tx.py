"""``mlx_tx``: our own attention, one target per path."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from ..call import DTYPES, Call
from . import mlx_tx_cache, mlx_tx_layer, mlx_tx_model, mlx_tx_parts, mlx_tx_tiles
from .arrays import paired, to_mlx
from .base import ATTENTION_OPS, Capabilities, Reproduction, TargetError, keyword_text
from .derive import Arrays
from .mlx_target import FIGURES, MLXTarget, native, on_device
from .recurrent import rnn

PATHS = ("composed", "blockwise", "mlx", "fused", "auto")
# What plain `mlx_tx` means: the paths that run on every device.
PORTABLE_PATHS = ("composed", "blockwise")
# Arguments of the public function that a call never gives as such.
NOT_ARGUMENTS = frozenset({"q", "k", "v", "return_lse", "stream"})
OTHER_OPS = ("alibi_slopes", "softmax")
# Paths that take some calls only, on devices where layers and models have no other calls.
WHOLE_DEVICES = (("fused", "emulated"), ("fused", "gpu"))
# Ops whose traces have no values to compute on.
TRACED_OPS = frozenset({"attention_vmap"})
# Paths to which a cache by itself is posed: once is enough.
CACHE_PATHS = ("composed", "auto")
# Ops of whole models, each given the arrays, the options and the path of attention.
WHOLE_OPS: Mapping[str, Callable[[Arrays, Mapping[str, Any], str], Arrays]] = {
    "model": mlx_tx_model.model,
    "model_gradients": mlx_tx_model.gradients,
    "model_steps": mlx_tx_cache.model_steps,
}
# What is measured while a model is fed.
FED_FIGURES: Mapping[str, Callable[[Arrays, Mapping[str, Any], str], int]] = {
    "step_bytes": mlx_tx_cache.step_bytes,
    "cache_bytes": mlx_tx_cache.cache_bytes,
}
# Paths that take some calls only.
PARTIAL_PATHS = ("mlx", "fused")


# Arguments that the shared check takes besides q, k and v; what a call lacks goes in as None or False.
# fmt: off
NORMALISED: tuple[str, ...] = (
    "scale", "mask", "causal", "bias", "sinks", "window", "alibi", "softcap", "kv_lengths", "segments", "q_offset",
    "check",
)
# fmt: on
NOT_INPUTS = frozenset({"d_out", "d_lse", "t_q", "t_k", "t_v"})


class MlxTx(MLXTarget):
    """``mlx_tx.scaled_dot_product_attention`` on one path, and the position encodings beside it."""

    def __init__(self, path: str = "auto", device: str = "cpu") -> None:
        if path not in PATHS:
            raise TargetError(f"mlx_tx has the paths {', '.join(PATHS)}; got {path!r}")
        import mlx_tx

        self.path = path
        self._package: Any = mlx_tx
        self._missing = _missing(device)
        taken = frozenset(inspect.signature(mlx_tx.scaled_dot_product_attention).parameters) - NOT_ARGUMENTS
        arguments: dict[str, frozenset[str] | None] = {"attention": taken}
        for op in OTHER_OPS:
            if callable(getattr(mlx_tx, op, None)):
                arguments[op] = None
        arguments |= dict.fromkeys((*mlx_tx_parts.PARTS, "cache", "rnn"))
        # The layer passes its path on; one that takes some calls only would refuse in the middle of it. Where our own
        # kernels run they take every call of a layer or model.
        if hasattr(mlx_tx, "MultiHeadAttention") and (path not in PARTIAL_PATHS or (path, device) in WHOLE_DEVICES):
            arguments |= dict.fromkeys(("attention_layer", *WHOLE_OPS))
        capabilities = Capabilities(arguments, lse=True, figures=FIGURES)
        super().__init__(f"mlx_tx:{path}", capabilities, device=device, precision=_precision(path, device))

    @contextmanager
    def recording(self, paths: list[str]) -> Iterator[None]:
        with self._package.record_paths() as record:
            yield
        paths.extend(str(getattr(entry, "path", entry)) for entry in record)

    def supports(self, call: Call) -> str | None:
        reason = self._missing or super().supports(call)
        if reason is None and self.device == "emulated" and (call.op in TRACED_OPS or call.options.get("compiled")):
            return "the emulated device computes at once and cannot run inside mx.compile or mx.vmap"
        if reason is None and call.op == "cache" and self.path not in CACHE_PATHS:
            return "a cache by itself does not depend on the path of attention; it is posed to mlx_tx:composed"
        if reason is None and call.op == "attention_layer":
            return mlx_tx_layer.refusal(call)
        if reason is None and self.path in PARTIAL_PATHS and call.op in ATTENTION_OPS:
            return self._refusal(call)
        return reason

    def path_refusal(self, path: str) -> str | None:
        return None if self.path in (path, "auto") else f"asks for path {path}, not {self.path}"

    def on_path(self, path: str) -> MlxTx | None:
        """The same implementation on another path, or ``None`` where there is none of that name."""
        return MlxTx(path, self.device) if path in PATHS else None

    def tiles(self, call: Call) -> Mapping[str, int]:
        return mlx_tx_tiles.tiles_of(_normalised(call, self.device)[0])

    def _refusal(self, call: Call) -> str | None:
        """What the path itself says to a call; a call that is wrong on any path is not refused but run."""
        from mlx_tx.paths import PATHS as TABLE

        try:
            with on_device(self.device):
                return TABLE[self.path].refuses(*_normalised(call, self.device), None)
        except (TypeError, ValueError):
            return None

    def attend(self, arrays: Arrays, options: Mapping[str, Any], want_lse: bool) -> tuple[Any, Any]:
        keywords = {"path": self.path, **options, **paired(arrays)}
        q, k, v = (keywords.pop(name) for name in ("q", "k", "v"))
        result = self._package.scaled_dot_product_attention(q, k, v, return_lse=want_lse, **keywords)
        return result if want_lse else (result, None)

    def other(self, op: str, arrays: Arrays, options: Mapping[str, Any]) -> Arrays:
        if op == "attention_layer":
            return {"out": mlx_tx_layer.attention_layer(arrays, options, self.path)}
        if op in WHOLE_OPS:
            return WHOLE_OPS[op](arrays, options, self.path)
        if op == "cache":
            return mlx_tx_cache.cache(arrays, options)
        if op == "rnn":
            return {"out": rnn(arrays["x"], arrays["w_x"], arrays["w_h"])}
        if op in mlx_tx_parts.PARTS:
            return {"out": mlx_tx_parts.PARTS[op](arrays, options)}
        result = getattr(self._package, op)(**arrays, **options)
        return dict(result) if isinstance(result, Mapping) else {"out": result}

    def figure(self, call: Call, figure: str) -> float:
        if figure not in FED_FIGURES:
            return super().figure(call, figure)
        with on_device(self.device):
            return float(FED_FIGURES[figure](_inputs(call), call.options, self.path))

    def reproduce(self, call: Call) -> Reproduction | None:
        if call.op != "attention":
            return None
        text = {"path": repr(self.path), **keyword_text(call)}
        given = "".join(f", {name}={value}" for name, value in text.items())
        return Reproduction("mlx", ("import mlx_tx",), f"mlx_tx.scaled_dot_product_attention(q, k, v{given})", call)


def _normalised(call: Call, device: str) -> tuple[Any, Any]:
    """The call as the host code of every path takes it. Raises what the public function would raise."""
    from mlx_tx.arguments import normalise

    given = dict.fromkeys(NORMALISED) | {"causal": False, "check": False}
    given |= {name: native(value) for name, value in call.options.items() if name in NORMALISED}
    with on_device(device):
        given |= paired(_inputs(call))
        q, k, v = (given.pop(name) for name in ("q", "k", "v"))
        return normalise(q, k, v, return_lse="lse" in call.outputs, **given)


def _precision(path: str, device: str) -> Mapping[str, str] | None:
    """Our kernels keep weights and partial results in float32; on a GPU their exponentials are those of fast maths."""
    if path != "fused":
        return None
    return dict.fromkeys(DTYPES, "f32-internal+fast-exp" if device == "gpu" else "f32-internal")


def _inputs(call: Call) -> Arrays:
    return {name: to_mlx(array) for name, array in call.arrays.items() if name not in NOT_INPUTS}


def _missing(device: str) -> str | None:
    """What the device lacks on this machine, or ``None``."""
    if device != "emulated":
        return None
    from .. import emulator

    return emulator.unavailable()
