"""``mlx_tx``: our own attention, one target per path."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from ..call import Call
from .base import Capabilities, Reproduction, TargetError, keyword_text
from .derive import Arrays
from .mlx_target import FIGURES, MLXTarget

PATHS = ("composed", "blockwise", "mlx", "fused", "auto")
# What plain `mlx_tx` means: the paths that run on every device.
PORTABLE_PATHS = ("composed", "blockwise")
# Arguments of the public function that a call never gives as such.
NOT_ARGUMENTS = frozenset({"q", "k", "v", "return_lse", "stream"})
OTHER_OPS = ("rope", "alibi_slopes", "softmax", "attention_layer")


class MlxTx(MLXTarget):
    """``mlx_tx.scaled_dot_product_attention`` on one path, and the position encodings beside it."""

    def __init__(self, path: str = "auto", device: str = "cpu") -> None:
        if path not in PATHS:
            raise TargetError(f"mlx_tx has the paths {', '.join(PATHS)}; got {path!r}")
        import mlx_tx

        self.path = path
        self._package = mlx_tx
        taken = frozenset(inspect.signature(mlx_tx.scaled_dot_product_attention).parameters) - NOT_ARGUMENTS
        arguments: dict[str, frozenset[str] | None] = {"attention": taken}
        for op in OTHER_OPS:
            if callable(getattr(mlx_tx, op, None)):
                arguments[op] = None
        super().__init__(f"mlx_tx:{path}", Capabilities(arguments, lse=True, figures=FIGURES), device=device)

    @contextmanager
    def recording(self, paths: list[str]) -> Iterator[None]:
        with self._package.record_paths() as record:
            yield
        paths.extend(str(getattr(entry, "path", entry)) for entry in record)

    def attend(self, arrays: Arrays, options: Mapping[str, Any], want_lse: bool) -> tuple[Any, Any]:
        keywords = {"path": self.path, **options, **paired(arrays)}
        q, k, v = (keywords.pop(name) for name in ("q", "k", "v"))
        result = self._package.scaled_dot_product_attention(q, k, v, return_lse=want_lse, **keywords)
        return result if want_lse else (result, None)

    def other(self, op: str, arrays: Arrays, options: Mapping[str, Any]) -> Arrays:
        result = getattr(self._package, op)(**arrays, **options)
        return dict(result) if isinstance(result, Mapping) else {"out": result}

    def reproduce(self, call: Call) -> Reproduction | None:
        if call.op != "attention":
            return None
        text = {"path": repr(self.path), **keyword_text(call)}
        given = "".join(f", {name}={value}" for name, value in text.items())
        return Reproduction("mlx", ("import mlx_tx",), f"mlx_tx.scaled_dot_product_attention(q, k, v{given})", call)


def paired(arrays: Mapping[str, Any]) -> Arrays:
    """The arrays with the two of a segment pair as one argument."""
    given = dict(arrays)
    if "q_segments" in given:
        given["segments"] = (given.pop("q_segments"), given.pop("kv_segments"))
    return given
