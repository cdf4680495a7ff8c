"""Checks of single argument values, with the messages of the attention function."""

from __future__ import annotations

import math
import numbers
import operator
import struct
from typing import Any

import mlx.core as mx
import numpy as np

FUNCTION = "[scaled_dot_product_attention]"
FLOATING = (mx.float32, mx.float16, mx.bfloat16)
ANY_FLOATING = (*FLOATING, mx.float64)  # float64 exists on the CPU only, and on the composed path
# Positions and sides of a window are int32: within these limits no sum of two of them leaves it.
FARTHEST_OFFSET = 2**29
UNBOUNDED = 2**30
INTEGERS = (mx.int8, mx.int16, mx.int32, mx.int64, mx.uint8, mx.uint16, mx.uint32, mx.uint64)


class ArrayTypeError(TypeError, ValueError):
    """An array of a dtype that an argument does not take.

    It is a ``TypeError`` by what it says, and a ``ValueError`` too because that is what
    ``mx.fast.scaled_dot_product_attention`` raises for a dtype, and code written for that one catches it.
    """


def integer(name: str, value: Any, minimum: int | None = None) -> int:
    """``value`` as a Python integer; booleans and floats are refused."""
    if isinstance(value, bool | np.bool_ | mx.array):
        raise TypeError(f"{FUNCTION} {name} must be an integer; got {value!r}")
    try:
        result = operator.index(value)
    except TypeError:
        raise TypeError(f"{FUNCTION} {name} must be an integer; got {value!r}") from None
    if minimum is not None and result < minimum:
        raise ValueError(f"{FUNCTION} {name} must be >= {minimum}; got {result}")
    return result


def integers(name: str, values: Any, B: int) -> tuple[int, ...]:
    """``values``, a list, tuple or NumPy array of B integers, as a tuple."""
    if isinstance(values, np.ndarray):
        values = values.tolist()
    if not isinstance(values, list | tuple):
        raise TypeError(f"{FUNCTION} {name} must be a list or an array of integers; got {values!r}")
    if len(values) != B:
        raise ValueError(f"{FUNCTION} {name} must have one entry for each of the B={B} rows; got {len(values)}")
    return tuple(integer(name, value) for value in values)


def single(name: str, value: Any, default: float | None) -> float:
    """``value`` rounded to float32, the number that is meant from here on."""
    if value is None and default is not None:
        value = default
    if isinstance(value, mx.array | np.ndarray) and value.ndim == 0:
        value = _item(name, value)
    if isinstance(value, bool | np.bool_) or not isinstance(value, numbers.Real):
        raise TypeError(f"{FUNCTION} {name} must be a number; got {value!r}")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number) or abs(number) > float(np.finfo(np.float32).max):
        raise ValueError(f"{FUNCTION} {name} must be finite in float32; got {value!r}")
    return struct.unpack("f", struct.pack("f", number))[0]


def _item(name: str, x: mx.array | np.ndarray) -> Any:
    """The number in an array without axes, which MLX must be able to evaluate now."""
    try:
        return x.item()
    except ValueError as error:
        raise ValueError(
            f"{FUNCTION} {name} as an array is read, which compile and vmap do not allow; pass a Python number"
        ) from error


def as_int32(x: mx.array, low: int, high: int) -> mx.array:
    """``x`` as int32, values outside low..high replaced by the next number beyond that end: not wrapped into it."""
    if x.dtype in (mx.uint8, mx.uint16, mx.uint32, mx.uint64):
        return mx.minimum(x, mx.array(high + 1, dtype=x.dtype) if _holds(x.dtype, high + 1) else x).astype(mx.int32)
    if x.dtype in (mx.int8, mx.int16):
        return x.astype(mx.int32)
    return mx.clip(x, mx.array(low - 1, dtype=x.dtype), mx.array(high + 1, dtype=x.dtype)).astype(mx.int32)


def _holds(dtype: mx.Dtype, value: int) -> bool:
    return value < 2 ** (8 * dtype.size)


def flag(name: str, value: Any) -> bool:
    """``value`` if it is a boolean."""
    if not isinstance(value, bool):
        raise TypeError(f"{FUNCTION} {name} must be True or False; got {value!r}")
    return value


def array(name: str, x: Any) -> None:
    """Refuses what is not an MLX array."""
    if not isinstance(x, mx.array):
        raise TypeError(f"{FUNCTION} {name} must be an mlx array; got {type(x).__name__}")


def integer_array(name: str, x: Any, shapes: tuple[tuple[int, ...], ...]) -> None:
    """Refuses what is not an integer MLX array of one of ``shapes``."""
    array(name, x)
    if x.dtype not in INTEGERS:
        raise ArrayTypeError(f"{FUNCTION} {name} must hold integers; got {dtype_name(x)}")
    if x.shape not in shapes:
        raise ValueError(f"{FUNCTION} {name} must have shape {' or '.join(map(str, shapes))}; got {x.shape}")


def read(name: str, x: mx.array) -> list[int]:
    """The values of an array, which MLX must be able to evaluate now."""
    try:
        mx.eval(x)
    except ValueError as error:
        raise ValueError(
            f"{FUNCTION} check=True reads {name}, which compile and vmap do not allow; pass check=False"
        ) from error
    return x.tolist()  # type: ignore[return-value]


def dtype_name(x: mx.array) -> str:
    """``float32`` and the like."""
    return str(x.dtype).removeprefix("mlx.core.")
