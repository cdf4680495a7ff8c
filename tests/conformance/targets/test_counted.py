"""What the kernels of mlx_tx do for a call, as a target tells it."""

from __future__ import annotations

import numpy as np
import pytest

from mlx_tx_conformance.call import Call, Unsupported
from mlx_tx_conformance.emulator import Counts
from mlx_tx_conformance.spec.count_checks import KERNEL_FIGURES, TILE_NAMES
from mlx_tx_conformance.targets import open_target
from mlx_tx_conformance.targets.counted import figures_of


def call(T_q=40, T_kv=40, N_q=2, N_kv=1, D=64, dtype=np.float16, **options):
    rng = np.random.default_rng(0)
    shapes = {"q": (1, N_q, T_q, D), "k": (1, N_kv, T_kv, D), "v": (1, N_kv, T_kv, D)}
    return Call("attention", {n: rng.standard_normal(s).astype(dtype) for n, s in shapes.items()}, options)


def test_figures_are_those_of_the_spec_and_sort_the_buffers():
    read = {"q": 1, "k": 2, "v": 4, "mask": 8, "sinks": 16, "sizes": 32, "k_strides": 64, "partial": 128}
    figures = figures_of(Counts(mma=3, exp=5, threadgroups=7, bytes_read=read, bytes_written={"out": 9, "lse": 1}))
    assert figures.keys() == KERNEL_FIGURES.keys()
    assert figures["device_bytes_read"] == sum(read.values())
    assert figures["device_bytes_written"] == 10
    assert figures["device_bytes"] == sum(read.values()) + 10
    assert (figures["q_bytes_read"], figures["kv_bytes_read"], figures["feature_bytes_read"]) == (1, 6, 24)
    assert (figures["kernel_mma"], figures["kernel_exp"], figures["threadgroups"]) == (3, 5, 7)


def test_counts_of_a_call_come_with_tiles_and_path():
    target = open_target("mlx_tx:fused", "emulated")
    found = target.kernel_counts(call())
    assert found.path == "fused"
    assert found.tiles.keys() <= TILE_NAMES.keys()
    # Two tiles of 32 rows; each reads 40 keys and values of 64 halves.
    assert found.tiles["rows"] == 32
    assert found.figures["kv_bytes_read"] == 2 * 2 * 40 * (64 + 64) * 2
    assert target.figure(call(), "kv_bytes_read") == found.figures["kv_bytes_read"]


def test_decoding_has_tiles_of_its_own():
    found = open_target("mlx_tx:fused", "emulated").kernel_counts(call(T_q=1, T_kv=300, N_q=8))
    assert found.tiles["rows"] == 8
    assert found.tiles["splits"] > 1
    assert found.figures["kv_bytes_read"] == 300 * (64 + 64) * 2


@pytest.mark.parametrize(
    ("name", "device", "said"),
    [
        ("mlx_tx:composed", "cpu", "emulated device"),
        ("mx.fast", "cpu", "emulated device"),
        ("mlx_tx:composed", "emulated", "runs no kernel of its own"),
    ],
)
def test_where_no_kernel_is_counted_the_reason_is_said(name, device, said):
    if (name, device) == ("mlx_tx:composed", "emulated"):
        from mlx_tx_conformance.targets.mlx_tx import MlxTx

        target = MlxTx("composed", "emulated")
    else:
        target = open_target(name, device)
    with pytest.raises(Unsupported, match=said):
        target.kernel_counts(call())
    with pytest.raises(Unsupported, match=said):
        target.figure(call(), "kernel_mma")
