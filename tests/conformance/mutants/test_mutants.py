"""Mutants apply to the source as it is, live in a process of their own, and are killed by the clause they name."""

import subprocess
import sys

import pytest

from mlx_tx_conformance.mutants import Mutant, StaleMutant, all_mutants, find, run_mutants, selected
from mlx_tx_conformance.mutants.run import cases_of

MUTANTS = all_mutants()


def test_there_are_enough_and_names_are_unique():
    assert len(MUTANTS) >= 60
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_mutant_applies_and_says_what_it_is(mutant):
    mutant.check()
    assert mutant.about.endswith(".")
    assert cases_of([mutant.clause])


def test_text_that_is_gone_or_repeated_is_stale():
    mutant = Mutant("m", "mlx_tx.masks", "x = 1", "x = 2", "MSK-1")
    assert mutant.apply("y\nx = 1\n") == "y\nx = 2\n"
    for source in ("", "x = 1\nx = 1\n"):
        with pytest.raises(StaleMutant, match=r"occurs \d times"):
            mutant.apply(source)


def test_unknown_name_is_answered_with_a_suggestion():
    with pytest.raises(KeyError, match="lse-in-base-two"):
        find("lse-in-base-2")
    assert selected(["no-such-*"]) == ()


def test_planting_changes_the_import_of_one_process_and_no_file():
    program = "import mlx_tx\nprint([float(x) for x in mlx_tx.alibi_slopes(6)][4:])\n"
    plant = "from mlx_tx_conformance.mutants import find\nfind('alibi-slopes-of-powers-only').plant()\n"

    def printed(text):
        return subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True).stdout.strip()

    assert printed(plant + program) == "[0.5, 0.25]"
    assert printed(program) == "[0.5, 0.125]"


def test_planting_after_the_import_is_refused():
    import mlx_tx.masks  # noqa: F401

    with pytest.raises(RuntimeError, match="imported already"):
        find("mask-inverted").plant()


def test_killed_by_its_clause():
    (verdict,) = run_mutants([find("window-zero-accepted")], jobs=1)
    assert (verdict.outcome, verdict.by) == ("killed", ("SWA-1/below-one[window=0]",))


def test_mutant_that_changes_nothing_survives(monkeypatch):
    from mlx_tx_conformance.mutants import worker

    harmless = Mutant("harmless", "mlx_tx.nothing_of_the_kind", "a", "b", "LSE-1/by-hand")
    monkeypatch.setattr(worker, "find", lambda name: harmless)
    verdict = worker.judge("harmless", matrix=False)
    assert (verdict.outcome, verdict.ran) == ("survived", 1)
