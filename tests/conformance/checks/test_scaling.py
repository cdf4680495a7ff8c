"""Laws, and the two properties that the scale 1/sqrt(D) is there for."""

import numpy as np
import pytest

from mlx_tx_conformance.checks.scaling import successive_exponents

from .implementations import Attention


@pytest.mark.parametrize(("power", "constant"), [(1, 0), (2, 500), (1.5, 1e6)])
def test_successive_exponents_ignore_a_constant(power, constant):
    sizes = [64, 128, 256, 512]
    found = successive_exponents(sizes, [constant + n**power for n in sizes])
    np.testing.assert_allclose(found, power, rtol=1e-9)


def test_successive_exponents_of_a_constant_are_zero():
    assert successive_exponents([1, 2, 4], [7, 7, 7]) == [0.0]


@pytest.mark.parametrize(
    ("figure", "arguments", "kind"),
    [
        ("flops", "exponent_at_most: 2.0, exponent_at_least: 2.0, tolerance: 0.01", "pass"),
        ("flops", "exponent_at_most: 1.5", "fail"),
        ("peak_bytes", "exponent_at_most: 1.2", "pass"),
        ("peak_bytes", "exponent_at_least: 1.5", "fail"),
        ("peak_bytes", "at_most: 2000", "fail"),
        ("peak_bytes", "at_most: 3000", "pass"),
    ],
)
def test_law(verdict, figure, arguments, kind):
    body = f"over: {{figure: {figure}, T: [128, 256, 512]}}\ncheck: {{law: {{{arguments}}}}}"
    assert verdict(body, Attention())[0] == kind


VARIANCE = "shapes: {B: 2, N_q: 4, T_q: 256, T_kv: 2, D: 64}\ninputs: {design: unit_normal}\ncheck: score_variance"
SLOPE = (
    "shapes: {T_q: 64, T_kv: 16, D: 16, D_v: 16}\ninputs: {design: unit_normal}\n"
    "check: {softmax_gradient_survives: {sizes: [16, 64, 256]}}"
)


@pytest.mark.parametrize("body", [VARIANCE, SLOPE])
def test_right_scale_passes(verdict, body):
    assert verdict(body, Attention())[0] == "pass"


@pytest.mark.parametrize("body", [VARIANCE, SLOPE])
def test_missing_scale_fails(verdict, body):
    class Unscaled(Attention):
        def run(self, call):
            return super().run(call.with_options(scale=1.0))

    kind, _ = verdict(body, Unscaled())
    assert kind == "fail"


def test_scale_that_is_ignored_fails(verdict):
    class Deaf(Attention):
        def run(self, call):
            return super().run(call.with_options(scale=None))

    kind, message = verdict(SLOPE, Deaf())
    assert kind == "fail"
    assert "scale is not honoured" in message
