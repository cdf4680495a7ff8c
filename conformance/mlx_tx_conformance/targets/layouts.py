"""The memory layouts of ``call.LAYOUTS`` as MLX arrays: same values, other strides and offsets.

Views are cut from a larger base whose surroundings hold NaN (or a large integer), so that a kernel which ignores
strides or reads past its input shows. The base is kept, so that a write outside the view shows too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..call import LAYOUTS
from .arrays import to_mlx, to_numpy

# An odd number of elements, so that the view is aligned to nothing but the element itself.
LEADING = 7


@dataclass(frozen=True)
class Placed:
    """An array as the implementation gets it, with the base that it was cut from (``None``: nothing to watch)."""

    view: Any
    base: Any = None
    base_bytes: bytes = b""

    def written_around(self) -> bool:
        """Whether the memory that the view was cut from changed."""
        return self.base is not None and to_numpy(self.base).tobytes() != self.base_bytes


def place(array: np.ndarray, layout: str) -> Placed:
    """Realise one array in a layout. Raises ValueError where the layout cannot hold these values."""
    import mlx.core as mx

    if layout not in LAYOUTS:
        raise ValueError(f"[layout] must be one of {', '.join(LAYOUTS)}; got {layout!r}")
    if layout == "contiguous" or array.ndim == 0:
        view = to_mlx(array)
        mx.eval(view)
        return Placed(view)
    if layout == "donated":
        # Unevaluated and referenced by nobody else once the caller drops it: MLX may reuse its buffer for a result.
        return Placed(mx.stop_gradient(to_mlx(array)))
    if layout == "transposed":
        return _cut(*_transposed(array))
    if layout == "broadcast":
        axis = _constant_axis(array)
        narrow = to_mlx(np.take(array, [0], axis=axis))
        return _cut(narrow, lambda base: mx.broadcast_to(base, array.shape))
    if layout == "offset":
        flat = np.concatenate([_rubbish((LEADING,), array.dtype), array.reshape(-1), _rubbish((LEADING,), array.dtype)])
        return _cut(to_mlx(flat), lambda base: base[LEADING : LEADING + array.size].reshape(array.shape))
    return _cut(*_sliced(array))


def _cut(base: Any, cut: Any) -> Placed:
    import mlx.core as mx

    mx.eval(base)
    view = cut(base)
    mx.eval(view)
    return Placed(view, base, to_numpy(base).tobytes())


def _transposed(array: np.ndarray) -> tuple[Any, Any]:
    """Heads after positions, as a projection leaves them ([B, T, N, D]); the last two axes swapped below four."""
    if array.ndim == 1:
        base = _rubbish((array.size, 2), array.dtype)
        base[:, 0] = array
        return to_mlx(base), lambda b: b[:, 0]
    one, other = (1, 2) if array.ndim == 4 else (array.ndim - 2, array.ndim - 1)
    return to_mlx(np.ascontiguousarray(np.swapaxes(array, one, other))), lambda b: b.swapaxes(one, other)


def _sliced(array: np.ndarray) -> tuple[Any, Any]:
    """A window of a larger buffer, as of a KV cache: one element before and two after on the last two axes."""
    margins = [(0, 0)] * (array.ndim - 2) + [(1, 2)] * min(2, array.ndim)
    shape = tuple(n + before + after for n, (before, after) in zip(array.shape, margins, strict=True))
    base = _rubbish(shape, array.dtype)
    window = tuple(slice(before, before + n) for n, (before, _) in zip(array.shape, margins, strict=True))
    base[window] = array
    return to_mlx(base), lambda b: b[window]


def _constant_axis(array: np.ndarray) -> int:
    for axis, n in enumerate(array.shape):
        first = np.take(array, [0], axis=axis)
        if n > 1 and np.array_equal(np.broadcast_to(first, array.shape), array):
            return axis
    if 1 in array.shape:
        return array.shape.index(1)
    raise ValueError("[layout] broadcast needs values that are the same along one axis; these are not")


def _rubbish(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """What no implementation may read: NaN, a large integer, or True."""
    if dtype == np.bool_:
        return np.ones(shape, dtype)
    if np.issubdtype(dtype, np.integer):
        return np.full(shape, np.iinfo(dtype).max // 2, dtype)
    return np.full(shape, np.nan, dtype)
