"""Bounds of a matrix product accumulated in float32, with errors that come in with its factors."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ..call import Call
from .bound import Bound, finish
from .problem import float64
from .units import LAMBDA, U, gamma


def product_errors(
    x: np.ndarray,
    w: np.ndarray,
    *,
    bias: np.ndarray | None = None,
    x_error: np.ndarray | None = None,
    w_error: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(value, deterministic, probabilistic error) of y = x w + bias for x ``[..., K]`` and w ``[K, N]``, unrounded.

    Deterministic: gamma(K) sum |x||w|. Probabilistic: lambda u sqrt(K/3 y^2 + (K/6 + 2) sum x^2 w^2), the second
    moment of the partial sums over random orders. Incoming errors: linear in the first, root-sum-square in the second
    (and never more there than linear).
    """
    K = x.shape[-1]
    abs_x, abs_w = np.abs(x), np.abs(w)
    y = x @ w
    det = gamma(K) * (abs_x @ abs_w)
    variance = U * U * (K / 3 * y * y + (K / 6 + 2) * ((x * x) @ (w * w)))
    linear = np.zeros_like(y)
    square = np.zeros_like(y)
    if x_error is not None:
        linear = linear + x_error @ abs_w
        square = square + (x_error * x_error) @ (w * w)
    if w_error is not None:
        size = abs_x if x_error is None else abs_x + x_error
        linear = linear + size @ w_error
        square = square + (size * size) @ (w_error * w_error)
    prob = np.minimum(LAMBDA * np.sqrt(variance + square), LAMBDA * np.sqrt(variance) + linear)
    det = det + linear
    if bias is not None:
        y = y + bias
        det, prob = det + U * np.abs(y), prob + U * np.abs(y)
    return y, det, prob


def product_bounds(call: Call, input_error: Mapping[str, np.ndarray] | None = None) -> dict[str, Bound]:
    """Bound of ``out`` = ``x`` ``w`` (+ ``b``), rounded to the dtype of the call."""
    errors = input_error or {}
    bias = call.arrays.get("b")
    y, det, prob = product_errors(
        float64(call.arrays["x"]),
        float64(call.arrays["w"]),
        bias=None if bias is None else float64(bias),
        x_error=errors.get("x"),
        w_error=errors.get("w"),
    )
    if "b" in errors:
        det, prob = det + errors["b"], prob + errors["b"]
    return {"out": finish(y, det, prob, call.dtype)}
