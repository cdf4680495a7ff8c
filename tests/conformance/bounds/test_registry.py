import numpy as np
import pytest

from mlx_tx_conformance.bounds import bound_call, bounded_ops
from mlx_tx_conformance.call import Call
from mlx_tx_conformance.spec.ops import OPS

# Held stage by stage, by a difference, or to a plain list: no bound of the whole; or a baseline that is only measured.
HELD_OTHERWISE = {"model", "model_gradients", "model_steps", "cache", "rnn"}


def test_every_op_of_the_spec_has_a_bound():
    assert set(OPS) - HELD_OTHERWISE <= set(bounded_ops())
    assert not HELD_OTHERWISE & set(bounded_ops())


def test_an_op_without_a_bound_is_named():
    with pytest.raises(ValueError, match=r"attention, .*got 'convolution'"):
        bound_call(Call("convolution", {}), "f32-internal")


def test_an_unknown_class_is_named():
    x = np.zeros((1, 1, 1, 1), np.float32)
    with pytest.raises(ValueError, match="got 'half'"):
        bound_call(Call("softmax", {"x": x}), "half")


def test_softmax_refuses_an_input_error_rather_than_dropping_it():
    x = np.zeros((2, 2), np.float32)
    with pytest.raises(ValueError, match="input_error"):
        bound_call(Call("softmax", {"x": x}), "f32-internal", input_error={"x": x})
