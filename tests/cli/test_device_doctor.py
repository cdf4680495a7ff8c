"""doctor --device: a machine whose kernels hold, do not compile, exceed a cap of threads, or are wrong."""

from __future__ import annotations

import json
from typing import Any

import mlx.core as mx
import pytest

from mlx_tx.cli import main
from mlx_tx.kernels import Kernel, Launch, use_executor
from mlx_tx.kernels.chassis import SIGNATURES
from mlx_tx_conformance import emulator
from mlx_tx_conformance.emulator.executor import EmulatedDevice
from mlx_tx_conformance.kernel_trials import classify

BUILD = RuntimeError(
    "[metal::Device] Unable to build metal library from source\nprogram_source:12:3: error: use of undeclared"
)
CAP = ValueError("Thread group size (128) is greater than the maximum allowed threads per threadgroup (64).")


class Machine:
    """Stands in for a GPU: the emulated device with a fault in some kernels, or in how their results come back."""

    name = "metal of a test"

    def __init__(self, fault: Exception | float | None = None, only: str = "attention") -> None:
        self.fault, self.only, self.launched = fault, only, set[str]()
        self.device = EmulatedDevice()

    def launch(self, kernel: Kernel, launch: Launch) -> list[mx.array]:
        self.launched.add(kernel.name)
        if isinstance(self.fault, Exception) and self.only in kernel.name:
            raise self.fault
        outputs = self.device.launch(kernel, launch)
        if isinstance(self.fault, float) and self.only in kernel.name:
            outputs[0] = outputs[0] + self.fault
        return outputs


def doctor(machine: Machine, capsys: Any, *arguments: str) -> tuple[int, Any]:
    with use_executor(machine), mx.stream(mx.cpu):
        status = main(["doctor", "--device", "gpu", "--trials", "1", "--format", "json", *arguments])
    return status, json.loads(capsys.readouterr().out)


def rows(report: Any) -> dict[str, Any]:
    return {row["kernel"]: row for row in report["kernels"]}


def test_a_machine_whose_kernels_hold_is_0_and_every_kernel_ran(capsys):
    machine = Machine()
    status, report = doctor(machine, capsys)
    assert status == 0
    assert report["holds"]
    assert report["failures"] == []
    assert machine.launched == set(SIGNATURES)
    for row in report["kernels"]:
        assert row["held"] == row["trials"] == 1
        assert 0 < row["largest_error"] <= row["allowed"]
        assert 0 < row["threads"] <= 256
    assert report["device"] == "metal of a test"
    assert report["mlx"]


@pytest.mark.parametrize(
    ("fault", "column", "said"),
    [(BUILD, "no_compile", "Unable to build"), (CAP, "thread_cap", "allowed threads per threadgroup (64)")],
)
def test_kernels_that_do_not_run_are_1_and_say_why(fault, column, said, capsys):
    status, report = doctor(Machine(fault), capsys)
    assert status == 1
    assert not report["holds"]
    for row in report["kernels"]:
        assert row[column] == row["trials"]
        assert row["held"] == 0
        assert row["largest_error"] is None
    assert all(said in failure["message"] and "\n" not in failure["message"] for failure in report["failures"])


@pytest.mark.parametrize(("fault", "shown"), [(0.01, pytest.approx(0.01, rel=0.1)), (float("nan"), "inf")])
def test_a_kernel_that_is_wrong_is_1_and_only_that_one(fault, shown, capsys):
    status, report = doctor(Machine(fault, only="merge"), capsys)
    assert status == 1
    found = rows(report)
    assert found["attention_decode+attention_merge"]["wrong"] == 1
    assert found["attention_decode+attention_merge"]["largest_error"] == shown
    assert found["attention_forward"]["held"] == 1
    (failure,) = report["failures"]
    assert failure["status"] == "wrong"
    assert "attention_merge<T=float32" in failure["trial"]


def test_an_error_of_another_kind_is_an_error(capsys):
    status, report = doctor(Machine(RuntimeError("the moon is full"), only="forward"), capsys)
    assert status == 1
    assert rows(report)["attention_forward"]["error"] == 1
    assert report["failures"][0]["message"] == "the moon is full"


def test_the_table_names_kernels_and_what_to_do(capsys):
    with use_executor(Machine(CAP, only="decode")), mx.stream(mx.cpu):
        assert main(["doctor", "--device", "gpu", "--trials", "1"]) == 1
    shown = capsys.readouterr().out
    assert "thread cap: attention_decode<T=float32" in shown
    assert "1 of 3 trials failed" in shown
    for word in ("device", "macOS", "MLX", "largest error"):
        assert word in shown


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (BUILD, "no compile"),
        (CAP, "thread cap"),
        (emulator.KernelError("compile", "no such function"), "no compile"),
        (emulator.KernelError("race", "two threads"), "error"),
        (RuntimeError("Insufficient memory"), "error"),
    ],
)
def test_failures_are_told_apart(error, status):
    assert classify(error) == status


def test_without_a_gpu_it_is_3_and_says_what_would_do(capsys, monkeypatch):
    monkeypatch.setattr(mx.metal, "is_available", lambda: False)
    assert main(["doctor", "--device", "gpu"]) == 3
    said = capsys.readouterr()
    assert "no Metal GPU" in said.err
    assert "--device emulated" in said.err
    assert said.out == ""


def test_the_emulated_device_holds_and_says_what_that_does_not_prove(capsys):
    assert main(["doctor", "--device", "emulated", "--trials", "1"]) == 0
    shown = capsys.readouterr().out
    assert "every kernel holds: 3 trials" in shown
    assert "proves nothing about Apple's compiler" in shown


def test_without_a_compiler_the_emulated_device_is_3(capsys, monkeypatch):
    monkeypatch.setattr(emulator, "unavailable", lambda: "install g++")
    assert main(["doctor", "--device", "emulated"]) == 3
    assert "install g++" in capsys.readouterr().err


def test_trials_without_a_device_are_wrong_usage(capsys):
    assert main(["doctor", "--trials", "3"]) == 2
    assert "--device" in capsys.readouterr().err
