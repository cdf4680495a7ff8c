import numpy as np
import pytest

from mlx_tx_conformance.bounds import bound_call
from mlx_tx_conformance.bounds.product import product_errors
from mlx_tx_conformance.bounds.units import U
from mlx_tx_conformance.call import DTYPES, Call


def made(dtype="float32", rows=8, K=64, N=16, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((rows, K)).astype(DTYPES[dtype])
    w = (rng.standard_normal((K, N)) / np.sqrt(K)).astype(DTYPES[dtype])
    return x, w


def one_by_one(x, w, step=lambda total: total):
    total = np.zeros((x.shape[0], w.shape[1]), np.float32)
    for n in range(x.shape[1]):
        total = step(total + x[:, n : n + 1].astype(np.float32) * w[n].astype(np.float32))
    return total


def test_one_element_is_the_formula_written_out():
    x, w = np.array([[1.0, 2.0, -3.0]]), np.array([[0.5], [0.25], [1.0]])
    y, det, prob = product_errors(x, w)
    assert y[0, 0] == -2.0
    assert det[0, 0] == pytest.approx(3 * U / (1 - 3 * U) * 4.0, rel=1e-12)
    squares = 0.25 + 0.25 + 9.0
    assert prob[0, 0] == pytest.approx(4 * U * np.sqrt(4.0 + 2.5 * squares), rel=1e-12)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("K", [1, 3, 64, 500])
def test_correct_code_stays_within_the_bound(dtype, K):
    for seed in range(5):
        x, w = made(dtype, K=K, seed=seed)
        held = bound_call(Call("product", {"x": x, "w": w}), "f32-internal")["out"]
        for y in (x.astype(np.float32) @ w.astype(np.float32), one_by_one(x, w)):
            assert held.headroom(y.astype(DTYPES[dtype])).max() <= 1


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_accumulation_in_the_dtype_exceeds_the_bound(dtype):
    x, w = made(dtype, K=500)
    held = bound_call(Call("product", {"x": x, "w": w}), "f32-internal")["out"]
    half = one_by_one(x, w, lambda total: total.astype(DTYPES[dtype]).astype(np.float32))
    assert held.headroom(half.astype(DTYPES[dtype])).max() > 2


def test_a_bias_is_added_once():
    x, w = made()
    b = np.linspace(-5, 5, 16, dtype=np.float32)
    held = bound_call(Call("product", {"x": x, "w": w, "b": b}), "f32-internal")["out"]
    assert held.headroom(x @ w + b).max() <= 1
    assert held.headroom(x @ w + 2 * b).max() > 1e3
    assert held.headroom(x @ w).max() > 1e3


@pytest.mark.parametrize("names", ["x", "w", "b", "xw", "xwb"])
@pytest.mark.parametrize("form", ["det", "prob"])
def test_results_of_inputs_within_their_error_are_within_the_bound(form, names):
    spread = signs if form == "det" else uniform
    x, w = made()
    arrays = {"x": x, "w": w, "b": np.ones(16, np.float32)}
    errors = {name: np.abs(arrays[name].astype(np.float64)) * 1e-3 for name in names}
    held = bound_call(Call("product", arrays), "f32-internal", input_error=errors)["out"]
    rng, worst = np.random.default_rng(1), 0.0
    for _ in range(100):
        moved = {
            name: array + (errors[name] * spread(rng, array.shape) if name in errors else 0.0)
            for name, array in arrays.items()
        }
        gap = np.abs(moved["x"].astype(np.float64) @ moved["w"].astype(np.float64) + moved["b"] - held.value)
        assert (gap <= getattr(held, form)).all()
        worst = max(worst, float((gap / getattr(held, form)).max()))
    assert worst > 0.3


def signs(rng, shape):
    """Every error as large as it may be: only the deterministic form covers that."""
    return rng.choice([-1.0, 1.0], shape)


def uniform(rng, shape):
    """Errors as roundings make them."""
    return rng.uniform(-1.0, 1.0, shape)


def test_many_incoming_errors_are_bounded_by_their_root_sum_square():
    x, w = made(K=4096, N=4)
    error = np.full(x.shape, 1e-2)
    held = bound_call(Call("product", {"x": x, "w": w}), "f32-internal", input_error={"x": error})["out"]
    assert (held.prob < 0.1 * held.det).all()
