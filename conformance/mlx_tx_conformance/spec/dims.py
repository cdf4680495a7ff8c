"""The dims of a case: what it and its defaults say, what arrays written out have, and what follows from others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn, Protocol

from .errors import suggestion
from .expr import ExpressionError, parse
from .kinds import is_integer
from .merge import OWN
from .ops import DIMS, Array, Op

LARGEST_DIM = 1 << 24


class Fail(Protocol):
    """Raises the complaint about a key of a case."""

    def __call__(self, message: str, *path: str | int, hint: str = "") -> NoReturn: ...


def dims_of(body: Mapping[str, Any], op: Op, refused: bool, fail: Fail) -> dict[str, int]:
    """Every dim of a case. Where the call must be ``refused``, dims need not fit one another or what is written."""
    shapes = dict(body.get("shapes") or {})
    for name in shapes:
        if name not in DIMS:
            fail(f"unknown dim {name!r}", "shapes", name, hint=suggestion(name, DIMS))
    shapes |= _written(body.get("inputs") or {}, shapes, body.get(OWN, frozenset()), op, refused, fail)
    dims: dict[str, int] = {}
    for name in DIMS:
        _resolve(name, shapes, dims, (), fail)
    if not refused and op.needs and (dims["N_kv"] < 1 or dims["N_q"] % dims["N_kv"]):
        fail(f"N_q = {dims['N_q']} is no multiple of N_kv = {dims['N_kv']}", "shapes")
    return dims


def _resolve(name: str, shapes: Mapping[str, Any], dims: dict[str, int], above: tuple[str, ...], fail: Fail) -> None:
    """One dim, after those that its expression uses."""
    if name in dims:
        return
    value = shapes.get(name, DIMS[name])
    if isinstance(value, str):
        if name in above:
            fail(f"the dims {', '.join(above)} are given by one another", "shapes", name)
        try:
            expression = parse(value)
            for other in expression.names:
                if other not in DIMS:
                    fail(f"unknown name {other!r} in {value!r}", "shapes", name, hint=suggestion(other, DIMS))
                _resolve(other, shapes, dims, (*above, name), fail)
            value = expression(dims)
        except ExpressionError as error:
            fail(str(error), "shapes", name)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not is_integer(value) or not 0 <= value <= LARGEST_DIM:
        fail(f"{name} must be an integer from 0 to {LARGEST_DIM:,}; got {value!r:.60}", "shapes", name)
    dims[name] = value


def _written(
    inputs: Mapping[str, Any], shapes: Mapping[str, Any], own: frozenset[str], op: Op, refused: bool, fail: Fail
) -> dict[str, int]:
    """Dims that arrays written out have. Those of required arrays go before what the clause's defaults say."""
    found: dict[str, int] = {}
    for name, recipe in inputs.items():
        array = op.arrays.get(name)
        values = recipe.get("values") if isinstance(recipe, Mapping) else recipe
        if array is None or not isinstance(values, list):
            continue
        shape = _shape(values, array, fail)
        if array.broadcasts:
            continue
        if len(shape) != len(array.shape) and not refused:
            fail(f"{name} has {len(array.shape)} axes; written with {len(shape)}", "inputs", name)
        for dim, size in zip(array.shape, shape, strict=False):
            if dim not in DIMS:
                continue
            stated = found.get(dim, shapes.get(dim) if dim in own or not array.required else None)
            if stated is None:
                found[dim] = size
            elif is_integer(stated) and stated != size and not refused:
                fail(f"{name} as written has {dim} = {size}, elsewhere it is {stated}", "inputs", name)
    return found


def _shape(values: Any, array: Array, fail: Fail) -> tuple[int, ...]:
    """The shape of a nested list, all of whose parts must have the same."""
    if not isinstance(values, list):
        return ()
    inner = [_shape(value, array, fail) for value in values]
    if any(shape != inner[0] for shape in inner):
        fail(f"the rows of {array.name} have different lengths", "inputs", array.name)
    return (len(values), *inner[0]) if inner else (0,)
