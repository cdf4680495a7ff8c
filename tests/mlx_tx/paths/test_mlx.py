"""Delegation to mx.fast: which calls are handed over, and what becomes of them.

No machine of these tests need have Metal: where a call is let through, ``mx.fast`` runs without its fused kernels.
"""

import mlx.core as mx
import numpy as np
import pytest

import mlx_tx
from mlx_tx.paths import mlx
from mlx_tx.paths.transforms import UnsupportedTransformError
from tests.mlx_tx.problems import normal
from tests.mlx_tx.reference import assert_close, to_numpy

attend = mlx_tx.scaled_dot_product_attention


@pytest.fixture
def handed_over(monkeypatch):
    """Stands in for a machine with fused kernels; the list holds the keywords of every call handed over."""
    calls = []
    original = mx.fast.scaled_dot_product_attention

    def fast(q, k, v, **options):
        calls.append(options)
        assert options.pop("force_fused")
        return original(q, k, v, **options)

    monkeypatch.setattr(mx.fast, "scaled_dot_product_attention", fast)
    monkeypatch.setattr(mlx, "on_metal", lambda stream: True)
    return calls


def qkv(T_q=6, T_kv=9, dtype=mx.float32):
    rng = np.random.default_rng(0)
    return [normal(rng, 2, heads, T, 8, dtype=dtype) for heads, T in ((4, T_q), (2, T_kv), (2, T_kv))]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"mask": mx.ones((6, 9), dtype=mx.bool_)}, "does not take mask"),
        ({"mask": mx.zeros((6, 9))}, "does not take mask"),
        ({"bias": mx.zeros((6, 9))}, "does not take bias"),
        ({"window": 3}, "does not take window"),
        ({"alibi": True}, "does not take alibi"),
        ({"softcap": 3.0}, "does not take softcap"),
        ({"kv_lengths": [3, 9]}, "does not take kv_lengths"),
        ({"segments": (mx.zeros((2, 6), dtype=mx.int32), mx.zeros((2, 9), dtype=mx.int32))}, "does not take segments"),
        ({"return_lse": True}, "does not take return_lse"),
        ({"causal": True, "q_offset": 0}, "does not take q_offset"),
        ({"bias": mx.zeros((6, 9)), "softcap": 3.0}, "does not take bias, softcap"),
    ],
)
def test_calls_in_which_mx_fast_differs_are_refused(handed_over, options, reason):
    with pytest.raises(ValueError, match=f'path="mlx" cannot take this call: mx.fast {reason} in our meaning'):
        attend(*qkv(), path="mlx", **options)
    with mlx_tx.record_paths() as records:
        attend(*qkv(), stream=mx.cpu, **options)
    assert records[0].path == "composed"
    assert not handed_over


def test_causal_call_with_more_queries_than_keys_is_refused(handed_over):
    with pytest.raises(ValueError, match="leading rows of a causal call with T_q=9 > T_kv=6"):
        attend(*qkv(9, 6), causal=True, path="mlx")
    assert attend(*qkv(9, 6), path="mlx").shape == (2, 4, 9, 8)


def test_sinks_wider_than_the_queries_are_refused(handed_over):
    q, k, v = qkv(dtype=mx.float16)
    with pytest.raises(ValueError, match="sinks wider than q"):
        attend(q, k, v, sinks=mx.zeros((4,)), path="mlx")
    attend(q, k, v, sinks=mx.zeros((4,), dtype=mx.float16), path="mlx")


def test_never_on_the_cpu():
    with pytest.raises(ValueError, match="no fused kernel on this device"):
        attend(*qkv(), path="mlx", stream=mx.cpu)
    for stream in (mx.cpu, mx.Device(mx.cpu), mx.default_stream(mx.cpu)):
        assert not mlx.on_metal(stream)


@pytest.mark.parametrize("options", [{}, {"causal": True}, {"sinks": mx.array([0.5, 1, 2, 3])}, {"scale": 0.2}])
@pytest.mark.parametrize("asked", [{"path": "mlx"}, {"path": "auto"}, {"force_fused": True}])
def test_plain_calls_are_handed_over(handed_over, options, asked):
    q, k, v = qkv()
    with mlx_tx.record_paths() as records:
        out = attend(q, k, v, **options, **asked)
    assert records[0].path == "mlx"
    assert handed_over
    assert_close(out, attend(q, k, v, path="composed", **options), 1e-6)


def test_reason_of_mx_fast_is_passed_on(handed_over, monkeypatch):
    def fast(*_, **__):
        raise ValueError("no kernel for this head size")

    monkeypatch.setattr(mx.fast, "scaled_dot_product_attention", fast)
    with pytest.raises(ValueError, match='path="mlx" cannot take this call: no kernel for this head size'):
        attend(*qkv(), path="mlx")
    with mlx_tx.record_paths() as records:
        attend(*qkv(), stream=mx.cpu)
    assert records[0].path == "composed"


def test_gradients_come_from_the_blockwise_path_and_second_ones_are_refused(handed_over):
    q, k, v = qkv(dtype=mx.float16)
    sinks = mx.array([0.5, 1, 2, 3], dtype=mx.float16)

    def loss(path):
        return lambda q, k, v, sinks: (
            attend(q, k, v, sinks=sinks, causal=True, path=path).astype(mx.float32) ** 2
        ).sum()

    got = mx.grad(loss("mlx"), argnums=(0, 1, 2, 3))(q, k, v, sinks)
    want = mx.grad(loss("blockwise"), argnums=(0, 1, 2, 3))(q, k, v, sinks)
    for one, other in zip(got, want, strict=True):
        assert one.dtype == mx.float16
        assert_close(one, other, 2**-9)
    with pytest.raises(UnsupportedTransformError, match='path="composed"'):
        mx.grad(lambda q: mx.grad(loss("mlx"))(q, k, v, sinks).sum())(q)
    with pytest.raises(UnsupportedTransformError, match='path="mlx" has no jvp; use path="composed"'):
        mx.jvp(lambda q: loss("mlx")(q, k, v, sinks), [q], [q])


def test_vmap_folds_its_axis_into_the_batch(handed_over):
    q, k, v = qkv()
    many = mx.stack([q, q * 2, q - 1])
    out = mx.vmap(lambda q: attend(q, k, v, causal=True, path="mlx"))(many)
    for a in range(3):
        assert_close(out[a], attend(many[a], k, v, causal=True, path="composed"), 1e-6)
    assert np.isfinite(to_numpy(out)).all()
