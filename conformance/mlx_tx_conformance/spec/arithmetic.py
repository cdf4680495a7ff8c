"""Arithmetic on numbers and arrays alike, as Python does it, but bounded: no huge integers, no silent inf or nan."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

# Integers beyond this are no longer exact as float64 (and products of two still fit no int64).
LARGEST_INTEGER = 2**53


class OperationError(ValueError):
    """An operation without a finite, exact or real answer."""


def as_operand(value: Any) -> Any:
    """A number, a boolean or an array as the operators take it: Python scalars, or int64, float64 or bool arrays."""
    kind = type(value)
    if kind is bool or kind is float:
        return value
    if kind is int:
        return _exact(value)
    if isinstance(value, np.ndarray | np.generic):
        if value.ndim == 0:
            return as_operand(value.item())
        if value.dtype == np.bool_:
            return value
        if np.issubdtype(value.dtype, np.integer):
            return _exact(value.astype(np.int64, copy=False))
        return value.astype(np.float64, copy=False)
    raise OperationError(f"a number expected; got {value!r:.60}")


def truth(value: Any) -> Any:
    """Whether it is not zero: a bool, or a boolean array."""
    return value.astype(bool) if isinstance(value, np.ndarray) else bool(value)


def truth_not(value: Any) -> Any:
    """Whether it is zero."""
    return ~value.astype(bool) if isinstance(value, np.ndarray) else not value


def negate(value: Any) -> Any:
    """Its opposite (of a boolean: 0 or -1)."""
    return -_number(value)


def _number(value: Any) -> Any:
    """Booleans count as 0 and 1, in arrays too (NumPy would take + for ``or``)."""
    if isinstance(value, np.ndarray):
        return value.astype(np.int64) if value.dtype == np.bool_ else value
    return int(value) if isinstance(value, bool) else value


def _largest(value: Any) -> int | float:
    """The largest magnitude; of integers exactly (a float would round 2^53 + 1 to 2^53)."""
    if not isinstance(value, np.ndarray):
        return abs(value)
    # Not abs of the array: that of the least int64 is negative.
    return max(np.max(value, initial=0).item(), -np.min(value, initial=0).item())


def _integral(*values: Any) -> bool:
    return all(isinstance(v, int) or (isinstance(v, np.ndarray) and v.dtype == np.int64) for v in values)


def _exact(value: Any) -> Any:
    if _largest(value) > LARGEST_INTEGER:
        raise OperationError("an integer beyond 2^53")
    return value


def _sound(result: Any, *operands: Any) -> Any:
    """The result, unless it is an inf or nan that no operand was."""
    if isinstance(result, int):
        return _exact(result)
    if isinstance(result, np.ndarray):
        return _exact(result) if result.dtype == np.int64 else result
    if not math.isfinite(result) and all(isinstance(x, int | float) and math.isfinite(x) for x in operands):
        raise OperationError("the result is no finite number")
    if math.isnan(result) and not any(isinstance(x, float) and math.isnan(x) for x in operands):
        raise OperationError("the result is not a number")
    return result


def _arithmetic(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def operation(a: Any, b: Any) -> Any:
        a, b = _number(a), _number(b)
        try:
            with np.errstate(divide="raise", over="raise", invalid="raise"):
                return _sound(function(a, b), a, b)
        except ZeroDivisionError:
            raise OperationError("division by zero") from None
        except (FloatingPointError, OverflowError):
            raise OperationError("the result is no finite number") from None
        except ValueError as error:
            if isinstance(error, OperationError):
                raise
            raise OperationError(str(error)) from None

    return operation


def _product(a: Any, b: Any) -> Any:
    if _integral(a, b) and _largest(a) * _largest(b) > LARGEST_INTEGER:
        raise OperationError("an integer beyond 2^53")
    return a * b


def _power(a: Any, b: Any) -> Any:
    if _integral(a, b):
        if isinstance(b, np.ndarray) or isinstance(a, np.ndarray):
            least = int(np.min(b)) if np.size(b) else 0
            if least < 0:
                return np.power(np.asarray(a, np.float64), b)
        elif b < 0:
            return float(a) ** b
        largest, most = _largest(a), _largest(b)
        if largest > 1 and most * math.log2(largest) > 53:
            raise OperationError("an integer beyond 2^53")
        return a**b
    result = a**b
    if isinstance(result, complex):
        raise OperationError("the result is not a real number")
    return result


def _comparison(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def compare(a: Any, b: Any) -> Any:
        try:
            return function(a, b)
        except ValueError as error:
            raise OperationError(str(error)) from None

    return compare


# Of booleans or boolean arrays.
both = _comparison(operator.and_)
either = _comparison(operator.or_)

OPERATORS: Mapping[str, Callable[[Any, Any], Any]] = {
    "+": _arithmetic(operator.add),
    "-": _arithmetic(operator.sub),
    "*": _arithmetic(_product),
    "/": _arithmetic(operator.truediv),
    "//": _arithmetic(operator.floordiv),
    "%": _arithmetic(operator.mod),
    "**": _arithmetic(_power),
    "<": _comparison(operator.lt),
    "<=": _comparison(operator.le),
    ">": _comparison(operator.gt),
    ">=": _comparison(operator.ge),
    "==": _comparison(operator.eq),
    "!=": _comparison(operator.ne),
}


def _absolute(x: Any) -> Any:
    return abs(_number(x))


def _extreme(pick: Callable[..., Any], vectorised: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    def extreme(*values: Any) -> Any:
        values = tuple(map(_number, values))
        if not any(isinstance(value, np.ndarray) for value in values):
            nan = [value for value in values if np.isnan(value)]
            return nan[0] if nan else pick(values)
        result = values[0]
        try:
            for value in values[1:]:
                result = vectorised(result, value)
        except ValueError as error:
            raise OperationError(str(error)) from None
        return result

    return extreme


def _rounded(scalar: Callable[[Any], int], vectorised: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def rounded(x: Any) -> Any:
        x = _number(x)
        if _integral(x):
            return x
        if not np.all(np.isfinite(x)):
            raise OperationError("infinity or nan has no integer part")
        if _largest(x) > LARGEST_INTEGER:
            raise OperationError("an integer beyond 2^53")
        return vectorised(x).astype(np.int64) if isinstance(x, np.ndarray) else scalar(x)

    return rounded


def _root(scalar: Callable[[Any], float], vectorised: Callable[[Any], Any], least: str) -> Callable[[Any], Any]:
    def root(x: Any) -> Any:
        x = _number(x)
        try:
            with np.errstate(divide="raise", invalid="raise"):
                return vectorised(x) if isinstance(x, np.ndarray) else scalar(x)
        except (ValueError, FloatingPointError):
            raise OperationError(f"needs a number {least}") from None

    return root


# Name: function, least and greatest number of arguments.
FUNCTIONS: Mapping[str, tuple[Callable[..., Any], int, int]] = {
    "abs": (_absolute, 1, 1),
    "min": (_extreme(min, np.minimum), 2, 8),
    "max": (_extreme(max, np.maximum), 2, 8),
    "ceil": (_rounded(math.ceil, np.ceil), 1, 1),
    "floor": (_rounded(math.floor, np.floor), 1, 1),
    "log2": (_root(math.log2, np.log2, "above 0"), 1, 1),
    "sqrt": (_root(math.sqrt, np.sqrt, "of at least 0"), 1, 1),
}
