"""The fused path on the emulated device: what the target runs, refuses and declares there."""

from __future__ import annotations

import numpy as np
import pytest

from mlx_tx_conformance.call import Call
from mlx_tx_conformance.targets import TargetError, open_target


def arrays(T_q: int = 5, T_kv: int = 7) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {name: rng.standard_normal((1, 2, T, 8), np.float32) for name, T in (("q", T_q), ("k", T_kv), ("v", T_kv))}


def test_kernels_run_and_the_result_says_so() -> None:
    target = open_target("mlx_tx:fused", "emulated")
    call = Call("attention", arrays(), {"causal": True})
    assert target.supports(call) is None
    assert target.run(call).path == "fused"


def test_other_paths_have_no_kernels_to_run_there() -> None:
    with pytest.raises(TargetError, match="use mlx_tx:fused"):
        open_target("mlx_tx:composed", "emulated")


def test_traces_are_refused_and_the_reason_is_the_device() -> None:
    target = open_target("mlx_tx:fused", "emulated")
    for call in (Call("attention_vmap", arrays()), Call("attention", arrays(), {"compiled": True})):
        assert "computes at once" in str(target.supports(call))


def test_without_a_device_every_call_is_refused_by_the_path() -> None:
    assert "no Metal GPU" in str(open_target("mlx_tx:fused").supports(Call("attention", arrays())))


def test_half_inputs_are_held_to_float32_inside() -> None:
    assert open_target("mlx_tx:fused", "emulated").precision("float16") == "f32-internal"
    assert open_target("mlx_tx:fused", "gpu").precision("bfloat16") == "f32-internal+fast-exp"
    assert open_target("mlx_tx:composed").precision("float16") == "P"


def test_products_are_counted_by_the_kernels() -> None:
    target = open_target("mlx_tx:fused", "emulated")
    # Eight queries, sixteen keys, D = D_v = 8: two products of 8x8 each for Q K^T and P V, in two heads.
    assert target.figure(Call("attention", arrays(8, 16)), "matmul_flops") == 2 * 4 * 2 * 8**3


def test_a_device_that_is_missing_makes_calls_unsupported(monkeypatch):
    from mlx_tx_conformance import emulator

    monkeypatch.setattr(emulator, "unavailable", lambda: "no compiler: install one")
    target = open_target("mlx_tx:fused", "emulated")
    x = np.zeros((1, 1, 1, 8), np.float32)
    assert target.supports(Call("attention", {"q": x, "k": x, "v": x})) == "no compiler: install one"
