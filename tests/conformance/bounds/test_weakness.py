import numpy as np
import pytest

from mlx_tx_conformance.bounds import bound_call, quality, weak
from mlx_tx_conformance.bounds.reference import Plain, Sequential
from mlx_tx_conformance.call import DEFAULT_PRECISION, DTYPES, Call, Result


def call(dtype="float32", T=200, D=64, outputs=("out",), std=1.0):
    rng = np.random.default_rng(0)
    shapes = {"q": (1, 2, 8, D), "k": (1, 2, T, D), "v": (1, 2, T, D)}
    arrays = {name: rng.standard_normal(shape) * (1 if name == "v" else std) for name, shape in shapes.items()}
    return Call("attention", {n: x.astype(DTYPES[dtype]) for n, x in arrays.items()}, {}, {}, outputs)


def held(given):
    return bound_call(given, DEFAULT_PRECISION[given.dtype])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", [Plain, Sequential])
def test_correct_code_is_not_weak(kind, dtype):
    given = call(dtype, outputs=("out", "lse"))
    assert weak(given, Result(kind(dtype != "float32")(given)), held(given)) is None


def test_an_error_within_the_bound_but_far_above_the_plain_one_is_weak_and_the_ratio_is_given():
    given = call()
    bounds = held(given)
    plain = Sequential()(given)["out"].astype(np.float64)
    rng = np.random.default_rng(1)
    noise = rng.choice([-0.5, 0.5], plain.shape) * bounds["out"].limit
    actual = (bounds["out"].value + noise).astype(np.float32)
    found = weak(given, Result({"out": actual}), bounds)
    ratio = np.sqrt(np.mean((actual - bounds["out"].value) ** 2) / np.mean((plain - bounds["out"].value) ** 2))
    assert found.output == "out"
    assert found.ratio == pytest.approx(ratio)
    assert found.headroom == pytest.approx(0.5, rel=0.1)
    assert f"{ratio:.3g} times" in quality(given, Result({"out": actual}), bounds)


def test_half_scores_within_the_bound_are_weak():
    """Scores of standard deviation 1 hide their rounding to the dtype from the bound, not from the comparison."""

    class RoundedScores(Plain):
        def product(self, q, k, scale):
            return self.rounded(super().product(q, k, scale))

    given = call("bfloat16", std=1.3, T=1000)
    bounds = held(given)
    outputs = RoundedScores(True)(given)
    assert bounds["out"].headroom(outputs["out"]).max() <= 1
    found = weak(given, Result(outputs), bounds)
    assert found is not None
    assert found.ratio > 3


def test_small_headroom_is_never_weak():
    given = call()
    bounds = held(given)
    actual = (bounds["out"].value + 0.09 * bounds["out"].limit).astype(np.float32)
    exact_plain = bounds["out"].headroom(actual).max()
    assert exact_plain < 0.1
    assert weak(given, Result({"out": actual}), bounds) is None


def test_other_operations_are_never_weak():
    given = Call("softmax", {"x": np.zeros((2, 2), np.float32)})
    bounds = bound_call(given, "f32-internal")
    assert quality(given, Result({"out": np.full((2, 2), 0.5000001, np.float32)}), bounds) is None
