import numpy as np
import pytest

from mlx_tx_conformance.targets import open_target

from .altered import Altered

TARGET = open_target("mlx_tx:composed")
SHAPES = "shapes: {B: 2, T_q: 5, d_model: 8, d_ff: 16}\n"
MLP = SHAPES + "call: {op: mlp, kind: swiglu}\n"


def out(change):
    return Altered(lambda outputs, call: {"out": change(outputs["out"], call)})


def test_positions_by_themselves(verdict):
    text = MLP + "check: position_wise\n"
    assert verdict(text, TARGET)[0] == "pass"
    shifted = out(lambda y, call: np.roll(y, 1, axis=1) * np.float32(0.01) + y)
    assert verdict(text, shifted)[0] == "fail"
    by_place = out(lambda y, call: y + np.arange(y.shape[1], dtype=y.dtype)[:, None])
    assert verdict(text, by_place)[0] == "fail"


def test_a_linear_network_is_told(verdict):
    text = SHAPES + "call: {op: mlp, kind: relu}\ncheck: {not_linear: {margin: 0.1}}\n"
    assert verdict(text, TARGET)[0] == "pass"
    linear = out(lambda y, call: call.arrays["x"] @ call.arrays["w_up"] @ call.arrays["w_down"])
    assert verdict(text, linear)[0] == "fail"


@pytest.mark.parametrize("op", ["rms_norm", "layer_norm"])
def test_scale_invariance(verdict, op):
    text = SHAPES + f"call: {{op: {op}, eps: 0.0}}\ncheck: {{scale_invariant: {{by: [4.0, 0.5]}}}}\n"
    assert verdict(text, TARGET)[0] == "pass"
    scaled = out(lambda y, call: y * (1 + np.abs(call.arrays["x"]).max()) ** np.float32(0.001))
    assert verdict(text, scaled)[0] == "fail"


def test_shifts_of_sinusoidal_positions(verdict):
    text = "shapes: {T_q: 9}\ncall: {op: sinusoidal, dims: 8}\ncheck: {shift_is_linear: {by: [1, 50]}}\n"
    assert verdict(text, TARGET)[0] == "pass"
    other = out(lambda y, call: np.sin(call.arrays["positions"][:, None] ** 0.5 * np.ones(8)).astype(np.float32))
    assert verdict(text, other)[0] == "fail"
