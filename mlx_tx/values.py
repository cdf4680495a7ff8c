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
    if isinstance(value, bool | np.bool_) or not isinstance(value, numbers.Real):
        raise TypeError(f"{FUNCTION} {name} must be a number; got {value!r}")
    number = float(value)
    if not math.isfinite(number) or abs(number) > float(np.finfo(np.float32).max):
        raise ValueError(f"{FUNCTION} {name} must be finite in float32; got {value!r}")
    return struct.unpack("f", struct.pack("f", number))[0]


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
