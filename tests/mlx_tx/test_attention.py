"""The attention function: semantics against a float64 reference, and properties that need no reference."""

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given

import mlx_tx
from mlx_tx import attention as module
from mlx_tx.paths import blocks
from tests.mlx_tx import reference
from tests.mlx_tx.problems import SETTINGS, calls, normal
from tests.mlx_tx.reference import DTYPES, assert_close, to_numpy

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


# Against the reference


@pytest.mark.parametrize("path", PATHS)
@SETTINGS
@given(calls(max_T=20))
def test_features_in_any_company_equal_the_reference(path, call):
    q, k, v, options = call
    out, lse = attend(q, k, v, path=path, return_lse=True, **options)
    want_out, want_lse = reference.attention(q, k, v, **options)
    assert_close(out, want_out)
    assert_close(lse, want_lse)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_result_has_the_dtype_of_the_inputs_and_lse_is_float32(path, dtype):
    q, k, v = qkv(dtype=DTYPES[dtype], D_v=5)
    out, lse = attend(q, k, v, path=path, return_lse=True)
    assert (out.dtype, lse.dtype, out.shape) == (DTYPES[dtype], mx.float32, (2, 4, 11, 5))
    want, want_lse = reference.attention(q, k, v)
    unit = {"float32": 2e-6, "float16": 2**-10, "bfloat16": 2**-7}[dtype]
    assert_close(out, want, unit)
    assert_close(lse, want_lse, 2e-6)


def test_mixed_dtypes_promote_as_in_mx_fast():
    q, k, v = qkv()
    out = attend(q.astype(mx.float16), k, v)
    assert out.dtype == mx.fast.scaled_dot_product_attention(q.astype(mx.float16), k, v, scale=1.0).dtype == mx.float32


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_large_scores_keep_float32(path, dtype):
    # Scores near 1000 that differ by 1/8: half precision would round the difference away (PRC-1).
    q = mx.array([[[[32.0, 1.0]]]]).astype(DTYPES[dtype])
    k = mx.array([[[[32.0, 0.0], [32.0, 0.125]]]]).astype(DTYPES[dtype])
    v = mx.array([[[[0.0], [1.0]]]]).astype(DTYPES[dtype])
    _, lse = attend(q, k, v, scale=1.0, path=path, return_lse=True)
    out = attend(q, k, v, scale=1.0, path=path)
    assert_close(lse, np.full((1, 1, 1), 1024 + np.log1p(np.exp(0.125))), 1e-7)
    assert abs(out.item() - 1 / (1 + np.exp(-0.125))) < 2**-8


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_scale_is_applied_in_float32(path, dtype):
    # The scale and the scaled query would both round in half precision (mlx#3119).
    q, k, v = qkv(dtype=DTYPES[dtype])
    _, lse = attend(q * 8, k, v, scale=0.1003, path=path, return_lse=True)
    assert_close(lse, reference.attention(q * 8, k, v, scale=0.1003)[1], 1e-6)


# A drop-in for mx.fast


@pytest.mark.parametrize(
    "form",
    ["plain", "causal", "boolean", "boolean-row", "additive", "zero-one", "sinks", "mha", "value-size"],
)
def test_calls_written_for_mx_fast_give_the_same(form):
    q, k, v = qkv(T_q=7)
    rng = np.random.default_rng(1)
    options = {"scale": 0.3, "mask": None}
    if form == "causal":
        options["mask"] = "causal"
    if form == "boolean":
        options["mask"] = mx.array(rng.random((2, 1, 7, 19)) < 0.6)
    if form == "boolean-row":
        options["mask"] = mx.array(np.arange(19) < 12)
    if form == "additive":
        options["mask"] = normal(rng, 4, 7, 19)
    if form == "zero-one":  # a floating mask of zeros and ones is added, not read as booleans (mlx#2626)
        options["mask"] = mx.array((rng.random((7, 19)) < 0.5).astype(np.float32))
    if form == "sinks":
        options["sinks"] = normal(rng, 4)
    if form == "mha":
        k, v = mx.repeat(k, 2, axis=1), mx.repeat(v, 2, axis=1)
    if form == "value-size":
        v = v[..., :3]
    assert_close(attend(q, k, v, **options), mx.fast.scaled_dot_product_attention(q, k, v, **options))


@pytest.mark.parametrize("mask_dtype", ["float16", "float32"])
def test_floating_mask_of_another_dtype_is_taken(mask_dtype):
    q, k, v = qkv(dtype=mx.bfloat16)
    mask = normal(np.random.default_rng(1), 11, 19, dtype=DTYPES[mask_dtype])
    assert attend(q, k, v, mask=mask).dtype == mx.bfloat16
    assert_close(attend(q, k, v, mask=mask), reference.attention(q, k, v, mask=mask)[0], 2**-7)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("name", ["mask", "bias"])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_nan_and_infinity_in_an_added_term_are_not_taken_for_hidden(path, name, value):
    q, k, v = qkv()
    term = np.zeros((11, 19), np.float32)
    term[4, 7] = value
    out = to_numpy(attend(q, k, v, path=path, **{name: mx.array(term)}))
    assert np.isnan(out[:, :, 4]).all()
    assert np.isfinite(np.delete(out, 4, axis=2)).all()


# Rows that see nothing


def blocking(form, T_q, T_kv, row):
    """Options that leave ``row`` without a key, in one of the forms that exist."""
    see = np.ones((T_q, T_kv), bool)
    see[row] = False
    if form == "boolean":
        return {"mask": mx.array(see)}
    if form == "additive":
        return {"mask": mx.array(np.where(see, 0.0, -np.inf).astype(np.float32))}
    if form == "bias":
        return {"bias": mx.array(np.where(see, 0.0, -np.inf).astype(np.float32))}
    if form == "segments":
        return {"segments": (mx.array(np.where(see[:, 0], 1, 2))[None], mx.ones((1, T_kv), dtype=mx.int32))}
    return {"causal": True, "q_offset": -row - 1}


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("form", ["boolean", "additive", "bias", "segments", "causal"])
def test_row_without_a_key_gives_zero_and_gradient_zero(path, form):
    q, k, v = qkv(B=1, N_q=2, N_kv=1, T_q=10, T_kv=12)
    options = blocking(form, 10, 12, row=1)
    dead = slice(0, 2) if form == "causal" else slice(1, 2)
    out, lse = attend(q, k, v, path=path, return_lse=True, **options)
    assert_close(out, reference.attention(q, k, v, **options)[0])
    assert (to_numpy(out)[:, :, dead] == 0).all()
    assert (to_numpy(lse)[:, :, dead] == -np.inf).all()

    def loss(q, k, v):
        out, lse = attend(q, k, v, path=path, return_lse=True, **options)
        return (out * out).sum() + lse.sum()

    gradients = mx.grad(loss, argnums=(0, 1, 2))(q, k, v)
    assert (to_numpy(gradients[0])[:, :, dead] == 0).all()
    assert all(np.isfinite(to_numpy(gradient)).all() for gradient in gradients)


@pytest.mark.parametrize("path", PATHS)
def test_row_without_a_key_but_with_a_sink_gives_zero_and_the_sink(path):
    q, k, v = qkv(B=1, N_q=2, N_kv=1)
    sinks = mx.array([0.5, -np.inf])
    mask = mx.zeros((11, 19), dtype=mx.bool_)
    out, lse = attend(q, k, v, mask=mask, sinks=sinks, path=path, return_lse=True)
    assert (to_numpy(out) == 0).all()
    np.testing.assert_array_equal(to_numpy(lse), np.broadcast_to([[[0.5], [-np.inf]]], (1, 2, 11)))
    gradient = mx.grad(lambda s: attend(q, k, v, mask=mask, sinks=s, path=path, return_lse=True)[1][:, 0].sum())(sinks)
    np.testing.assert_array_equal(to_numpy(gradient), [11, 0])


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("shape", [(0, 5, 5), (1, 0, 5), (1, 5, 0)])
def test_empty_axes_give_empty_or_zero_results(path, shape):
    B, T_q, T_kv = shape
    q, k, v = mx.ones((B, 2, T_q, 4)), mx.ones((B, 2, T_kv, 4)), mx.ones((B, 2, T_kv, 3))
    out, lse = attend(q, k, v, causal=True, path=path, return_lse=True)
    assert out.shape == (B, 2, T_q, 3)
    assert (to_numpy(out) == 0).all()
    assert (to_numpy(lse) == -np.inf).all()


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("T_q", [9, 17, 24])
def test_block_that_is_hidden_first_does_not_spoil_the_row(path, T_q):
    # -inf as the first maximum of an online softmax (llama.cpp#12776), causality next to a mask (candle#3625).
    q, k, v = qkv(B=1, T_q=T_q, T_kv=24)
    mask = mx.array(np.arange(24) >= 9)
    out = attend(q, k, v, mask=mask, causal=True, path=path)
    assert_close(out, reference.attention(q, k, v, mask=mask, causal=True)[0])


# Where queries stand


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(("T_q", "T_kv"), [(8, 8), (3, 19), (19, 3), (1, 32), (32, 9)])
def test_causal_is_aligned_to_the_lower_right(path, T_q, T_kv):
    # v = position: the output of a row is the mean of the positions it sees (mlx#2835, flash-attention#1778).
    q, k = mx.zeros((1, 1, T_q, 4)), mx.zeros((1, 1, T_kv, 4))
    v = mx.arange(T_kv).astype(mx.float32).reshape(1, 1, T_kv, 1)
    last = np.arange(T_q) + T_kv - T_q
    out = attend(q, k, v, causal=True, path=path)
    assert_close(out[0, 0, :, 0], np.where(last >= 0, last / 2, 0), 1e-6)
    gradient = mx.grad(lambda q: attend(q, k, v, causal=True, path=path).sum())(q)
    assert np.isfinite(to_numpy(gradient)).all()


@pytest.mark.parametrize("path", PATHS)
def test_window_counts_the_query_itself(path):
    # Keys seen in five rows by a window of three: 1, 2, 3, 3, 3 (mlx-lm#390), and the last four of 32 (mlx-lm#843).
    def seen(T_q, T_kv, window):
        q, k = mx.zeros((1, 1, T_q, 4)), mx.zeros((1, 1, T_kv, 4))
        v = mx.eye(T_kv)[None, None]
        return (to_numpy(attend(q, k, v, window=window, path=path))[0, 0] > 0).astype(int)

    assert seen(5, 5, 3).sum(axis=1).tolist() == [1, 2, 3, 3, 3]
    assert seen(5, 5, 4).sum(axis=1).tolist() == [1, 2, 3, 4, 4]
    np.testing.assert_array_equal(seen(1, 32, 4)[0], np.arange(32) >= 28)
    np.testing.assert_array_equal(seen(5, 5, (1, 2)).sum(axis=1), [3, 4, 4, 3, 2])
    np.testing.assert_array_equal(seen(5, 5, (None, 0)), np.tri(5))


@pytest.mark.parametrize("path", PATHS)
def test_padding_never_counts_and_positions_follow_the_real_length(path):
    # Two unequal rows in one batch, decoding with a window: mlx-lm#439, mlx-lm#748.
    q, k, v = qkv(T_q=2, T_kv=20)
    lengths = [20, 13]
    offsets = [n - 2 for n in lengths]
    options = {"causal": True, "window": 6, "alibi": [0.5, 0.25, 0.125, 0.1], "path": path}
    both = attend(q, k, v, kv_lengths=lengths, q_offset=offsets, **options)
    for b, n in enumerate(lengths):
        alone = attend(q[b : b + 1], k[b : b + 1, :, :n], v[b : b + 1, :, :n], **options)
        assert_close(both[b : b + 1], alone, 1e-6)


@pytest.mark.parametrize("path", PATHS)
def test_rows_before_the_kept_keys_see_nothing(path):
    # A cache that kept fewer keys than there are queries, and a causal mask (VeloxQuant-MLX#370).
    q, k, v = qkv(T_q=12, T_kv=5)
    out = attend(q, k, v, causal=True, path=path)
    assert (to_numpy(out)[:, :, :7] == 0).all()
    assert_close(out[:, :, 7:], attend(q[:, :, 7:], k, v, causal=True, path=path), 1e-6)


@pytest.mark.parametrize("path", PATHS)
def test_queries_in_chunks_with_an_offset_equal_the_whole(path):
    q, k, v = qkv(T_q=23, T_kv=23)
    options = {"causal": True, "window": 9, "alibi": True, "path": path}
    whole = attend(q, k, v, **options)
    chunks = [attend(q[:, :, a:b], k, v, q_offset=a, **options) for a, b in ((0, 5), (5, 6), (6, 20), (20, 23))]
    assert_close(mx.concatenate(chunks, axis=2), whole, 1e-6)


@pytest.mark.parametrize("path", PATHS)
def test_offset_as_integer_list_and_array_is_the_same(path):
    q, k, v = qkv()
    options = {"causal": True, "window": 4, "alibi": True, "path": path}
    want = reference.attention(q, k, v, causal=True, window=4, alibi=True, q_offset=3)[0]
    for offset in (3, np.int64(3), [3, 3], np.array([3, 3]), mx.array(3), mx.array([3]), mx.array([3, 3])):
        assert_close(attend(q, k, v, q_offset=offset, **options), want)


# What nobody sees


def hiding(form, B, N_q, T_q, T_kv, kept):
    """Options that hide keys ``kept`` .. from every query."""
    see = np.arange(T_kv) < kept
    additive = np.where(see, 0.0, -np.inf).astype(np.float32)
    return {
        "lengths": {"kv_lengths": [kept] * B},
        "lengths-array": {"kv_lengths": mx.array([kept] * B)},
        "boolean-row": {"mask": mx.array(see)},
        "boolean-heads": {"mask": mx.array(np.broadcast_to(see, (B, N_q, 1, T_kv)))},
        "boolean-whole": {"mask": mx.array(np.broadcast_to(see, (B, N_q, T_q, T_kv)))},
        "additive-row": {"mask": mx.array(additive)},
        "additive-whole": {"mask": mx.array(np.broadcast_to(additive, (T_q, T_kv)))},
        "bias-row": {"bias": mx.array(additive)},
        "segments": {
            "segments": (mx.ones((B, T_q), dtype=mx.int32), mx.array(np.broadcast_to(np.where(see, 1, 2), (B, T_kv))))
        },
        "causal": {"causal": True, "q_offset": kept - T_q},
        "causal-array": {"causal": True, "q_offset": mx.array([kept - T_q] * B)},
        "window": {"window": (None, 1), "q_offset": [kept - T_q - 1] * B},
    }[form]


HIDING = [
    "lengths", "lengths-array", "boolean-row", "boolean-heads", "boolean-whole", "additive-row", "additive-whole",
    "bias-row", "segments", "causal", "causal-array", "window",
]  # fmt: skip


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("form", HIDING)
def test_nan_and_infinity_at_hidden_keys_never_leak(path, form):
    # pytorch#101967, and the tail of a cache that nobody has written.
    q, k, v = qkv(T_q=11, T_kv=21)
    options = hiding(form, 2, 4, 11, 21, kept=13)
    bad = mx.array(np.arange(21) >= 13).reshape(1, 1, 21, 1)
    k_bad, v_bad = mx.where(bad, mx.array(np.nan), k), mx.where(bad, mx.array(np.inf), v)

    def loss(q, k, v):
        out, lse = attend(q, k, v, path=path, return_lse=True, **options)
        return (out * out).sum() + mx.where(mx.isneginf(lse), 0.0, lse).sum(), out

    (_, want), want_gradients = mx.value_and_grad(loss, argnums=(0, 1, 2))(q, k, v)
    (_, out), gradients = mx.value_and_grad(loss, argnums=(0, 1, 2))(q, k_bad, v_bad)
    np.testing.assert_array_equal(to_numpy(out), to_numpy(want))
    for gradient, want_gradient in zip(gradients, want_gradients, strict=True):
        np.testing.assert_array_equal(to_numpy(gradient), to_numpy(want_gradient))
    assert (to_numpy(gradients[1])[:, :, 13:] == 0).all()


@pytest.mark.parametrize("path", PATHS)
def test_nan_hidden_from_one_head_of_a_group_stays_with_the_others(path):
    q, k, v = qkv(B=1, N_q=2, N_kv=1)
    mask = mx.array(np.arange(19) < np.array([[[19]], [[12]]]))  # head 1 does not see keys 12..
    v = mx.where((mx.arange(19) >= 12).reshape(19, 1), mx.array(np.nan), v)
    out = to_numpy(attend(q, k, v, mask=mask, path=path))
    assert np.isnan(out[:, 0]).all()
    assert np.isfinite(out[:, 1]).all()


@pytest.mark.parametrize("path", PATHS)
def test_later_tokens_change_nothing_bit_for_bit(path):
    q, k, v = qkv(T_q=20, T_kv=20)
    before = to_numpy(attend(q, k, v, causal=True, path=path))
    late = (mx.arange(20) >= 13).reshape(20, 1)
    after = to_numpy(attend(q, mx.where(late, 1e4, k), mx.where(late, -1e4, v), causal=True, path=path))
    np.testing.assert_array_equal(after[:, :, :13], before[:, :, :13])
    assert (after[:, :, 13:] != before[:, :, 13:]).any()
    gradients = mx.grad(lambda k, v: attend(q, k, v, causal=True, path=path)[:, :, :13].sum(), argnums=(0, 1))(k, v)
    assert all((to_numpy(gradient)[:, :, 13:] == 0).all() for gradient in gradients)


# Values inside arrays


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("bad", [-1, 20])
def test_bad_length_in_an_array_makes_its_row_nan_and_no_other(path, bad):
    q, k, v = qkv()
    lengths = mx.array([7, bad])
    out, lse = attend(q, k, v, kv_lengths=lengths, path=path, return_lse=True)
    assert np.isnan(to_numpy(out)[1]).all()
    assert np.isnan(to_numpy(lse)[1]).all()
    assert_close(out[:1], reference.attention(q[:1], k[:1], v[:1], kv_lengths=[7])[0])
    with pytest.raises(ValueError, match=f"kv_lengths must be in 0..T_kv=19; got {bad}"):
        attend(q, k, v, kv_lengths=lengths, check=True)
    gradient = to_numpy(mx.grad(lambda v: attend(q, k, v, kv_lengths=lengths, path=path).sum())(v))
    assert np.isnan(gradient[1]).any()
    assert np.isfinite(gradient[0]).all()


def test_check_reads_good_lengths_and_says_why_it_cannot_under_compile():
    q, k, v = qkv()
    want = attend(q, k, v, kv_lengths=[3, 19])
    np.testing.assert_array_equal(to_numpy(attend(q, k, v, kv_lengths=mx.array([3, 19]), check=True)), to_numpy(want))
    with pytest.raises(ValueError, match="check=True reads kv_lengths"):
        mx.compile(lambda n: attend(q, k, v, kv_lengths=n, check=True))(mx.array([3, 19]))


# Which path runs


def chosen(*shape, **options):
    B, N_q, N_kv, T_q, T_kv = shape
    q, k = mx.zeros((B, N_q, T_q, 64)), mx.zeros((B, N_kv, T_kv, 64))
    with mlx_tx.record_paths() as records:
        attend(q, k, k, stream=mx.cpu, **options)
    return records[0]


def test_auto_stores_small_scores_and_walks_over_large_ones():
    limit = module.COMPOSED_SCORE_BYTES
    T = int((limit / 4) ** 0.5)
    assert limit == 4 * T * T
    assert chosen(1, 1, 1, T, T).path == "composed"
    assert chosen(1, 1, 1, T, T + 1).path == "blockwise"
    assert chosen(1, 4, 2, T // 4, T).path == "composed"
    assert str(limit) in chosen(1, 2, 1, T, T).reason


@pytest.mark.parametrize("path", PATHS)
def test_path_that_is_asked_for_runs(path):
    record = chosen(1, 2, 1, 4, 5, path=path)
    assert (record.path, record.requested, record.reason) == (path, path, "asked for")
    assert (record.q_shape, record.k_shape, record.dtype) == ((1, 2, 4, 64), (1, 1, 5, 64), "float32")


def test_force_fused_says_why_no_fused_path_can_run():
    q, k, v = qkv()
    with pytest.raises(ValueError, match=r"force_fused=True but no fused kernel is available: mlx: .*; fused: "):
        attend(q, k, v, force_fused=True, stream=mx.cpu)
    with pytest.raises(ValueError, match='path="composed" cannot take this call: force_fused=True'):
        attend(q, k, v, force_fused=True, path="composed")


@pytest.mark.parametrize("path", ["mlx", "fused"])
def test_path_that_cannot_run_here_is_refused_with_its_reason(path):
    q, k, v = qkv()
    with pytest.raises(ValueError, match=f'path="{path}" cannot take this call: .*(Metal|CPU)'):
        attend(q, k, v, path=path, stream=mx.cpu)
