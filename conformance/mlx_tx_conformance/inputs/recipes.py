"""Arrays by recipe: how an input that is not made by a design comes about.

The grammar: a literal (a list, nested), or a mapping with one of ``where`` and ``formula`` (expressions over b, h, i,
j, the dims and the numeric options), ``normal``, ``uniform``, ``constant``, ``values``, ``lengths``, and any of the
modifiers ``shape``, ``additive`` and ``visible`` (with ``where``), ``dtype``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import ml_dtypes
import numpy as np

from ..spec.expr import evaluate
from ..spec.recipes import INDICES, RECIPES

_DTYPES: Mapping[str, np.dtype] = {
    "float32": np.dtype(np.float32),
    "float16": np.dtype(np.float16),
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
    "int8": np.dtype(np.int8),
    "uint8": np.dtype(np.uint8),
    "int32": np.dtype(np.int32),
    "bool": np.dtype(bool),
}
# Arrays that hold whole numbers, and arrays that are float32 whatever the dtype of the call.
_INTEGERS = frozenset(
    {
        *("kv_lengths", "segments", "q_segments", "kv_segments", "q_offset", "offset"),
        *("ids", "positions", "tokens", "source", "lengths", "left_padding", "source_lengths"),
    }
)
_FLOAT32 = frozenset({"alibi", "d_lse"})


def build_array(
    name: str,
    recipe: Any,
    *,
    shape: tuple[int, ...],
    dtype: str,
    rng: np.random.Generator,
    names: Mapping[str, Any],
) -> np.ndarray:
    """The array ``name`` by ``recipe``, of ``shape`` unless the recipe says otherwise.

    ``dtype`` is the case's; arrays of whole numbers are int32, slopes and the cotangent of the log-sum-exp float32,
    and a mask by ``where`` alone or of booleans is bool. ``names`` are what expressions may use. Raises ``ValueError``
    for a recipe with none or several of the kinds.
    """
    if not isinstance(recipe, Mapping):
        recipe = {"values": recipe}
    kinds = [kind for kind in RECIPES if kind in recipe]
    if len(kinds) != 1:
        raise ValueError(f"[inputs] {name} must have exactly one of {', '.join(RECIPES)}; got {dict(recipe)!r}")
    if recipe.get("shape") is not None:
        shape = tuple(int(_number(size, names)) for size in recipe["shape"])
    kind, argument = kinds[0], recipe[kinds[0]]
    array = _MAKERS[kind](argument, recipe, shape, rng, names)
    return _cast(array, name, recipe.get("dtype"), dtype)


def _cast(array: np.ndarray, name: str, wanted: str | None, case_dtype: str) -> np.ndarray:
    if wanted is not None:
        target = _DTYPES[wanted]
    elif array.dtype == bool:
        return array
    elif name in _INTEGERS:
        target = _DTYPES["int32"]
    else:
        target = _DTYPES["float32" if name in _FLOAT32 else case_dtype]
    with np.errstate(over="ignore", invalid="ignore"):
        return array.astype(target)


def _where(
    argument: str, recipe: Mapping[str, Any], shape: tuple[int, ...], _: np.random.Generator, names: Mapping[str, Any]
) -> np.ndarray:
    holds = np.broadcast_to(evaluate(argument, {**names, **indices(shape)}), shape)
    outside = recipe.get("additive")
    if outside is None:
        return holds.astype(bool)
    inside = recipe.get("visible", 0.0)
    return np.where(holds, float(_number(inside, names)), float(_number(outside, names)))


def _formula(
    argument: str, _: Mapping[str, Any], shape: tuple[int, ...], __: np.random.Generator, names: Mapping[str, Any]
) -> np.ndarray:
    value = np.asarray(evaluate(argument, {**names, **indices(shape)}), dtype=np.float64)
    return np.broadcast_to(value, shape).copy()


def indices(shape: tuple[int, ...]) -> dict[str, np.ndarray]:
    """Index arrays by name for a shape that ends with the axes of ``[b, h, i, j]``; absent leading axes are 0."""
    found: dict[str, np.ndarray] = {}
    for place, name in enumerate(reversed(INDICES)):
        if place < len(shape):
            axes = [1] * len(shape)
            axes[-1 - place] = shape[-1 - place]
            found[name] = np.arange(shape[-1 - place]).reshape(axes)
        else:
            found[name] = np.zeros((1,) * len(shape), dtype=np.int64)
    return found


def _normal(
    std: Any, _: Mapping[str, Any], shape: tuple[int, ...], rng: np.random.Generator, names: Mapping[str, Any]
) -> np.ndarray:
    return rng.standard_normal(shape) * float(_number(std, names))


def _uniform(
    ends: Any, _: Mapping[str, Any], shape: tuple[int, ...], rng: np.random.Generator, names: Mapping[str, Any]
) -> np.ndarray:
    low, high = (float(_number(end, names)) for end in ends)
    return rng.uniform(low, high, shape)


def _constant(
    value: Any, _: Mapping[str, Any], shape: tuple[int, ...], __: np.random.Generator, names: Mapping[str, Any]
) -> np.ndarray:
    return np.full(shape, _number(value, names))


def _values(
    values: Any,
    recipe: Mapping[str, Any],
    shape: tuple[int, ...],
    _: np.random.Generator,
    names: Mapping[str, Any],
) -> np.ndarray:
    array = np.array(_evaluated(values, names))
    return array.reshape(shape) if recipe.get("shape") is not None else array


def _lengths(
    lengths: Any, _: Mapping[str, Any], shape: tuple[int, ...], __: np.random.Generator, names: Mapping[str, Any]
) -> np.ndarray:
    B, T = shape
    rows = _evaluated(lengths, names)
    if not rows or not isinstance(rows[0], list):
        rows = [rows] * B
    if len(rows) != B or any(sum(row) != T or min(row, default=0) < 0 for row in rows):
        raise ValueError(f"[inputs] lengths must be counts that sum to {T} in each of {B} batch rows; got {lengths!r}")
    return np.array([np.repeat(np.arange(len(row)), row) for row in rows]).reshape(shape)


_MAKERS = {
    "where": _where,
    "formula": _formula,
    "normal": _normal,
    "uniform": _uniform,
    "constant": _constant,
    "values": _values,
    "lengths": _lengths,
}


def _evaluated(values: Any, names: Mapping[str, Any]) -> Any:
    if isinstance(values, list | tuple):
        return [_evaluated(value, names) for value in values]
    return _number(values, names)


def _number(value: Any, names: Mapping[str, Any]) -> Any:
    """A number, or the value of an expression over ``names``."""
    return evaluate(value, names) if isinstance(value, str) else value
