"""Waivers: what they cover, when they end, and that a useless one is an error."""

from __future__ import annotations

import datetime

import pytest

from mlx_tx_conformance.runner import WaiverError, Waivers, load_waivers
from mlx_tx_conformance.runner.waivers import Waiver

from .test_journal import row

TODAY = datetime.date(2030, 5, 17)
TICKET = "https://example.org/issues/1"


def waivers(*entries: Waiver) -> Waivers:
    return Waivers(entries, today=TODAY)


def waiver(cases: str = "A-1/*", device: str = "cpu", until: datetime.date = TODAY, target: str = "*") -> Waiver:
    return Waiver(cases, device, TICKET, until, target)


def test_a_failure_in_scope_is_waived_with_its_ticket():
    found = waivers(waiver()).apply(row("A-1/x", "fail"))
    assert found["verdict"] == "waived"
    assert TICKET in found["message"]


@pytest.mark.parametrize(
    "entry",
    [
        waiver(cases="B-1/*"),
        waiver(device="gpu"),
        waiver(target="other"),
        waiver(until=TODAY - datetime.timedelta(days=1)),
        waiver(cases="A-1/x[float32]"),
    ],
)
def test_a_failure_out_of_scope_stays_one(entry):
    assert waivers(entry).apply(row("A-1/x", "fail"))["verdict"] == "fail"


@pytest.mark.parametrize("verdict", ["pass", "weak", "error", "unsupported"])
def test_only_failures_are_waived(verdict):
    assert waivers(waiver()).apply(row("A-1/x", verdict))["verdict"] == verdict


def complaints(entry: Waiver, *rows) -> list[str]:
    used = waivers(entry)
    for one in rows:
        used.apply(one)
    return [found["message"] for found in used.complaints("cpu", ["A-1/x", "A-1/y"], 2)]


def test_a_waiver_that_is_needed_is_no_complaint():
    assert complaints(waiver(), row("A-1/x", "fail"), row("A-1/y", "pass")) == []


def test_a_waiver_that_hides_nothing_is_a_complaint():
    assert "fails any more" in complaints(waiver(), row("A-1/x", "pass"))[0]


def test_an_expired_waiver_is_a_complaint():
    until = TODAY - datetime.timedelta(days=1)
    assert "expired on 2030-05-16" in complaints(waiver(until=until), row("A-1/x", "fail"))[0]


def test_a_waiver_for_a_case_that_is_not_there_is_a_complaint():
    assert "covers no case" in complaints(waiver(cases="Z-9/*"))[0]


def test_a_waiver_for_another_device_is_none_here():
    assert complaints(waiver(device="gpu"), row("A-1/x", "pass")) == []


def test_a_file_is_read(tmp_path):
    path = tmp_path / "waivers.yaml"
    path.write_text(f"- {{cases: 'A-1/*', device: cpu, ticket: '{TICKET}', until: 2031-01-02, reason: because}}\n")
    (found,) = load_waivers(path).waivers
    assert found == Waiver("A-1/*", "cpu", TICKET, datetime.date(2031, 1, 2), reason="because")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{}", "expected a list"),
        ("- 3", "waiver 1 is no mapping"),
        ("- {cases: a, device: cpu, ticket: 'https://x'}", "lacks until"),
        ("- {cases: a, device: cpu, ticket: 'https://x', until: 2031-01-01, untill: 1}", "unknown untill"),
        ("- {cases: a, device: cpu, ticket: 'https://x', until: soon}", "until must be a date"),
        ("- {cases: a, device: cpu, ticket: 'mlx 7', until: 2031-01-01}", "ticket must be a URL"),
        ("- [", "waivers.yaml"),
    ],
)
def test_a_bad_file_is_refused(tmp_path, text, said):
    path = tmp_path / "waivers.yaml"
    path.write_text(text)
    with pytest.raises(WaiverError, match=said):
        load_waivers(path)


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(WaiverError, match=r"none\.yaml"):
        load_waivers(tmp_path / "none.yaml")
