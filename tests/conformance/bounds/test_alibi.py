import numpy as np
import pytest

from mlx_tx_conformance.bounds import bound_call
from mlx_tx_conformance.call import Call
from mlx_tx_conformance.oracle.positions import alibi_slopes


@pytest.mark.parametrize("n", [1, 2, 8, 12, 33])
def test_slopes_computed_in_float32_stay_within_the_bound(n):
    held = bound_call(Call("alibi_slopes", {}, {"n_heads": n}), "f32-internal")["out"]
    np.testing.assert_array_equal(held.value, alibi_slopes(n))
    exponents = np.log2(alibi_slopes(n)).astype(np.float32)
    assert held.headroom(np.exp2(exponents)).max() <= 1


def test_slopes_in_half_exceed_the_bound():
    held = bound_call(Call("alibi_slopes", {}, {"n_heads": 12}), "f32-internal")["out"]
    assert held.headroom(alibi_slopes(12).astype(np.float16)).max() > 10
