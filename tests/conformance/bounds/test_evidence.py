"""The evidence in small: correct code stays within its bounds, and every planted fault shows in every dtype."""

import pytest

from mlx_tx_conformance.bounds import evidence, faults
from mlx_tx_conformance.bounds.corpus import sample, samples
from mlx_tx_conformance.bounds.evidence import EXHIBITS, Exhibit, correct_runs, dtypes_of, main
from mlx_tx_conformance.bounds.reference import Plain
from mlx_tx_conformance.call import DTYPES
from mlx_tx_conformance.inputs import DESIGNS, fingerprint

EXHIBITED = [(exhibit, dtype) for exhibit in EXHIBITS for dtype in dtypes_of(exhibit)]


def label(value):
    return value if isinstance(value, str) else f"{value.fault.name}, {value.design}, {value.seen_by}"


@pytest.mark.parametrize("part", range(6))
def test_correct_implementations_stay_within_their_bounds(part):
    """300 calls of the corpus, the long ones left to the full run."""
    runs = list(correct_runs(sample(n, longest=512) for n in range(50 * part, 50 * part + 50)))
    assert len(runs) > 1000
    assert [run for run in runs if not run.limit <= 1] == []
    assert max(run.limit for run in runs) > 0.5, "the bounds are not far above what correct code does"


def test_correct_gradients_stay_within_their_bounds():
    runs = list(correct_runs(samples(45, longest=257, gradients=True)))
    assert {run.output for run in runs} == {"q", "k", "v", "bias", "sinks"}
    assert [run for run in runs if not run.limit <= 1] == []


@pytest.mark.parametrize(("exhibit", "dtype"), EXHIBITED, ids=label)
def test_a_planted_fault_shows_and_correct_code_does_not(exhibit, dtype):
    call = exhibit.call(dtype)
    assert exhibit.sight(call, exhibit.fault()(call)) > 1
    assert exhibit.sight(call, Plain(dtype != "float32")(call)) <= 1


def test_every_fault_is_exhibited_in_every_dtype_that_can_show_it():
    shown = {(exhibit.fault, dtype) for exhibit, dtype in EXHIBITED}
    for fault in faults.FAULTS:
        for dtype in ("float32",) if fault in faults.FLOAT32_FAULTS else DTYPES:
            assert (fault, dtype) in shown


def test_the_corpus_is_the_same_every_time_and_has_every_shape_of_data():
    first, again = list(samples(60, longest=64)), list(samples(90, longest=64))
    assert [fingerprint(item.call) for item in first] == [fingerprint(item.call) for item in again[:60]]
    designs = {item.about["design"] for item in samples(300, longest=64)}
    assert designs >= set(DESIGNS) - {"unit_normal", "spiky"}  # which are the normal design with other words
    assert {item.about["rule"] for item in first} == {"none", "causal", "random", "sparse", "window"}


def test_the_driver_reports_and_succeeds(capsys):
    assert main(["--cases", "6", "--gradients", "3", "--longest", "64", "--no-faults"]) == 0
    printed = capsys.readouterr().out
    assert "| bfloat16 | P: blockwise-32 | 2 |" in printed
    assert "float32, class f32-internal: 28 outputs" in printed


def test_the_driver_fails_when_correct_code_exceeds_a_bound(capsys, monkeypatch):
    wrong = {"window - 1": lambda call: Plain()(call.with_options(softcap=0.5))}
    monkeypatch.setattr(evidence, "correct_implementations", lambda dtype, precision: wrong)
    assert main(["--cases", "3", "--gradients", "0", "--longest", "64", "--no-faults"]) == 1
    assert "exceeds its bound" in capsys.readouterr().out


def test_the_driver_fails_when_a_fault_does_not_show(capsys, monkeypatch):
    hidden = Exhibit(faults.ScaleOff, "constant_v", "out", {"T_kv": 64}, {}, {})
    monkeypatch.setattr(evidence, "EXHIBITS", (hidden,))
    assert main(["--cases", "0", "--gradients", "0"]) == 1
    assert "scale (1 + 2^-8) | constant_v" in capsys.readouterr().out
