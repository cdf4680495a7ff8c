"""Checks over lengths and of figures: right on mlx_tx, failing where a figure or gradient is another."""

import numpy as np
import pytest

from mlx_tx_conformance.call import Unsupported
from mlx_tx_conformance.targets import open_target

from .altered import Altered

TARGET = open_target("mlx_tx:composed")
REACH = (
    "shapes: {B: 1, N_q: 2, D: 16}\ncall: {op: attention_gradients, outputs: [v]}\n"
    "check: {gradient_reach: {sizes: [8, 64], flat_within: 0.02, vanishes_below: 0.05}}\n"
)
CONFIG = (
    "config: {kind: decoder, vocab_size: 13, d_model: 16, num_layers: 1, "
    "attention: {num_heads: 4, num_kv_heads: %s}, position: {kind: rope}, mlp: {kind: relu, d_ff: 16}}"
)
RATIO = (
    f"shapes: {{B: 1, T: 6}}\ncall: {{op: model, cache: {{kind: full}}, {CONFIG % 4}}}\n"
    f"check: {{figure_ratio: {{figure: cache_bytes, ratio: %s, with: {{call: {{{CONFIG % 2}}}}}}}}}\n"
)
LAW = (
    f"shapes: {{B: 1}}\ncall: {{op: model, cache: {{kind: full}}, {CONFIG % 4}}}\n"
    "over: {figure: step_bytes, T: [8, 16, 32]}\ncheck: {law: {flat_within: 0.1}}\n"
)


def test_a_gradient_that_reaches_any_distance(verdict):
    found, message = verdict(REACH, TARGET)
    assert found == "pass"
    assert "the RNN keeps" in message


def test_one_that_fades_with_the_length(verdict):
    fading = Altered(lambda outputs, call: {"v": outputs["v"] * np.float32(0.9) ** call.arrays["q"].shape[2]})
    assert verdict(REACH, fading)[0] == "fail"


@pytest.mark.parametrize(("ratio", "expected"), [(2, "pass"), (4, "fail"), (1, "fail")])
def test_a_ratio_to_the_byte(verdict, ratio, expected):
    assert verdict(RATIO % ratio, TARGET)[0] == expected


def test_a_figure_that_must_not_depend_on_the_length(verdict):
    assert verdict(LAW, Altered(figures=lambda call, figure: 1000.0))[0] == "pass"
    growing = Altered(figures=lambda call, figure: 1000.0 + 10.0 * call.arrays["tokens"].shape[1])
    found, message = verdict(LAW, growing)
    assert found == "fail"
    assert "must not depend on T" in message


def test_a_target_without_the_figure_is_no_failure(verdict):
    def none(call, figure):
        raise Unsupported(f"no figure {figure}")

    assert verdict(LAW, Altered(figures=none))[0] == "unsupported"
