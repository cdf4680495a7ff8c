"""The attention function: properties that need no reference (batches, layouts, compile, order of calls)."""

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given

import mlx_tx
from mlx_tx.paths import blocks
from tests.mlx_tx import reference
from tests.mlx_tx.problems import SETTINGS, calls, normal
from tests.mlx_tx.reference import assert_close, to_numpy

attend = mlx_tx.scaled_dot_product_attention
PATHS = ("composed", "blockwise")


@pytest.fixture(autouse=True, scope="module")
def _small_blocks():
    """Blocks of 8 queries, so that short sequences cross them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "BLOCK", 8)
        yield


def qkv(seed=0, B=2, N_q=4, N_kv=2, T_q=11, T_kv=19, D=8, D_v=8, dtype=mx.float32):
    rng = np.random.default_rng(seed)
    return (
        normal(rng, B, N_q, T_q, D, dtype=dtype),
        normal(rng, B, N_kv, T_kv, D, dtype=dtype),
        normal(rng, B, N_kv, T_kv, D_v, dtype=dtype),
    )


@pytest.mark.parametrize("path", PATHS)
@SETTINGS
@given(calls(max_T=20))
def test_every_row_of_a_batch_is_as_if_alone(path, call):
    q, k, v, options = call
    both = attend(q, k, v, path=path, **options)

    def row(name, x, b):
        if isinstance(x, tuple) and name == "segments":
            return tuple(part[b : b + 1] for part in x)
        if isinstance(x, list):
            return x[b : b + 1]
        if isinstance(x, mx.array):
            batched = x.ndim == 4 or name in ("segments", "kv_lengths", "q_offset") or (name == "alibi" and x.ndim == 2)
            return x[b : b + 1] if batched and x.shape[0] > 1 else x
        return x

    for b in range(q.shape[0]):
        one = {name: row(name, x, b) for name, x in options.items()}
        alone = attend(q[b : b + 1], k[b : b + 1], v[b : b + 1], path=path, **one)
        assert_close(both[b : b + 1], alone, 1e-6)


LAYOUTS = {
    "transposed": lambda x: mx.contiguous(x.swapaxes(1, 2)).swapaxes(1, 2),
    "swapped": lambda x: mx.contiguous(x.swapaxes(-1, -2)).swapaxes(-1, -2),
    "sliced": lambda x: mx.concatenate([x - 1, x, x + 1], axis=2)[:, :, x.shape[2] : 2 * x.shape[2]],
    "strided": lambda x: mx.stack([x, x + 1], axis=-1)[..., 0],
    "donated": lambda x: x + 0.0,
}


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_memory_layout_does_not_matter(path, layout):
    q, k, v = qkv(T_q=17, T_kv=33)
    place = LAYOUTS[layout]
    options = {"causal": True, "mask": mx.array(np.random.default_rng(3).random((17, 33)) < 0.8), "path": path}
    want = to_numpy(attend(q, k, v, **options))
    assert_close(attend(place(q), place(k), place(v), **options), want, 1e-6)
    assert_close(attend(q, place(k), v, **{**options, "mask": mx.contiguous(options["mask"].T).T}), want, 1e-6)


@pytest.mark.parametrize("path", PATHS)
def test_broadcast_keys_and_masks_count_as_whole(path):
    # Stride 0 in K and V with T_kv % 32 == 1 (pytorch#191937), a mask that is partly broadcast (pytorch#184180).
    q, k, v = qkv(B=2, T_q=8, T_kv=33)
    k, v = (mx.broadcast_to(x[:1, :1], (2, 2, 33, 8)) for x in (k, v))
    see = np.ones((2, 1, 8, 33), bool)
    see[0, :, 4:, :29] = False
    out = attend(q, k, v, mask=mx.array(see), path=path)
    assert_close(out, reference.attention(q, k, v, mask=mx.array(see))[0])
    whole = mx.array(np.broadcast_to(see, (2, 4, 8, 33)))
    np.testing.assert_array_equal(to_numpy(attend(q, k, v, mask=whole, path=path)), to_numpy(out))


@pytest.mark.parametrize("path", PATHS)
def test_more_keys_than_sixteen_bits_count(path):
    # mlx#3360: T_kv past 32768 with an additive mask that blocks most of them.
    q, k, v = qkv(B=1, N_q=2, N_kv=1, T_q=2, T_kv=40_000, D=4, D_v=4)
    live = np.zeros(40_000, bool)
    live[[0, 32_767, 32_768, 39_999]] = True
    mask = mx.array(np.where(live, 0.5, -np.inf).astype(np.float32)).reshape(1, 1, 1, -1)
    few = mx.array(np.flatnonzero(live))
    out = attend(q, k, v, mask=mask, path=path)
    assert_close(out, attend(q, k[:, :, few], v[:, :, few], path="composed"), 1e-6)


@pytest.mark.parametrize("path", PATHS)
def test_compiled_equals_eager(path):
    # One call with much in it: every new shape of a compiled expression costs a run of the C++ compiler.
    q, k, v = qkv(T_q=9, T_kv=8)

    def call(q, k, v, offset):
        return attend(q, k, v, causal=True, q_offset=offset, path=path, return_lse=True)

    given_arrays = (q, k, v, mx.array([-1, 3]))
    for got, want in zip(mx.compile(call)(*given_arrays), call(*given_arrays), strict=True):
        assert_close(got, want, 1e-6)


@pytest.mark.parametrize("path", PATHS)
@SETTINGS
@given(calls(max_T=16))
def test_inputs_are_left_as_they_were(path, call):
    q, k, v, options = call
    given_arrays = {"q": q, "k": k, "v": v, **{n: x for n, x in options.items() if isinstance(x, mx.array)}}
    before = {name: to_numpy(x).copy() for name, x in given_arrays.items()}
    mx.eval(attend(q, k, v, path=path, **options))
    for name, x in given_arrays.items():
        np.testing.assert_array_equal(to_numpy(x), before[name])


@pytest.mark.parametrize("path", PATHS)
def test_order_of_calls_does_not_matter(path):
    # The causal flag of a kernel was once lost in a cache (mlx#2053).
    q, k, v = qkv(T_q=6, T_kv=6)
    forms = [{}, {"causal": True}, {"window": 2}, {"softcap": 1.0}, {"alibi": True}]
    first = [to_numpy(attend(q, k, v, path=path, **form)) for form in forms]
    again = [to_numpy(attend(q, k, v, path=path, **form)) for form in reversed(forms)][::-1]
    for one, other in zip(first, again, strict=True):
        np.testing.assert_array_equal(one, other)
    assert len({x.tobytes() for x in first}) == len(forms)


@pytest.mark.parametrize("path", PATHS)
def test_group_of_heads_shares_its_key_head(path):
    q, k, v = qkv(N_q=6, N_kv=2)
    grouped = attend(q, k, v, causal=True, path=path)
    repeated = attend(q, mx.repeat(k, 3, axis=1), mx.repeat(v, 3, axis=1), causal=True, path=path)
    assert_close(grouped, repeated, 1e-6)


def test_stream_is_where_the_call_runs():
    q, k, v = qkv()
    stream = mx.new_stream(mx.cpu)
    for path in PATHS:
        out = attend(q, k, v, kv_lengths=mx.array([3, 4]), stream=stream, path=path)
        assert_close(out, attend(q, k, v, kv_lengths=[3, 4], path=path), 1e-6)
        gradient = mx.grad(lambda q, path=path: attend(q, k, v, stream=stream, path=path).sum())(q)
        assert_close(gradient, mx.grad(lambda q: attend(q, k, v, path="composed").sum())(q))
