"""The ways to compute attention, in one table: what each refuses, and what runs it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import mlx.core as mx

from mlx_tx.arguments import AttentionArrays, AttentionSpec
from mlx_tx.paths import blockwise, composed, fused, mlx

Refusal = Callable[[AttentionSpec, AttentionArrays, Any], str | None]
Runner = Callable[[AttentionSpec, AttentionArrays, Any], tuple[mx.array, mx.array | None]]


@dataclass(frozen=True)
class Path:
    """One way to compute attention.

    ``refuses(spec, arrays, stream)`` gives the reason why it cannot take a call, or ``None``; ``run(spec, arrays,
    stream)`` gives output and log-sum-exp. ``is_fused`` marks what ``force_fused=True`` may choose.
    """

    name: str
    refuses: Refusal
    run: Runner
    is_fused: bool = False


def _takes_everything(_spec: AttentionSpec, _arrays: AttentionArrays, _stream: Any) -> None:
    return None


def _takes_the_usual(refuses: Refusal) -> Refusal:
    """What the path refuses itself, and float64 and empty heads besides."""
    return lambda spec, arrays, stream: spec.unusual or refuses(spec, arrays, stream)


def _composed(spec: AttentionSpec, arrays: AttentionArrays, stream: Any) -> tuple[mx.array, mx.array]:
    with blockwise.on(stream):
        return composed.run(spec, arrays)


PATHS: Mapping[str, Path] = MappingProxyType(
    {
        path.name: path
        for path in (
            Path("mlx", _takes_the_usual(mlx.refuses), mlx.run, is_fused=True),
            Path("fused", _takes_the_usual(fused.refuses), fused.run, is_fused=True),
            Path("composed", _takes_everything, _composed),
            Path("blockwise", _takes_the_usual(_takes_everything), blockwise.run),
        )
    }
)
