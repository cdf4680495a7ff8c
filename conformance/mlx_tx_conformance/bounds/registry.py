"""Which bound belongs to which operation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np

from ..call import Call
from .alibi import alibi_slopes_bounds
from .attention import attention_bounds
from .bound import Bound
from .classes import PrecisionClass, precision_class
from .gradients import gradient_bounds
from .layers import attention_layer_bounds
from .product import product_bounds
from .rope import rope_bounds
from .softmax import softmax_bounds

InputError = Mapping[str, np.ndarray]
BoundFunction = Callable[[Call, PrecisionClass, InputError | None], dict[str, Bound]]


def _softmax(call: Call, precision: PrecisionClass, input_error: InputError | None) -> dict[str, Bound]:
    if input_error:
        raise ValueError(f"[bound_call] softmax takes no input_error; got errors of {', '.join(input_error)}")
    return softmax_bounds(call, precision)


def _product(call: Call, _: PrecisionClass, input_error: InputError | None) -> dict[str, Bound]:
    return product_bounds(call, input_error)


def _slopes(call: Call, _: PrecisionClass, __: InputError | None) -> dict[str, Bound]:
    return alibi_slopes_bounds(call)


_BOUNDS: Mapping[str, BoundFunction] = MappingProxyType(
    {
        "alibi_slopes": _slopes,
        "attention": attention_bounds,
        "attention_gradients": gradient_bounds,
        "attention_layer": attention_layer_bounds,
        "product": _product,
        "rope": rope_bounds,
        "softmax": _softmax,
    }
)


def bounded_ops() -> tuple[str, ...]:
    """The operations that have a bound."""
    return tuple(_BOUNDS)


def bound_call(call: Call, precision: str, input_error: InputError | None = None) -> dict[str, Bound]:
    """The oracle's value of every output of a call, each with the error that a correct implementation may make.

    ``precision`` names the class of roundings that the implementation declares (:func:`precision_class`).
    ``input_error`` gives, by array name, element-wise bounds of errors that the arrays come with (an intermediate
    result is known to its own bound only). Raises ``ValueError`` for an operation without a bound.
    """
    if call.op not in _BOUNDS:
        raise ValueError(f"[bound_call] op must be one of {', '.join(_BOUNDS)}; got {call.op!r}")
    return _BOUNDS[call.op](call, precision_class(precision), input_error or None)
