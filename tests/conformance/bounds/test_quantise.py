import numpy as np
import pytest

from mlx_tx_conformance.bounds.quantise import quantised_errors
from mlx_tx_conformance.call import DTYPES
from mlx_tx_conformance.oracle.quantise import quantise

RNG = np.random.default_rng(4)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("bits", [2, 4, 8])
def test_unpacking_in_the_dtype_stays_within_it(dtype, bits):
    kind = DTYPES[dtype]
    x = RNG.standard_normal((6, 64)).astype(kind)
    value, error = quantised_errors(x.astype(np.float64), dtype, bits=bits, group_size=32)
    packed = quantise(x, bits=bits, group_size=32, dtype=kind)
    scales, biases = (np.repeat(part, 32, axis=-1).astype(kind) for part in (packed.scales, packed.biases))
    product = (packed.codes.astype(np.float32) * scales.astype(np.float32)).astype(kind).astype(np.float32)
    unpacked = (product + biases.astype(np.float32)).astype(kind)
    assert np.all(np.abs(unpacked.astype(np.float64) - value) <= error + 1e-30)


def test_a_code_off_by_one_exceeds_it_but_at_a_tie():
    x = RNG.standard_normal((4, 32)).astype(np.float32)
    value, error = quantised_errors(x.astype(np.float64), "float32", bits=4, group_size=32)
    step = np.abs(np.repeat(quantise(x, bits=4, group_size=32).scales, 32, axis=-1))
    assert np.mean(step > error) > 0.95
    assert np.all(np.abs(x - value) <= step)
