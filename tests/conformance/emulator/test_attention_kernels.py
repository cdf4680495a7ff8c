"""The attention kernels of mlx_tx: their instantiations, the strict check, planted faults, and counts beside MLX's."""

from __future__ import annotations

import mlx.core as mx
import pytest

from mlx_tx.kernels import Kernel, chassis
from mlx_tx.kernels.forward import forward_work
from mlx_tx_conformance import emulator
from mlx_tx_conformance.emulator import KernelError, Options
from mlx_tx_conformance.emulator.attention_kernels import (
    BANDS,
    DTYPES,
    FEW,
    FLAGS,
    HEADS,
    MANY,
    MASKS,
    call,
    calls,
    kernel_sources,
    sources_of,
)
from mlx_tx_conformance.emulator.counts import CountCase
from mlx_tx_conformance.emulator.mlx_attention import steel
from mlx_tx_conformance.emulator.mlx_tx_counts import forward_counts
from mlx_tx_conformance.emulator.strict import available, check_kernel, main_check

CHECKED = Options(checked=True)
EVERYTHING = {**dict.fromkeys(FLAGS, True), "window": 9, "mask": "float16", "segments": "int64"}


def test_calls_cover_every_pair_of_dtype_head_band_mask_and_feature() -> None:
    labels = [item.label for item in calls(MANY)]
    assert len(labels) == len(set(labels)) < 80
    for dtype in DTYPES:
        for D, D_v in HEADS:
            assert any(label.startswith(f"{dtype} D={D} D_v={D_v} ") for label in labels)
        for band in BANDS[1:]:
            ((name, value),) = band.items()
            assert any(label.startswith(dtype) and f"{name}={value}" in label for label in labels)
        for mask in MASKS[1:]:
            assert any(label.startswith(dtype) and f"mask={mask}" in label for label in labels)
    for one in FLAGS:
        for other in FLAGS:
            assert any(f"{one}=True" in label and f"{other}=True" in label for label in labels)


def test_calls_of_few_queries_are_those_of_the_split_kernels() -> None:
    switched = [dict(item.works[0].template) for item in calls(FEW)]
    assert {item.works[0].kernel.name for item in calls(FEW)} == {"attention_decode"}
    for name in ("LEFT", "RIGHT", "LENGTHS", "SEGMENTS", "MASK", "BIAS", "ALIBI", "SOFTCAP"):
        assert len({template[name] for template in switched}) > 1, name


def test_the_strict_check_knows_every_instantiation() -> None:
    sources = kernel_sources()
    assert {source.name.partition("_bool")[0].partition("_float")[0] for source in sources} >= set(chassis.SIGNATURES)
    assert sum(len(source.instances) for source in sources) > 80
    for source in sources:
        assert all(item.min_size == 1 and item.max_size is None for item in source.inputs)


@pytest.mark.parametrize(
    ("dtype", "lengths"), [("float32", MANY), ("bfloat16", MANY), ("float16", FEW), ("bfloat16", FEW)]
)
def test_the_strict_check_accepts_the_kernels(dtype: str, lengths: tuple[int, int]) -> None:
    """With every feature and with none; every input also with fewer than eight elements."""
    assert available()
    works = [w for features in ({}, EVERYTHING) for w in call(0, dtype, (20, 33), lengths, (2, 4, 2), features).works]
    report = main_check(sources_of(works))
    assert report.ok, report.pretty()


def test_the_strict_check_sees_a_pointer_bound_to_device() -> None:
    (source,) = sources_of(call(0, "float16", (16, 16), MANY, (2, 4, 2), {}).works)
    bound = source.source.replace("auto k_head = k", "const device T* k_head = k")
    findings = check_kernel(type(source)(**{**source.__dict__, "source": bound}))
    assert {finding.rule for finding in findings} == {"address-space"}


BARRIER = "    threadgroup_barrier(mem_flags::mem_threadgroup);\n"
STAGING = "    stage<T, COLUMNS, D, LD_KV"
PLANTED = {
    "staged is overwritten while it is read": (BARRIER + STAGING, STAGING),
    "keys are read before they are there": ("k_row, k_column, index);\n" + BARRIER, "k_row, k_column, index);\n"),
    "values over keys": (BARRIER + "    stage<T, COLUMNS, D_V", "    stage<T, COLUMNS, D_V"),
    "values are read before they are there": ("v_row, v_column, index);\n" + BARRIER, "v_row, v_column, index);\n"),
    "a row too many is read": ("min(COLUMNS, rules.key_end - start)", "COLUMNS"),
    "a row too many is written": ("query.there = q_own < q0 + rows;", "query.there = q_own <= q0 + rows;"),
    "a tile that is too small": ("threadgroup T staged[COLUMNS * LD_KV]", "threadgroup T staged[COLUMNS * LD_KV - 8]"),
}
KINDS = {"race", "uninitialised", "out-of-bounds"}


@pytest.mark.parametrize("fault", PLANTED)
def test_the_checked_build_reports_a_planted_fault(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    old, new = PLANTED[fault]
    sound = chassis.kernel("attention_forward")
    assert sound.source.count(old) == 1
    faulty = Kernel(**{**sound.__dict__, "source": sound.source.replace(old, new)})
    monkeypatch.setattr("mlx_tx.kernels.forward.kernel", lambda name: faulty)
    item = call(0, "float32", (16, 16), (29, 75), (1, 1, 1), {})
    with emulator.device(CHECKED), pytest.raises(KernelError) as caught:
        mx.eval(forward_work(item.spec, item.arrays).run())
    assert caught.value.kind in KINDS


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("D", [64, 128])
def test_no_more_is_read_and_multiplied_than_by_mlx(D: int, causal: bool) -> None:
    case = CountCase("forward", "float16", D, 128, 128, 1, 1, causal).attention()
    ours, theirs = forward_counts(case, CHECKED)["attention_forward"], steel(case, CHECKED)[1]
    assert ours.device_bytes_read <= theirs.device_bytes_read
    assert ours.mma <= theirs.mma
    assert ours.exp <= theirs.exp
    assert ours.barriers <= theirs.barriers
    assert ours.threadgroup_bytes <= theirs.threadgroup_bytes
