"""Faults that only counts can see: they apply, run on the emulated device, and the message says what was counted."""

from __future__ import annotations

import pytest

from mlx_tx_conformance.mutants import all_mutants, run_mutants
from mlx_tx_conformance.mutants.count_faults import MUTANTS


def test_each_applies_and_is_of_a_counted_clause() -> None:
    assert len(MUTANTS) >= 3
    assert set(MUTANTS) <= set(all_mutants())
    for mutant in MUTANTS:
        mutant.check()
        assert (mutant.target, mutant.device) == ("mlx_tx:fused", "emulated")
        assert "/" in mutant.clause


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("count-causal-blocks-not-skipped", "kv_bytes_read is "),
        ("count-keys-read-for-every-head", "kv_bytes_read is "),
        ("count-tiles-of-eight-queries", "does not hold"),
    ],
)
def test_it_dies_by_its_count_and_not_by_an_error(name: str, said: str) -> None:
    mutant = next(mutant for mutant in MUTANTS if mutant.name == name)
    (verdict,) = run_mutants([mutant], jobs=1)
    assert verdict.outcome == "killed", verdict.message
    assert said in verdict.message
