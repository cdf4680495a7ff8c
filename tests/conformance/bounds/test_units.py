import ml_dtypes
import numpy as np
import pytest

from mlx_tx_conformance.bounds.units import UNITS, U, gamma, unit


@pytest.mark.parametrize("name", UNITS)
def test_roundoff_is_half_the_distance_from_one_to_the_next_number(name):
    assert unit(name).u == float(ml_dtypes.finfo(UNITS[name].dtype).eps) / 2


@pytest.mark.parametrize("name", UNITS)
def test_overflow_is_the_least_number_that_rounds_to_infinity(name):
    kind = unit(name)
    below = kind.overflow * (1 - 2.0**-24)  # bfloat16 is reached by way of float32
    with np.errstate(over="ignore"):
        assert np.isinf(np.float64(kind.overflow).astype(kind.dtype).astype(np.float64))
        assert np.isfinite(np.float64(below).astype(kind.dtype).astype(np.float64))


def test_float16_underflow_unit_is_half_its_smallest_subnormal():
    assert unit("float16").tau == float(np.finfo(np.float16).smallest_subnormal) / 2


@pytest.mark.parametrize("name", ["float32", "bfloat16"])
def test_wide_exponents_may_flush_subnormals(name):
    assert unit(name).tau == float(ml_dtypes.finfo(UNITS[name].dtype).smallest_normal)


def test_gamma_bounds_the_product_of_roundings():
    n = 1000
    assert gamma(n) >= (1 + U) ** n - 1
    assert gamma(n) < 1.001 * n * U


def test_an_unknown_dtype_is_named():
    with pytest.raises(ValueError, match="float64"):
        unit("float64")
