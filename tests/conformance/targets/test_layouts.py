"""Every layout holds the same values, in other strides, and shows writes around the array."""

from __future__ import annotations

import ml_dtypes
import mlx.core as mx
import numpy as np
import pytest

from mlx_tx_conformance.call import LAYOUTS
from mlx_tx_conformance.targets.arrays import to_mlx, to_numpy
from mlx_tx_conformance.targets.layouts import place

DTYPES = [np.float32, np.float16, ml_dtypes.bfloat16, np.int32, np.bool_]
SHAPES = [(2, 3, 5, 4), (2, 6), (7,), (1, 1, 1, 1), ()]


def values(shape, dtype=np.float32) -> np.ndarray:
    return (np.arange(np.prod(shape, dtype=int)) % 5).reshape(shape).astype(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [*SHAPES, (0, 3)])
def test_arrays_cross_bit_for_bit(dtype, shape):
    array = values(shape, dtype)
    back = to_numpy(to_mlx(array))
    assert back.dtype == array.dtype
    assert back.shape == array.shape
    assert back.tobytes() == array.tobytes()


@pytest.mark.parametrize("layout", [name for name in LAYOUTS if name != "broadcast"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_a_layout_holds_the_same_values(layout, dtype, shape):
    array = values(shape, dtype)
    view = to_numpy(place(array, layout).view)
    assert view.dtype == array.dtype
    assert np.array_equal(view, array)
    assert view.shape == array.shape


def strides(array: mx.array) -> tuple[int, ...]:
    return memoryview(array).strides


def test_each_layout_has_the_strides_that_it_says():
    array = values((2, 3, 5, 4))
    assert strides(place(array, "contiguous").view) == (240, 80, 16, 4)
    assert strides(place(array, "transposed").view) == (240, 16, 48, 4)
    assert strides(place(array, "sliced").view) == (3 * 8 * 7 * 4, 8 * 7 * 4, 7 * 4, 4)
    same = np.broadcast_to(values((1, 3, 5, 4)), (2, 3, 5, 4))
    assert strides(place(same, "broadcast").view)[0] == 0
    offset = place(array, "offset")
    assert offset.base.size == array.size + 14


def test_broadcast_needs_equal_values_along_an_axis():
    with pytest.raises(ValueError, match="broadcast needs values"):
        place(values((2, 3)), "broadcast")


def test_an_unknown_layout_is_refused():
    with pytest.raises(ValueError, match="got 'sideways'"):
        place(values((2, 3)), "sideways")


def test_the_surroundings_are_nan():
    base = to_numpy(place(values((2, 3, 5, 4)), "sliced").base)
    assert np.isnan(base).sum() == base.size - 2 * 3 * 5 * 4


def test_a_write_around_the_view_shows():
    placed = place(values((2, 3, 5, 4)), "sliced")
    assert not placed.written_around()
    placed.base[0, 0, 0, 0] = 1.0
    assert placed.written_around()
