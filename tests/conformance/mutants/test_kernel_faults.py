"""Faults planted in Metal sources: they reach what kernels are built from, in one process, and change no file."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import mlx_tx.kernels.chassis
from mlx_tx_conformance.mutants import StaleMutant, run_mutants
from mlx_tx_conformance.mutants.kernel_faults import MUTANTS
from mlx_tx_conformance.mutants.mutant import Mutant

PRINT = "from mlx_tx.kernels.chassis import kernel\nk = kernel({name!r})\nprint({new!r} in k.source + k.header)\n"


def printed(program: str) -> str:
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.strip()


def test_there_are_enough_and_each_runs_on_the_emulated_device() -> None:
    assert len(MUTANTS) >= 20
    assert {(mutant.target, mutant.device, mutant.is_kernel) for mutant in MUTANTS} == {
        ("mlx_tx:fused", "emulated", True)
    }
    assert {Path(mutant.module).stem for mutant in MUTANTS} == {
        "attention_common",
        "attention_forward",
        "attention_decode",
        "attention_merge",
    }


@pytest.mark.parametrize("name", ["kernel-scale-missing", "kernel-heads-dealt-out"])
def test_planting_changes_what_kernels_are_built_from(name: str) -> None:
    mutant = next(m for m in MUTANTS if m.name == name)
    program = PRINT.format(name="attention_forward", new=mutant.new)
    plant = f"from mlx_tx_conformance.mutants import find\nfind({name!r}).plant()\n"
    assert printed(plant + program) == "True"
    assert printed(program) == "False"


def test_planting_after_kernels_were_read_is_refused() -> None:
    assert mlx_tx.kernels.chassis.kernel("attention_merge")
    with pytest.raises(RuntimeError, match=r"kernels\.chassis is imported already"):
        MUTANTS[0].plant()


def test_text_that_is_gone_from_a_source_is_stale() -> None:
    for module in ("mlx_tx/kernels/attention_merge.metal", "mlx_tx/kernels/attention_common.metal"):
        with pytest.raises(StaleMutant, match="occurs 0 times"):
            Mutant("m", module, "no such text", "", "ATT-3").check()


def test_a_kernel_fault_is_killed_by_its_clause() -> None:
    fault = next(m for m in MUTANTS if m.name == "kernel-log-sum-exp-in-base-two")
    (verdict,) = run_mutants([fault])
    assert verdict.outcome == "killed", verdict
    assert verdict.by[0].startswith("LSE-1/")
    assert verdict.message.startswith("lse["), "a wrong number, not a kernel that does not compile"
