"""Stages of whole models: float32 code within every bound, one wrong stage found where it is made."""

import numpy as np
import pytest

from mlx_tx_conformance.bounds.classes import precision_class
from mlx_tx_conformance.bounds.end_to_end import RMS_RATIO, end_to_end
from mlx_tx_conformance.bounds.stages import Model, stage_bounds
from mlx_tx_conformance.call import DTYPES
from mlx_tx_conformance.inputs.weights import model_weights
from mlx_tx_conformance.oracle.record import Recorder

CONFIG = {
    "kind": "decoder",
    "vocab_size": 11,
    "d_model": 16,
    "num_layers": 2,
    "attention": {"num_heads": 2, "num_kv_heads": 1, "head_dim": 8},
    "position": {"kind": "rope"},
    "norm": {"kind": "rms"},
    "mlp": {"kind": "swiglu", "d_ff": 24},
}
PRECISION = precision_class("P")


def model(dtype="float32", **changes):
    config = {**CONFIG, **changes}
    rng = lambda name: np.random.default_rng([len(name), sum(map(ord, name))])  # noqa: E731
    weights = {n: w.astype(np.float64) for n, w in model_weights(config, rng, dtype).items()}
    return Model(config, weights, (np.array([[3, 1, 4, 1, 5, 9]]),), {})


class Rounded(Recorder):
    """A correct implementation, as far as the suite can tell: every stage computed exactly and rounded once."""

    def __init__(self, dtype, wrong=""):
        super().__init__()
        self.dtype, self.wrong = DTYPES[dtype], wrong

    def __call__(self, name, value, op, *rest, **options):
        if name == self.wrong:
            value = value * 1.03
        # The shares of experts are float32 whatever the dtype of the model.
        stored = value.astype(np.float32 if op == "routing" else self.dtype).astype(np.float64)
        super().__call__(name, stored, op, *rest, **options)
        return self.values[name]


CHANGES = [
    {},
    {"block": {"placement": "post"}, "norm": {"kind": "layer"}},
    {"block": {"placement": "sandwich"}},
    {"mlp": {"kind": "moe", "d_ff": 8, "num_experts": 3, "top_k": 2}},
    {"position": {"kind": "sinusoidal"}, "final_softcap": 2.0, "embedding_scale": "sqrt"},
    {"position": {"kind": "t5", "num_buckets": 6, "max_distance": 9}},
    {"attention": {"num_heads": 2, "qk_norm": True, "sinks": True, "bias": True}},
]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("changes", CHANGES, ids=lambda c: ",".join(c) or "plain")
def test_correct_stages_stay_within_their_bounds(dtype, changes):
    held = model(dtype, **changes)
    stages = held.run(Rounded(dtype)).values
    bounds = stage_bounds(held, stages, dtype, PRECISION)
    assert list(bounds) == list(stages)
    for name, bound in bounds.items():
        assert bound.headroom(stages[name]).max() <= 1, name


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_wrong_stage_is_found_where_it_is_made_and_nowhere_else(dtype):
    held = model(dtype)
    names = list(held.run(Recorder()).values)
    for wrong in names:
        stages = held.run(Rounded(dtype, wrong)).values
        bounds = stage_bounds(held, stages, dtype, PRECISION)
        beyond = [name for name in names if bounds[name].headroom(stages[name]).max() > 1]
        assert beyond == [wrong]


def test_the_end_of_a_correct_model_lies_within_the_spread():
    for dtype in DTYPES:
        held = model(dtype)
        spread = end_to_end(held, "logits", dtype, PRECISION)
        logits = held.run(Rounded(dtype)).values["logits"]
        assert spread.worst(logits) <= 1
        assert spread.rms_ratio(logits) <= RMS_RATIO


def test_a_fault_shows_at_the_end_too():
    held = model()
    spread = end_to_end(held, "logits", "float32", PRECISION)
    logits = held.run(Rounded("float32", "layers.0.mlp.hidden")).values["logits"]
    assert spread.worst(logits) > 100
    assert spread.rms_ratio(logits) > 100


def test_the_spread_is_the_same_every_time_and_wider_in_half():
    one, again = (end_to_end(model(), "logits", "float32", PRECISION) for _ in range(2))
    np.testing.assert_array_equal(one.sigma, again.sigma)
    assert end_to_end(model(), "logits", "bfloat16", PRECISION).sigma.mean() > 1000 * one.sigma.mean()
