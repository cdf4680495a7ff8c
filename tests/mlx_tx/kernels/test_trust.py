"""Trust on a GPU that nobody has tried: kernels that fail to build, that exceed its caps, that are wrong, that hold."""

from __future__ import annotations

import warnings
from typing import Any

import mlx.core as mx
import pytest

import mlx_tx
from mlx_tx.kernels import Kernel, Launch, limits, trust, use_executor
from mlx_tx.paths import composed
from mlx_tx_conformance.emulator.executor import EmulatedDevice
from tests.mlx_tx.kernels.tools import agrees, normal, plain, qkv


class Metal:
    """Stands in for a Mac: the emulated device under Metal's name, with a fault."""

    name = "metal"

    def __init__(self, fault: Exception | float | None = None, only: str = "attention") -> None:
        self.fault, self.only = fault, only
        self.device = EmulatedDevice()
        self.launched: list[str] = []

    def launch(self, kernel: Kernel, launch: Launch) -> list[mx.array]:
        self.launched.append(kernel.name)
        if isinstance(self.fault, Exception) and self.only in kernel.name:
            raise self.fault
        outputs = self.device.launch(kernel, launch)
        if isinstance(self.fault, float) and self.only in kernel.name:
            outputs[0] = outputs[0] + self.fault
        return outputs


@pytest.fixture(autouse=True)
def a_mac_without_verdicts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "on_gpu", lambda stream: True)
    monkeypatch.setattr(trust.TRUST, "verdicts", {})


def attend(executor: Metal, **options: Any) -> tuple[str, mx.array]:
    """The path that a call of path "auto" took, and its output."""
    q, k, v = qkv(B=1, T_q=options.pop("T_q", 33), T_kv=options.pop("T_kv", 70))
    with use_executor(executor), mlx_tx.record_paths() as calls:
        out, lse = mlx_tx.scaled_dot_product_attention(q, k, v, return_lse=True, **options)
        mx.eval(out, lse)
    agrees(out, lse, q, k, v, **{n: x for n, x in options.items() if n != "path"})
    return calls[0].path, out


def test_a_kernel_that_holds_is_tried_once_and_used() -> None:
    metal = Metal()
    assert attend(metal)[0] == "fused"
    assert metal.launched == ["attention_forward"] * 2  # the trial, the call
    assert attend(metal)[0] == "fused"
    assert len(metal.launched) == 3
    attend(metal, causal=True)  # another instantiation
    assert len(metal.launched) == 5


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (RuntimeError("[metal::Device] Unable to build metal library from source\nerror: no"), "Unable to build"),
        (
            ValueError("Thread group size (128) is greater than the maximum allowed threads per threadgroup (64)."),
            "128",
        ),
        (1e-3, "off by 0.001"),
        (float("nan"), "off by inf"),
    ],
)
def test_a_kernel_that_does_not_is_named_once_and_another_path_taken(fault: Exception | float, words: str) -> None:
    metal = Metal(fault)
    with pytest.warns(RuntimeWarning, match="attention_forward<T=float32, D=16.*is not used") as caught:
        assert attend(metal)[0] == "composed"
    assert len(caught) == 1
    assert words in str(caught[0].message)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert attend(metal)[0] == "composed"
    assert len(metal.launched) == 1


def test_a_distrusted_path_that_was_asked_for_is_refused_with_the_reason() -> None:
    metal = Metal(RuntimeError("no such instruction"))
    q, k, v = qkv()

    def refused(words: str, **asked: Any) -> None:
        with use_executor(metal), pytest.raises(ValueError, match=words):
            mlx_tx.scaled_dot_product_attention(q, k, v, **asked)

    with pytest.warns(RuntimeWarning, match="not used"):
        refused("no such instruction", path="fused")
    refused("fused: no such instruction", force_fused=True)


def test_one_distrusted_kernel_does_not_stop_the_others() -> None:
    metal = Metal(RuntimeError("no"), only="decode")
    with pytest.warns(RuntimeWarning, match="attention_decode<.* and attention_merge<"):
        assert attend(metal, T_q=2, T_kv=300)[0] == "composed"
    assert attend(metal)[0] == "fused"


def test_a_wrong_merge_is_found_too() -> None:
    with pytest.warns(RuntimeWarning, match="off by"):
        assert attend(Metal(0.5, only="merge"), T_q=2, T_kv=300)[0] == "composed"


def test_executors_installed_on_purpose_are_not_tried() -> None:
    device = EmulatedDevice()
    q, k, v = qkv()
    with use_executor(device):
        mlx_tx.scaled_dot_product_attention(q, k, v, path="fused")
        assert device.counts["attention_forward"].threadgroups == 2 * 4 * 2  # one launch
    assert not trust.TRUST.verdicts


def test_a_trial_has_the_features_head_sizes_and_marks_of_the_call() -> None:
    q, k, v = qkv(B=9, N_q=10, N_kv=5, D=20, D_v=33, dtype=mx.bfloat16)
    options: dict[str, Any] = {
        "window": (50, None),
        "alibi": True,
        "softcap": 2.0,
        "sinks": normal(4, 10),
        "bias": normal(5, 10, 33, 70).astype(mx.float16),
        "mask": mx.ones((33, 70), dtype=mx.bool_),
        "segments": (mx.zeros((9, 33), dtype=mx.int64), mx.zeros((9, 70), dtype=mx.int64)),
        "kv_lengths": [70] * 9,
        "q_offset": 5,
    }
    spec, arrays = plain(q, k, v, **options)
    tiny = trust.probe(spec, arrays)
    assert [w.instantiation for w in trust.works_of(*tiny)] == [w.instantiation for w in trust.works_of(spec, arrays)]
    out, lse = composed.run(*tiny)
    assert not mx.any(mx.isnan(out)).item()
    assert mx.any(mx.isfinite(lse)).item()


def test_a_trial_of_few_queries_has_several_parts() -> None:
    for N_q, N_kv, T_q in ((4, 2, 2), (4, 2, 8), (12, 1, 1), (16, 16, 3)):
        spec, arrays = plain(*qkv(B=1, N_q=N_q, N_kv=N_kv, T_q=T_q, T_kv=4000))
        works, tried = trust.works_of(spec, arrays), trust.works_of(*trust.probe(spec, arrays))
        assert [w.instantiation for w in tried] == [w.instantiation for w in works]
        assert works[0].kernel.name == "attention_decode"
        assert tried[0].groups[0] > 1
