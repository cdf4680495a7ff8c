"""Path "fused": where it runs, its derivatives, and what it says to what it does not have."""

from __future__ import annotations

import mlx.core as mx
import numpy as np
import pytest

import mlx_tx
from mlx_tx.kernels import Kernel, Launch, use_executor
from mlx_tx.paths.transforms import UnsupportedTransformError
from mlx_tx_conformance import emulator
from mlx_tx_conformance.emulator import KernelError
from mlx_tx_conformance.oracle.gradients import attention_gradients
from tests.mlx_tx.kernels.tools import normal, qkv, to_numpy

attend = mlx_tx.scaled_dot_product_attention


@pytest.mark.parametrize("asked", [{"path": "fused"}, {"force_fused": True}])
def test_without_a_device_it_is_refused_with_the_reason(asked: dict) -> None:
    if mx.metal.is_available():
        asked = {**asked, "stream": mx.cpu}
    with pytest.raises(ValueError, match=r"no Metal GPU, and no executor|for the CPU"):
        attend(*qkv(), **asked)


def test_auto_takes_it_where_it_runs() -> None:
    with emulator.device(), mlx_tx.record_paths() as calls:
        attend(*qkv())
        attend(*qkv(), force_fused=True)
        attend(*qkv(), path="composed")
    assert [call.path for call in calls] == ["fused", "fused", "composed"]


def test_heads_that_are_too_large_go_elsewhere() -> None:
    q, k, v = qkv(B=1, N_q=1, N_kv=1, T_q=3, T_kv=3, D=260, D_v=8)
    with emulator.device(), mlx_tx.record_paths() as calls:
        attend(q, k, v)
        with pytest.raises(ValueError, match="at most 256; got D=260, D_v=8"):
            attend(q, k, v, path="fused")
    assert calls[0].path == "composed"


def test_empty_axes_are_answered_without_a_kernel() -> None:
    with emulator.device() as device:
        out, lse = attend(*qkv(T_kv=0), path="fused", return_lse=True)
        assert attend(*qkv(T_q=0), path="fused").shape == (2, 4, 0, 16)
    assert mx.all(out == 0).item()
    assert mx.all(mx.isneginf(lse)).item()
    assert not device.counts


def test_gradients_are_those_of_the_oracle() -> None:
    q, k, v = qkv(T_q=9, T_kv=21)
    sinks, bias = normal(4, 4), normal(5, 4, 1, 21)
    d_out, d_lse = normal(6, 2, 4, 9, 16), normal(7, 2, 4, 9)

    def f(*values: mx.array) -> list[mx.array]:
        q, k, v, sinks, bias = values
        return list(attend(q, k, v, causal=True, sinks=sinks, bias=bias, return_lse=True, path="fused"))

    with emulator.device():
        found = mx.vjp(f, [q, k, v, sinks, bias], [d_out, d_lse])[1]
    arrays = [to_numpy(x) for x in (q, k, v)]
    expected = attention_gradients(
        *arrays, to_numpy(d_out), d_lse=to_numpy(d_lse), causal=True, sinks=to_numpy(sinks), bias=to_numpy(bias)
    )
    for name, gradient in zip(("q", "k", "v", "sinks", "bias"), found, strict=True):
        np.testing.assert_allclose(to_numpy(gradient), expected[name].reshape(gradient.shape), rtol=0, atol=2e-5)


def test_gradients_of_half_inputs_have_their_dtype() -> None:
    q, k, v = qkv(T_q=9, T_kv=21, dtype=mx.bfloat16)
    with emulator.device():
        gradients = mx.grad(lambda *x: attend(*x, path="fused").sum(), argnums=(0, 1, 2))(q, k, v)
    assert [g.dtype for g in gradients] == [mx.bfloat16] * 3


def test_checkpoint_runs_the_forward_again() -> None:
    q, k, v = qkv(T_q=9, T_kv=21)
    with emulator.device() as device:
        plain = mx.grad(lambda x: attend(x, k, v, path="fused").sum())(q)
        once = device.counts["attention_forward"].threadgroups
        again = mx.grad(mx.checkpoint(lambda x: attend(x, k, v, path="fused").sum()))(q)
        mx.eval(plain, again)
        assert device.counts["attention_forward"].threadgroups > 2 * once
    assert mx.array_equal(plain, again).item()


class LazyExecutor:
    """Launches as Metal does, without computing at once: plain attention written as MLX operations."""

    name = "lazy"

    def launch(self, kernel: Kernel, launch: Launch) -> list[mx.array]:
        q, k, v = launch.inputs[:3]
        assert isinstance(q, mx.array)
        s = q @ mx.repeat(k, q.shape[1] // k.shape[1], axis=1).swapaxes(-1, -2) * launch.inputs[-1][0]
        out = mx.softmax(s, axis=-1) @ mx.repeat(v, q.shape[1] // v.shape[1], axis=1)
        assert (out.shape, s.shape[:-1]) == launch.output_shapes
        return [out, mx.logsumexp(s, axis=-1)]


def test_vmap_folds_its_axis_into_the_batch() -> None:
    q, k, v = normal(1, 3, 2, 4, 9, 16), normal(2, 2, 2, 21, 16), normal(3, 3, 2, 2, 21, 16)
    with use_executor(LazyExecutor()):
        mapped = mx.vmap(lambda q, v: attend(q, k, v, path="fused"), in_axes=(0, 0))(q, v)
        compiled = mx.compile(lambda q: attend(q, k, v[0], path="fused"))(q[0])
        gradient = mx.vmap(mx.grad(lambda q, v: attend(q, k, v, path="fused").sum()), in_axes=(0, 0))(q, v)
    for n in range(3):
        expected = attend(q[n], k, v[n], path="composed")
        assert mx.allclose(mapped[n], expected, atol=1e-5).item()
        expected = mx.grad(lambda x, n=n: attend(x, k, v[n], path="composed").sum())(q[n])
        assert mx.allclose(gradient[n], expected, atol=1e-5).item()
    assert mx.allclose(compiled, mapped[0], atol=1e-5).item()


def test_mixed_dtypes_are_promoted() -> None:
    q, k, v = qkv(T_q=9, T_kv=21)
    with emulator.device():
        mixed = attend(q.astype(mx.float16), k, v, path="fused")
        same = attend(q.astype(mx.float16).astype(mx.float32), k, v, path="fused")
    assert mixed.dtype == mx.float32
    assert mx.array_equal(mixed, same).item()


def test_what_it_does_not_have_names_the_path_that_has_it() -> None:
    q, k, v = qkv(T_q=9, T_kv=21)

    def f(x: mx.array) -> mx.array:
        return attend(x, k, v, path="fused").sum()

    with emulator.device():
        with pytest.raises(UnsupportedTransformError, match='path="composed"'):
            mx.jvp(f, [q], [q])
        with pytest.raises(UnsupportedTransformError, match='path="composed"'):
            mx.grad(lambda x: mx.grad(f)(x).sum())(q)


def test_the_emulated_device_says_that_it_cannot_run_in_a_trace() -> None:
    q, k, v = qkv(T_q=9, T_kv=21)
    with emulator.device(), pytest.raises(KernelError, match=r"cannot run inside mx\.compile or mx\.vmap"):
        mx.compile(lambda x: attend(x, k, v, path="fused"))(q)
