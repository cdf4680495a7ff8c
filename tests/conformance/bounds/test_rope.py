import numpy as np
import pytest

from mlx_tx_conformance.bounds import bound_call, precision_class
from mlx_tx_conformance.bounds.rope import rope_errors
from mlx_tx_conformance.bounds.units import U
from mlx_tx_conformance.call import DTYPES, Call
from mlx_tx_conformance.oracle.positions import rope

F = np.float32


def call(dtype="float32", shape=(2, 2, 9, 16), **options):
    x = np.random.default_rng(0).standard_normal(shape).astype(DTYPES[dtype])
    return Call("rope", {"x": x}, options)


def float32_rope(x, offset=0, base=10000.0, dims=None, traditional=False, scale=1.0, step=lambda angle: angle):
    """As an implementation computes it: angles, sines and products in float32."""
    dims = x.shape[-1] if dims is None else dims
    frequency = np.power(F(base), -np.arange(0, dims, 2, dtype=F) / F(max(dims, 1)))
    position = F(scale) * (np.asarray(offset, dtype=F)[..., None] + np.arange(x.shape[-2], dtype=F))
    angle = step((position[..., None] * frequency).astype(F))
    if angle.ndim == 3:
        angle = angle[:, None]
    cos, sin = np.cos(angle), np.sin(angle)
    half = dims // 2
    first, second = (slice(0, dims, 2), slice(1, dims, 2)) if traditional else (slice(0, half), slice(half, dims))
    y = x.astype(F)
    a, b = y[..., first].copy(), y[..., second].copy()
    y[..., first], y[..., second] = a * cos - b * sin, a * sin + b * cos
    return y.astype(x.dtype)


OPTIONS = {
    "plain": {},
    "traditional": {"traditional": True},
    "some channels": {"dims": 8},
    "far": {"offset": 100_000},
    "very far": {"offset": 1_000_000},
    "another base": {"base": 500_000.0},
    "scaled": {"scale": 0.25, "offset": 4000},
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", OPTIONS)
def test_correct_code_stays_within_the_bound(name, dtype):
    given = call(dtype, **OPTIONS[name])
    held = bound_call(given, "f32-internal")["out"]
    np.testing.assert_array_equal(held.value, rope(given.arrays["x"], **OPTIONS[name]))
    assert held.headroom(float32_rope(given.arrays["x"], **OPTIONS[name])).max() <= 1


def test_an_offset_for_each_batch_row_is_an_array():
    given = call().with_arrays(offset=np.array([0, 3000], np.int32))
    held = bound_call(given, "f32-internal")["out"]
    assert held.headroom(float32_rope(given.arrays["x"], offset=[0, 3000])).max() <= 1
    assert held.limit[1].mean() > 5 * held.limit[0].mean()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "wrong",
    [{"offset": 1}, {"base": 9990.0}, {"traditional": True}, {"dims": 8}, {"scale": 1.01}],
    ids=lambda wrong: next(iter(wrong)),
)
def test_wrong_rotations_exceed_the_bound(wrong, dtype):
    given = call(dtype, shape=(1, 1, 64, 16))
    held = bound_call(given, "f32-internal")["out"]
    assert held.headroom(float32_rope(given.arrays["x"], **wrong)).max() > 1


@pytest.mark.parametrize("dtype", DTYPES)
def test_angles_in_half_exceed_the_bound_at_positions_that_half_cannot_hold(dtype):
    given = call(dtype, offset=3001)
    half = DTYPES[dtype] if dtype != "float32" else np.float16
    wrong = float32_rope(given.arrays["x"], offset=3001, step=lambda angle: angle.astype(half).astype(F))
    assert bound_call(given, "f32-internal")["out"].headroom(wrong).max() > 10


def test_position_zero_costs_the_products_and_the_trigonometry_alone():
    x = np.ones((1, 1, 1, 2))
    _, error = rope_errors(x, precision_class("f32-internal"))
    assert error[0, 0, 0].tolist() == pytest.approx([4 * U * 2 + 2 * U, 4 * U * 2 + 2 * U])


def test_one_pair_is_the_formula_written_out():
    x = np.array([[[[1.0, 2.0, 3.0, -4.0]]]])
    _, error = rope_errors(x, precision_class("f32-internal"), offset=100, base=500.0)
    for pair, t in ((0, 0.0), (1, 0.5)):
        a, b = abs(x[0, 0, 0, pair]), abs(x[0, 0, 0, pair + 2])
        theta = 100 * 500.0**-t
        turn = np.hypot(a, b) * theta * U * (10 + 3 * t * np.log(500.0)) + 4 * U * (a + b)
        cos, sin = abs(np.cos(theta)), abs(np.sin(theta))
        assert error[0, 0, 0, pair] == pytest.approx(turn + 2 * U * (a * cos + b * sin), rel=1e-12)
        assert error[0, 0, 0, pair + 2] == pytest.approx(turn + 2 * U * (b * cos + a * sin), rel=1e-12)


def test_an_angle_that_is_lost_costs_the_whole_turn_and_no_more():
    x = np.ones((1, 1, 1, 2))
    _, error = rope_errors(x, precision_class("f32-internal"), offset=10**9)
    assert error.max() == pytest.approx(2 * np.sqrt(2), rel=1e-6)


def test_fast_trigonometry_is_declared_by_the_class():
    given = call(offset=10)
    fast = bound_call(given, "f32-internal+fast-exp")["out"].limit
    assert np.median(fast / bound_call(given, "f32-internal")["out"].limit) > 100


@pytest.mark.parametrize("options", [{}, {"traditional": True}, {"dims": 8}])
def test_results_of_inputs_within_their_error_are_within_the_bound(options):
    given = call(offset=17, **options)
    x = given.arrays["x"].astype(np.float64)
    errors = {"x": np.abs(x) * 1e-3}
    held = bound_call(given, "f32-internal", input_error=errors)["out"]
    rng, worst = np.random.default_rng(1), 0.0
    for _ in range(50):
        moved = rope(x + errors["x"] * rng.choice([-1, 1], x.shape), offset=17, **options)
        worst = max(worst, float((np.abs(moved - held.value) / held.limit).max()))
    assert 0.9 < worst <= 1
