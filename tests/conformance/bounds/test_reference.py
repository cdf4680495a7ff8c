"""The float32 computations that stand for correct code give what the oracle gives, and the faults do not."""

import numpy as np
import pytest

from mlx_tx_conformance.bounds.faults import FAULTS
from mlx_tx_conformance.bounds.reference import Plain, correct_implementations
from mlx_tx_conformance.call import Call
from mlx_tx_conformance.oracle.attention import attention


def call(**options):
    rng = np.random.default_rng(0)
    shapes = {"q": (2, 4, 6, 8), "k": (2, 2, 30, 8), "v": (2, 2, 30, 5)}
    arrays = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    arrays["sinks"] = rng.standard_normal(4).astype(np.float32)
    arrays["bias"] = rng.standard_normal((1, 4, 6, 30)).astype(np.float32)
    arrays["mask"] = rng.random((2, 1, 6, 30)) < 0.8
    arrays["mask"][0, 0, 3] = False
    return Call("attention", arrays, {"causal": True, "window": 25, "softcap": 4.0, **options}, {}, ("out", "lse"))


IMPLEMENTATIONS = {
    **correct_implementations("float32", "f32-internal"),
    **correct_implementations("float32", "split"),
}


@pytest.mark.parametrize("name", IMPLEMENTATIONS)
def test_correct_implementations_agree_with_the_oracle(name):
    given = call()
    stages = attention(
        *(given.arrays[n] for n in ("q", "k", "v")), **given.options,
        **{n: given.arrays[n] for n in ("sinks", "bias", "mask")},
    )  # fmt: skip
    outputs = IMPLEMENTATIONS[name](given)
    np.testing.assert_allclose(outputs["out"], stages.out, atol=2e-6)
    np.testing.assert_allclose(outputs["lse"], stages.lse, atol=1e-5)
    without_sink = IMPLEMENTATIONS[name](given.with_arrays(sinks=None))
    assert (without_sink["out"][0, :, 3] == 0).all()
    assert (without_sink["lse"][0, :, 3] == -np.inf).all()


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_every_fault_changes_something(fault):
    given = call(std=None)
    wrong, right = fault()(given), Plain()(given)
    assert any((wrong[name] != right[name]).any() for name in ("out", "lse"))
