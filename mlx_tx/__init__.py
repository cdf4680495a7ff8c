"""mlx-tx: the full Transformer for MLX, with fused attention in which every feature composes.

Names are imported when first used, so that ``import mlx_tx`` itself does not import MLX.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOMES = {
    "scaled_dot_product_attention": "mlx_tx.attention",
    "record_paths": "mlx_tx.record",
    "PathRecord": "mlx_tx.record",
    "rope": "mlx_tx.positions",
    "alibi_slopes": "mlx_tx.positions",
    "MultiHeadAttention": "mlx_tx.layers",
    "softmax": "mlx_tx.probabilities",
}

__all__ = [
    "MultiHeadAttention",
    "PathRecord",
    "alibi_slopes",
    "record_paths",
    "rope",
    "scaled_dot_product_attention",
    "softmax",
]

if TYPE_CHECKING:
    from mlx_tx.attention import scaled_dot_product_attention
    from mlx_tx.layers import MultiHeadAttention
    from mlx_tx.positions import alibi_slopes, rope
    from mlx_tx.probabilities import softmax
    from mlx_tx.record import PathRecord, record_paths


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
