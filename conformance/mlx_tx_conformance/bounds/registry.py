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
from .mlp import mlp_bounds, moe_bounds
from .norms import norm_bounds
from .product import product_bounds
from .rope import rope_bounds
from .sinusoidal import sinusoidal_bounds
from .softmax import softmax_bounds
from .tables import embedding_bounds, learned_position_bounds, relative_bias_bounds

InputError = Mapping[str, np.ndarray]
BoundFunction = Callable[[Call, PrecisionClass, InputError | None], dict[str, Bound]]


def _exact(bounds: Callable[..., dict[str, Bound]], *, classed: bool = False) -> BoundFunction:
    """A bound of an op whose inputs are taken as exact; ``classed``: it depends on the precision class."""

    def bound(call: Call, precision: PrecisionClass, input_error: InputError | None) -> dict[str, Bound]:
        if input_error:
            raise ValueError(f"[bound_call] {call.op} takes no input_error; got errors of {', '.join(input_error)}")
        return bounds(call, precision) if classed else bounds(call)

    return bound


def _product(call: Call, _: PrecisionClass, input_error: InputError | None) -> dict[str, Bound]:
    return product_bounds(call, input_error)


_BOUNDS: Mapping[str, BoundFunction] = MappingProxyType(
    {
        "alibi_slopes": _exact(alibi_slopes_bounds),
        "attention": attention_bounds,
        "attention_gradients": gradient_bounds,
        "attention_layer": attention_layer_bounds,
        "embedding": _exact(embedding_bounds),
        "layer_norm": _exact(norm_bounds),
        "learned_positions": _exact(learned_position_bounds),
        "mlp": _exact(mlp_bounds),
        "moe": _exact(moe_bounds),
        "product": _product,
        "relative_bias": _exact(relative_bias_bounds),
        "rms_norm": _exact(norm_bounds),
        "rope": rope_bounds,
        "sinusoidal": _exact(sinusoidal_bounds, classed=True),
        "softmax": _exact(softmax_bounds, classed=True),
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
