"""Counts held to closed forms, and one path to another, on an implementation whose counts are made up."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest

from mlx_tx_conformance.call import Result, Unsupported
from mlx_tx_conformance.spec.count_checks import KERNEL_FIGURES
from mlx_tx_conformance.targets.counted import KernelCounts

from .implementations import Attention


@dataclass
class Counted(Attention):
    """Reads K and V once for each block of four queries; ``more`` bytes on top, ``path`` is what runs."""

    more: int = 0
    ran: str = "mini"
    others: dict[str, Attention] = field(default_factory=dict)

    def kernel_counts(self, call):
        B, N, T, D = call.arrays["q"].shape
        T_kv = call.arrays["k"].shape[2]
        figures = dict.fromkeys(KERNEL_FIGURES, 0)
        figures["kv_bytes_read"] = -(-T // 4) * B * N * T_kv * 2 * D * 4 + self.more
        figures["kernel_mma"] = T * T_kv
        return KernelCounts(figures, {"rows": 4}, self.ran)

    def on_path(self, path):
        return self.others.get(path)


EQUAL = (
    "shapes: {B: 1, N_q: 2, N_kv: 2, T: 10, D: 8}\npath: mini\n"
    'check: {counts_equal: {kv_bytes_read: "B * N_q * ceil(T_q / rows) * T_kv * 2 * D * itemsize", kernel_mma: 100}}'
)
HOLD = (
    "shapes: {B: 1, N_q: 2, N_kv: 2, T: 10, D: 8}\npath: mini\n"
    'check: {counts_hold: {that: "2 * kernel_mma <= kv_bytes_read and kv_bytes_read <= 3900"}}'
)
LAW = (
    "shapes: {B: 1, N_q: 2, N_kv: 2, D: 8}\npath: mini\n"
    "over: {figure: kernel_mma, T: [8, 16, 32]}\ncheck: {law: {exponent_at_most: 2.0, exponent_at_least: 2.0}}"
)
PATHS = "shapes: {T: 10, D: 8}\ncall: {outputs: [out, lse]}\npath: mini\ncheck: {equal_paths: {to: other}}"


@pytest.mark.parametrize("body", [EQUAL, HOLD, LAW])
def test_counts_as_they_should_be_pass(verdict, body):
    assert verdict(body, Counted())[0] == "pass"


@pytest.mark.parametrize(("body", "said"), [(EQUAL, "kv_bytes_read is 3,841"), (HOLD, "does not hold")])
def test_one_byte_more_than_the_closed_form_fails(verdict, body, said):
    kind, message = verdict(body, Counted(more=1 if body is EQUAL else 61))
    assert kind == "fail"
    assert said in message
    assert "rows 4" in message


@pytest.mark.parametrize("body", [EQUAL, HOLD, LAW])
def test_another_path_than_the_one_asked_for_fails(verdict, body):
    kind, message = verdict(body, Counted(ran="composed"))
    assert kind == "fail"
    assert "'composed' ran" in message


@pytest.mark.parametrize("body", [EQUAL, HOLD])
def test_where_nothing_is_counted_it_is_unsupported(verdict, body):
    assert verdict(body, Attention()) == ("unsupported", "no counts of kernels")


def test_the_reason_of_a_target_that_cannot_count_is_kept(verdict):
    class NotHere(Attention):
        def kernel_counts(self, call):
            raise Unsupported("only on the emulated device")

    assert verdict(EQUAL, NotHere()) == ("unsupported", "only on the emulated device")


class Other(Attention):
    """A path of its own, whose results are off by a share."""

    def __init__(self, off: float = 0.0) -> None:
        super().__init__(path="other")
        self.off = off

    def run(self, call):
        result = super().run(call)
        return Result({name: x + np.float32(self.off) for name, x in result.outputs.items()}, path=self.path)


def test_paths_that_agree_pass(verdict):
    assert verdict(PATHS, Counted(others={"other": Other()}))[0] == "pass"


def test_paths_that_differ_fail(verdict):
    kind, message = verdict(PATHS, Counted(others={"other": Other(1e-3)}))
    assert kind == "fail"
    assert "out[" in message


def test_a_path_that_is_not_there_is_unsupported(verdict):
    assert verdict(PATHS, Counted()) == ("unsupported", "no path other beside this one")


def test_a_path_that_hands_over_to_another_fails(verdict):
    delegating = Other()
    delegating.path = "mini"
    kind, message = verdict(PATHS, Counted(others={"other": delegating}))
    assert kind == "fail"
    assert "'other' was asked for" in message
