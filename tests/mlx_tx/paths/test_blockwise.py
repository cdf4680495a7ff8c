"""The blockwise path: equal to the composed one, differentiable once, and honest about what it has not."""

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given

import mlx_tx
from mlx_tx.paths import blocks
from mlx_tx.paths.transforms import UnsupportedTransformError
from tests.mlx_tx import reference
from tests.mlx_tx.problems import SETTINGS, calls, normal
from tests.mlx_tx.reference import DTYPES, assert_close, to_numpy

attend = mlx_tx.scaled_dot_product_attention


@pytest.fixture(autouse=True, scope="module")
def _small_blocks():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "BLOCK", 8)
        yield


def qkv(seed=0, B=2, N_q=4, N_kv=2, T_q=11, T_kv=19, D=8, D_v=6, dtype=mx.float32):
    rng = np.random.default_rng(seed)
    shapes = ((B, N_q, T_q, D), (B, N_kv, T_kv, D), (B, N_kv, T_kv, D_v))
    return [normal(rng, *shape, dtype=dtype) for shape in shapes]


def differentiable(options):
    """The names of the options that have a gradient."""
    return [
        name
        for name, x in options.items()
        if name in ("mask", "bias", "sinks", "alibi") and isinstance(x, mx.array) and x.dtype != mx.bool_
    ]


def pulled_back(path, q, k, v, options, seed=0):
    """Gradients of a random linear function of output and log-sum-exp, by name."""
    learned = differentiable(options)
    rng = np.random.default_rng(seed)
    d_out = normal(rng, *q.shape[:3], v.shape[3])
    d_lse = normal(rng, *q.shape[:3])

    def loss(given):
        fixed = {name: x for name, x in options.items() if name not in learned}
        out, lse = attend(**given, **fixed, path=path, return_lse=True)
        finite = mx.where(mx.isneginf(lse), 0.0, lse)
        return (out.astype(mx.float32) * d_out).sum() + (finite * d_lse).sum()

    return mx.grad(loss)({"q": q, "k": k, "v": v, **{name: options[name] for name in learned}})


@SETTINGS
@given(calls(max_T=40))
def test_output_and_gradients_equal_the_composed_path(call):
    q, k, v, options = call
    got = attend(q, k, v, path="blockwise", return_lse=True, **options)
    want = attend(q, k, v, path="composed", return_lse=True, **options)
    for one, other in zip(got, want, strict=True):
        assert_close(one, other, 1e-5)
    got_gradients = pulled_back("blockwise", q, k, v, options)
    for name, gradient in pulled_back("composed", q, k, v, options).items():
        assert got_gradients[name].dtype == gradient.dtype
        assert_close(got_gradients[name], gradient, 5e-5)


@pytest.mark.parametrize("path", ["composed", "blockwise"])
@SETTINGS
@given(calls(max_T=10))
def test_gradients_equal_differences_of_the_reference(path, call):
    q, k, v, options = call
    given_arrays = {"q": q, "k": k, "v": v, **{name: options[name] for name in differentiable(options)}}
    fixed = {name: x for name, x in options.items() if name not in given_arrays}
    gradients = pulled_back(path, q, k, v, options, seed=3)
    rng = np.random.default_rng(3)
    d_out = to_numpy(normal(rng, *q.shape[:3], v.shape[3])).astype(np.float64)
    d_lse = to_numpy(normal(rng, *q.shape[:3])).astype(np.float64)

    def loss(point):
        out, lse = reference.attention(**point, **fixed)
        return (out * d_out).sum() + (np.where(np.isneginf(lse), 0, lse) * d_lse).sum()

    point = {name: to_numpy(x).astype(np.float64) for name, x in given_arrays.items()}
    step = 1e-5
    for name, x in point.items():
        along = rng.normal(size=x.shape)
        ahead, behind = (loss({**point, name: x + sign * step * along}) for sign in (1, -1))
        slope = (ahead - behind) / (2 * step)
        size = max(1.0, np.abs(to_numpy(gradients[name])).max(initial=0) * np.sqrt(along.size))
        assert abs((to_numpy(gradients[name]) * along).sum() - slope) <= 1e-4 * size, name


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_gradients_in_half_precision_are_rounded_once(dtype):
    q, k, v = qkv(dtype=DTYPES[dtype], T_q=40, T_kv=40)
    wide = [x.astype(mx.float32) for x in (q, k, v)]
    options = {"causal": True, "mask": normal(np.random.default_rng(5), 40, 40, dtype=DTYPES[dtype])}
    got = pulled_back("blockwise", q, k, v, options)
    want = pulled_back("composed", *wide, {**options, "mask": options["mask"].astype(mx.float32)})
    for name, gradient in got.items():
        assert gradient.dtype == DTYPES[dtype]
        # d_out meets the output before it is rounded, so half an ulp of the result is all that separates them
        assert_close(gradient, want[name], {"float16": 2**-10, "bfloat16": 2**-7}[dtype])


def test_infinite_cotangent_of_an_empty_row_does_not_come_back():
    q, k, v = qkv()
    mask = mx.array(np.arange(11) != 1)[:, None]

    def loss(q, k, v):
        _, lse = attend(q, k, v, mask=mask, path="blockwise", return_lse=True)
        return (lse * lse).sum()

    for gradient in mx.grad(loss, argnums=(0, 1, 2))(q, k, v):
        assert np.isfinite(to_numpy(gradient)).all()


@pytest.mark.parametrize("name", ["mask", "bias"])
@pytest.mark.parametrize("shape", [(1,), (19,), (11, 1), (4, 11, 19), (2, 1, 1, 19), (2, 4, 11, 19), (2, 1, 1, 1)])
def test_gradient_of_an_added_term_has_its_shape_and_dtype(name, shape):
    q, k, v = qkv()
    options = {name: normal(np.random.default_rng(2), *shape, dtype=mx.float16), "window": (5, 4)}
    got = pulled_back("blockwise", q, k, v, options)[name]
    want = pulled_back("composed", q, k, v, options)[name]
    assert (got.shape, got.dtype) == (shape, mx.float16)
    assert_close(got, want, 2**-10)


def test_integers_and_booleans_that_depend_on_an_input_have_zero_gradient():
    q, k, v = qkv(T_q=19)

    def loss(x):
        options = {
            "mask": x > 0,
            "kv_lengths": mx.full((2,), 9) + 0 * x[0, :2].astype(mx.int32),
            "segments": (x[:2] > 0).astype(mx.int32),
        }
        return attend(q, k, v, path="blockwise", **options).sum()

    assert (to_numpy(mx.grad(loss)(normal(np.random.default_rng(0), 19, 19))) == 0).all()


# Transformations


def squares(path, v=None, **options):
    q, k, own = qkv(B=1, N_q=2, N_kv=1, T_q=5, T_kv=9)
    return lambda q: (attend(q, k, own if v is None else v, path=path, **options) ** 2).sum(), q


def test_second_derivative_is_refused_by_name():
    loss, q = squares("blockwise")
    with pytest.raises(UnsupportedTransformError, match='no second derivative; use path="composed"'):
        mx.grad(lambda q: mx.grad(loss)(q).sum())(q)


def test_jvp_is_refused_by_name():
    loss, q = squares("blockwise")
    with pytest.raises(UnsupportedTransformError, match='no jvp; use path="composed"'):
        mx.jvp(loss, [q], [q])
    with pytest.raises(UnsupportedTransformError, match='use path="composed"'):
        mx.jvp(mx.grad(loss), [q], [q])


def test_jvp_of_a_gradient_along_its_cotangent_is_refused_by_name():
    q, k, v = qkv()
    w = mx.ones((2, 4, 11, 6))

    def pulled(w):
        return mx.vjp(lambda q: attend(q, k, v, path="blockwise"), [q], [w])[1][0]

    with pytest.raises(UnsupportedTransformError, match='no jvp of its gradient; use path="composed"'):
        mx.jvp(pulled, [w], [w])


@pytest.mark.parametrize("argument", ["mask", "bias", "sinks", "alibi"])
def test_second_derivative_through_other_gradients_is_refused_too(argument):
    q, k, v = qkv()
    x = {"mask": mx.zeros((19,)), "bias": mx.zeros((19,)), "sinks": mx.zeros((4,)), "alibi": mx.ones((4,))}[argument]

    def loss(x):
        return (attend(q, k, v, path="blockwise", **{argument: x}) ** 2).sum()

    with pytest.raises(NotImplementedError, match='use path="composed"'):
        mx.grad(lambda x: mx.grad(loss)(x).sum())(x)


def test_one_derivative_inside_a_stopped_one_is_allowed():
    loss, q = squares("blockwise")
    gradient = mx.grad(lambda q: (mx.stop_gradient(mx.grad(loss)(q)) * q).sum())(q)
    assert_close(gradient, mx.grad(loss)(q), 1e-6)


def test_checkpoint_gives_the_same_gradient():
    loss, q = squares("blockwise", causal=True)
    assert_close(mx.grad(mx.checkpoint(loss))(q), mx.grad(loss)(q), 1e-6)


def vmapped(path, in_axes):
    """Outputs and gradients of a call with every kind of argument, mapped over those with an axis."""
    rng = np.random.default_rng(7)
    A, B, N, T_q, T_kv = 3, 2, 4, 5, 9
    shapes = {
        "q": (B, N, T_q, 4),
        "k": (B, 2, T_kv, 4),
        "v": (B, 2, T_kv, 4),
        "mask": (T_q, T_kv),
        "bias": (B, 1, 1, T_kv),
        "sinks": (N,),
        "alibi": (N,),
    }
    arrays = []
    for name, shape in shapes.items():
        axis = in_axes.get(name)
        arrays.append(normal(rng, *(shape if axis is None else (*shape[:axis], A, *shape[axis:]))))
    fixed = {"kv_lengths": [9, 6], "q_offset": [2, 4], "causal": True}

    def call(*x):
        return attend(**dict(zip(shapes, x, strict=True)), **fixed, path=path, return_lse=True)

    def loss(*x):
        out, lse = call(*x)
        return (out**3).sum() + (lse**2).sum()

    axes = tuple(in_axes.get(name) for name in shapes)
    return [
        *mx.vmap(call, in_axes=axes)(*arrays),
        *mx.vmap(mx.grad(loss, argnums=tuple(range(7))), in_axes=axes)(*arrays),
        *mx.grad(lambda *x: mx.vmap(loss, in_axes=axes)(*x).sum(), argnums=tuple(range(7)))(*arrays),
    ]


@pytest.mark.parametrize(
    "in_axes",
    [
        {"q": 0},
        {"k": 1, "v": 0},
        {"q": 3, "k": 2, "v": 4, "mask": 0, "bias": 1, "sinks": 1, "alibi": 0},
        {"mask": 2},
        {"bias": 0, "sinks": 0},
    ],
    ids=str,
)
def test_vmap_folds_its_axis_into_the_batch(in_axes):
    for got, want in zip(vmapped("blockwise", in_axes), vmapped("composed", in_axes), strict=True):
        assert_close(got, want, 2e-5)


@pytest.mark.parametrize("path", ["composed", "blockwise"])
def test_vmap_over_grouped_heads_equals_a_loop(path):
    # Hangs or crashes in mx.fast (mlx#3383).
    rng = np.random.default_rng(0)
    q, k, v = normal(rng, 2, 1, 4, 4, 64), normal(rng, 2, 1, 2, 4, 64), normal(rng, 2, 1, 2, 4, 64)
    out = mx.vmap(lambda q, k, v: attend(q, k, v, path=path))(q, k, v)
    for a in range(2):
        assert_close(out[a], attend(q[a], k[a], v[a], path=path), 1e-6)


def test_derivative_rules_survive_vmap():
    # Mapped operation by operation, the recomputing backward would give way to one that stores all scores.
    loss, q = squares("blockwise")
    many = mx.stack([q, q])
    mapped = mx.vmap(loss)
    with pytest.raises(UnsupportedTransformError, match="no second derivative"):
        mx.grad(lambda x: mx.grad(lambda x: mapped(x).sum())(x).sum())(many)
    with pytest.raises(UnsupportedTransformError, match="no second derivative"):
        mx.grad(lambda x: mx.vmap(mx.grad(loss))(x).sum())(many)
    with pytest.raises(UnsupportedTransformError, match="no jvp"):
        mx.jvp(mapped, [many], [many])


def test_vmap_of_host_numbers_and_segments():
    rng = np.random.default_rng(1)
    q, k, v = normal(rng, 3, 2, 2, 9, 4), normal(rng, 3, 2, 2, 9, 4), normal(rng, 3, 2, 2, 9, 4)
    segments = mx.array(rng.integers(0, 2, (3, 2, 9)))

    def call(q, k, v, segments):
        return attend(q, k, v, segments=segments, kv_lengths=[9, 5], q_offset=[0, 2], window=(4, 1), path="blockwise")

    out = mx.vmap(call)(q, k, v, segments)
    for a in range(3):
        assert_close(out[a], call(q[a], k[a], v[a], segments[a]), 1e-6)
