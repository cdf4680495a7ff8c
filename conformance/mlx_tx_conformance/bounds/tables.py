"""Bounds of what is read from a table: token rows, learned positions, T5's relative bias. Only a scale rounds."""

from __future__ import annotations

import numpy as np

from ..call import Call
from ..oracle.embeddings import embed, learned_positions
from ..oracle.relative_bias import relative_bias
from .bound import Bound, finish
from .units import U


def _read(value: np.ndarray, dtype: str, roundings: float = 0.0) -> Bound:
    """A value after some float32 roundings; rows that must be NaN are decidable by ``exactly`` alone."""
    error = roundings * U * np.abs(value)
    return finish(value, error, error, dtype)


def embedding_bounds(call: Call) -> dict[str, Bound]:
    """Bound of ``out``, the rows of ``table`` for ``ids`` times ``scale``."""
    scale = float(call.options.get("scale", 1.0))
    check = bool(call.options.get("check"))
    value = embed(call.arrays["ids"], call.arrays["table"], scale=scale, check=check)
    # The factor is a float32 number, and the product is rounded.
    return {"out": _read(value, call.dtype, 0.0 if scale == 1.0 else 2.0)}


def learned_position_bounds(call: Call) -> dict[str, Bound]:
    """Bound of ``out``, the rows of ``table`` for ``positions``."""
    check = bool(call.options.get("check"))
    return {"out": _read(learned_positions(call.arrays["positions"], call.arrays["table"], check=check), call.dtype)}


def relative_bias_bounds(call: Call) -> dict[str, Bound]:
    """Bound of ``out`` [1, N_q, T_q, T_kv]."""
    options = dict(call.options)
    T_q, T_kv = int(options.pop("T_q")), int(options.pop("T_kv"))
    options.pop("compiled", None)
    return {"out": _read(relative_bias(call.arrays["table"], T_q, T_kv, **options), call.dtype)}
