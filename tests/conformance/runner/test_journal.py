"""Reading journals back: whole, cut short, broken, merged."""

from __future__ import annotations

import errno
import json
import os

import pytest

from mlx_tx_conformance.runner import JournalError, JournalWriteError, read_journal, run_of
from mlx_tx_conformance.runner.journal import JournalWriter
from mlx_tx_conformance.runner.rows import count_verdicts

HEADER = {
    "suite": "1", "spec_hash": "a" * 64, "device": "cpu", "device_name": "one", "seed": 0, "targets": ["mini"],
}  # fmt: skip


def row(case: str, verdict: str = "pass", target: str = "mini", order: int = 0, device: str = "cpu") -> dict:
    return {
        "kind": "result", "order": order, "case": case, "clause": case.split("/", maxsplit=1)[0], "target": target,
        "device": device, "path": "", "dtype": "float32", "verdict": verdict, "headroom": None, "message": "",
        "seconds": 0.1, "fingerprint": "", "details": {},
    }  # fmt: skip


def write(path, rows, footer: bool = True, **header):
    writer = JournalWriter(path)
    writer.start({**HEADER, **header})
    for entry in rows:
        writer.row(entry)
    if footer:
        writer.finish({"summary": count_verdicts(rows), "results": len(rows), "seconds": 2.0})
    writer.close()
    return path


def test_rows_are_on_disk_before_the_run_ends(tmp_path):
    writer = JournalWriter(tmp_path / "a")
    writer.start(HEADER)
    writer.row(row("A-1/x"))
    assert len((tmp_path / "a").read_text().splitlines()) == 2
    writer.close()


def test_a_missing_footer_is_said(tmp_path):
    path = write(tmp_path / "a", [row("A-1/x")], footer=False)
    assert read_journal(path).truncated == "no footer"
    assert run_of([read_journal(path)]).exit_code == 3


def test_half_a_line_is_said_and_the_whole_ones_kept(tmp_path):
    path = write(tmp_path / "a", [row("A-1/x"), row("A-1/y")], footer=False)
    path.write_text(path.read_text()[:-30])
    journal = read_journal(path)
    assert journal.truncated == "half a line at the end"
    assert [entry["case"] for entry in journal.rows] == ["A-1/x"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "empty"),
        ("nonsense\n", "a:1: not JSON"),
        ('{"kind": "result"}\n', "no header"),
        ('{"kind": "header", "format": 99}\n', "no header"),
        ("[]\n", "not an object"),
    ],
)
def test_what_is_no_journal_is_refused_with_its_line(tmp_path, text, said):
    (tmp_path / "a").write_text(text)
    with pytest.raises(JournalError, match=said):
        read_journal(tmp_path / "a")


def test_a_missing_file_is_refused_by_name(tmp_path):
    with pytest.raises(JournalError, match=r"none\.jsonl"):
        read_journal(tmp_path / "none.jsonl")


def test_broken_lines_in_the_middle_are_refused(tmp_path):
    path = write(tmp_path / "a", [row("A-1/x")])
    lines = path.read_text().splitlines()
    for broken in ([lines[0], "{", *lines[1:]], [*lines, lines[1]], [*lines[:2], lines[1], lines[2]], [*lines, "half"]):
        path.write_text("\n".join(broken))
        with pytest.raises(JournalError):
            read_journal(path)


def test_an_unknown_kind_of_line_is_refused(tmp_path):
    path = write(tmp_path / "a", [], footer=False)
    path.write_text(path.read_text() + json.dumps({"kind": "remark"}) + "\n")
    with pytest.raises(JournalError, match="unknown kind 'remark'"):
        read_journal(path)


def test_journals_of_two_targets_merge_in_the_order_of_the_spec(tmp_path):
    a = write(tmp_path / "a", [row("A-1/y", order=1), row("A-1/x", order=0)])
    b = write(tmp_path / "b", [row("A-1/x", "fail", "other", 0)], targets=["other"])
    run = run_of([read_journal(a), read_journal(b)])
    assert [(r["case"], r["target"]) for r in run.rows] == [("A-1/x", "mini"), ("A-1/x", "other"), ("A-1/y", "mini")]
    assert run.columns == [("mini", "cpu"), ("other", "cpu")]
    assert run.exit_code == 1


def test_the_same_device_name_twice_is_a_duplicate(tmp_path):
    a, b = (write(tmp_path / name, [row("A-1/x")]) for name in "ab")
    with pytest.raises(JournalError, match="A-1/x on mini, cpu, is both in"):
        run_of([read_journal(a), read_journal(b)])


def test_two_machines_are_two_columns(tmp_path):
    a = write(tmp_path / "a", [row("A-1/x")])
    b = write(tmp_path / "b", [row("A-1/x", "fail")], device_name="two")
    run = run_of([read_journal(a), read_journal(b)])
    assert run.columns == [("mini", "cpu (one)"), ("mini", "cpu (two)")]


@pytest.mark.parametrize(("name", "said"), [("spec_hash", "different cases"), ("suite", "versions of the suite")])
def test_journals_of_other_specs_or_suites_do_not_merge(tmp_path, name, said):
    a = write(tmp_path / "a", [row("A-1/x")])
    b = write(tmp_path / "b", [row("A-1/y")], **{name: "b"})
    with pytest.raises(JournalError, match=said):
        run_of([read_journal(a), read_journal(b)])


def test_a_merge_with_a_truncated_part_is_incomplete(tmp_path):
    a = write(tmp_path / "a", [row("A-1/x")])
    b = write(tmp_path / "b", [row("A-1/y")], footer=False)
    run = run_of([read_journal(a), read_journal(b)])
    assert run.truncated
    assert run.exit_code == 3


def test_a_journal_that_cannot_be_written_says_so(tmp_path):
    with pytest.raises(JournalWriteError, match="Is a directory"):
        JournalWriter(tmp_path).start(HEADER)
    path = write(tmp_path / "a", [row("A-1/x")], footer=False)
    (tmp_path / "a.resumed").mkdir()
    with pytest.raises(JournalWriteError, match="Is a directory"):
        JournalWriter(path).resume(read_journal(path))
    assert len(read_journal(path).rows) == 1


def test_a_full_disk_is_said_once(tmp_path):
    path = write(tmp_path / "a", [row("A-1/x")], footer=False)
    writer = JournalWriter(path)
    writer.resume(read_journal(path))
    writer._file = Full(writer._file)
    with pytest.raises(JournalWriteError, match="a cannot be written: No space left"):
        writer.row(row("A-1/y"))
    writer.close()
    assert len(read_journal(path).rows) == 1


class Full:
    """A file on a disk that is full: nothing that waits to be written can be."""

    def __init__(self, file):
        self.file = file

    def write(self, text):
        pass

    def flush(self):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def close(self):
        self.file.close()
        self.flush()


def test_half_a_surrogate_pair_in_a_message_is_kept(tmp_path):
    path = write(tmp_path / "a", [row("A-1/x") | {"message": "\udc80…"}])
    assert read_journal(path).rows[0]["message"] == "\udc80…"


def test_a_run_in_which_nothing_ran_does_not_conform(tmp_path):
    rows = [row("A-1/x", "unsupported") | {"message": "no argument causal"}, row("A-1/y", "unsupported")]
    run = run_of([read_journal(write(tmp_path / "a", rows))])
    assert run.exit_code == 3
    assert run.nothing_ran() == "nothing was run: every case is unsupported, for example A-1/x: no argument causal"
    run = run_of([read_journal(write(tmp_path / "b", [*rows, row("A-1/x", target="other")]))])
    assert run.exit_code == 0
    assert run.nothing_ran(("mini", "cpu"))
    assert not run.nothing_ran(("other", "cpu"))
