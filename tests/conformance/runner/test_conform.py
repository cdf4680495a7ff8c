"""The whole runner on miniature cases: verdicts, crashes, time limits, order, resume."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace

import pytest

from mlx_tx_conformance.runner import (
    JournalError,
    PoolError,
    RefusedError,
    Waivers,
    Watcher,
    conform,
    pool,
    read_journal,
)
from mlx_tx_conformance.runner.rows import Row
from mlx_tx_conformance.runner.waivers import Waiver

from .miniatures import heeding_ctrl_c, mini_plan


def verdicts(rows) -> dict[str, str]:
    return {row["case"].split("/")[1]: row["verdict"] for row in rows}


def test_every_deed_becomes_its_verdict(tmp_path):
    run = conform(mini_plan(tmp_path, ["pass", "fail", "weak", "error", "unsupported", "bug"]))
    assert list(verdicts(run.rows).values()) == ["pass", "fail", "weak", "error", "unsupported", "error"]
    assert run.rows[4]["message"] == "no argument window"
    assert "ZeroDivisionError: in the check" in run.rows[5]["message"]
    assert run.exit_code == 1


def test_a_crash_is_a_verdict_and_the_run_goes_on(tmp_path):
    run = conform(mini_plan(tmp_path, ["pass", "crash", "pass", "exit", "pass"]))
    assert list(verdicts(run.rows).values()) == ["pass", "error", "pass", "error", "pass"]
    assert "SIGSEGV" in run.rows[1]["message"]
    assert "last words" in run.rows[1]["details"]["stderr"]
    assert "exit status 5" in run.rows[3]["message"]
    assert run.exit_code == 3


def test_a_case_beyond_the_time_limit_is_an_error_and_the_run_goes_on(tmp_path):
    run = conform(mini_plan(tmp_path, ["pass", "sleep", "pass"], time_limit=0.5))
    assert list(verdicts(run.rows).values()) == ["pass", "error", "pass"]
    assert run.rows[1]["message"] == "timed out after 0.5 s"


def test_the_limit_is_for_one_case_not_for_a_batch(tmp_path):
    run = conform(mini_plan(tmp_path, ["nap"] * 17, time_limit=0.9))
    assert run.counts["pass"] == 17


def test_a_crash_takes_the_rest_of_its_batch_nowhere(tmp_path):
    run = conform(mini_plan(tmp_path, ["pass"] * 2 + ["crash"] + ["pass"] * 37))
    assert run.counts["pass"] == 39
    assert run.counts["error"] == 1


def test_a_target_that_would_end_the_process_is_an_error_in_place(tmp_path):
    run = conform(mini_plan(tmp_path, ["leave", "interrupt"] * 3 + ["pass"]))
    assert [row["verdict"] for row in run.rows] == ["error"] * 6 + ["pass"]
    assert run.rows[0]["message"] == "the target would end the process: SystemExit: I am done"
    assert run.rows[1]["message"] == "the target would end the process: KeyboardInterrupt: mine"
    assert "_leave" in "".join(run.rows[0]["details"]["traceback"])


def test_after_three_losses_in_a_row_the_rest_of_the_clause_is_not_run(tmp_path):
    run = conform(mini_plan(tmp_path, ["sleep"] * 40 + ["2:pass"] * 2, time_limit=0.2))
    messages = [row["message"] for row in run.rows]
    assert messages[:3] == ["timed out after 0.2 s"] * 3
    reason = "not run: the target crashed or timed out 3 times in a row in MINI-1 (at last: timed out after 0.2 s)"
    assert set(messages[3:40]) == {reason}
    assert [row["verdict"] for row in run.rows] == ["error"] * 40 + ["pass"] * 2


def test_a_case_that_ends_begins_the_count_anew_and_an_unsupported_one_does_not(tmp_path):
    run = conform(mini_plan(tmp_path, ["crash", "crash", "fail", "crash", "unsupported", "crash", "pass", "pass"]))
    assert not any("not run" in row["message"] for row in run.rows)
    run = conform(mini_plan(tmp_path, ["crash", "unsupported", "crash", "crash", "pass"]))
    assert "not run" in run.rows[-1]["message"]


def test_after_three_such_clauses_the_rest_of_the_target_is_not_run_and_of_others_is(tmp_path):
    deeds = [f"{clause}:crash-other" for clause in range(1, 9) for _ in range(5)]
    run = conform(mini_plan(tmp_path, deeds, targets=("mini", "other"), jobs=2))
    assert {row["verdict"] for row in run.rows if row["target"] == "mini"} == {"pass"}
    others = [row for row in run.rows if row["target"] == "other"]
    assert {row["verdict"] for row in others} == {"error"}
    # Two workers: as many again may have been on their way when the third was lost.
    assert sum("SIGSEGV" in row["message"].split("(at last")[0] for row in others) <= 18
    assert "in a row in each of MINI-" in others[-1]["message"]


def test_rows_come_in_the_order_of_spec_and_targets_whatever_finishes_first(tmp_path):
    run = conform(mini_plan(tmp_path, ["quick", "pass", "pass", "quick", "pass"], targets=("mini", "another"), jobs=3))
    assert [(row["order"], row["target"]) for row in run.rows] == [
        (n, t) for n in range(5) for t in ("mini", "another")
    ]


def test_every_case_runs_once_on_every_target_with_several_workers(tmp_path):
    run = conform(mini_plan(tmp_path, ["pass"] * 101, targets=("mini", "other"), jobs=3))
    assert len(run.rows) == 202
    assert len({(row["case"], row["target"]) for row in run.rows}) == 202


def test_no_more_workers_start_than_there_are_tasks(tmp_path, monkeypatch):
    started = []
    start = pool._Pool._start
    monkeypatch.setattr(pool._Pool, "_start", lambda self: started.append(1) or start(self))
    conform(mini_plan(tmp_path, ["pass", "pass"], jobs=100_000))
    assert len(started) == 2


def test_the_seed_reaches_the_case(tmp_path):
    run = conform(mini_plan(tmp_path, ["seed"], seed=7))
    assert run.rows[0]["message"] == "seed 7"


def test_a_target_that_does_not_open_is_refused_with_its_message(tmp_path):
    with pytest.raises(RefusedError, match="did you mean 'mini'"):
        conform(mini_plan(tmp_path, ["pass"], targets=("none",)))


def test_workers_that_cannot_start_end_the_run_with_their_reason(tmp_path):
    with pytest.raises(PoolError, match="SIGSEGV"):
        conform(mini_plan(tmp_path, ["pass"], targets=("crash",)))
    with pytest.raises(PoolError, match="bug in the opener"):
        conform(mini_plan(tmp_path, ["pass"], targets=("bug",)))


def test_the_journal_has_header_rows_and_footer(tmp_path):
    out = tmp_path / "run.jsonl"
    run = conform(mini_plan(tmp_path, ["pass", "fail"]), out=out)
    journal = read_journal(out)
    assert not journal.truncated
    assert journal.header["targets"] == ["mini"]
    assert journal.header["cases"] == 2
    assert [row["case"] for row in journal.rows] == [row["case"] for row in run.rows]
    assert journal.footer["summary"] == run.counts
    assert journal.footer["results"] == 2


def cut(path, lines: int, half: bool = False) -> None:
    """Leave the first lines of a file, and half of the next."""
    whole = path.read_text().splitlines(keepends=True)
    path.write_text("".join(whole[:lines]) + (whole[lines][:20] if half else ""))


@pytest.mark.parametrize("half", [False, True])
def test_resume_runs_what_is_missing_and_keeps_the_rest(tmp_path, half):
    out = tmp_path / "run.jsonl"
    plan = mini_plan(tmp_path, ["pass", "fail", "pass", "weak", "pass"])
    conform(plan, out=out)
    cut(out, 3, half)
    assert read_journal(out).truncated == ("half a line at the end" if half else "no footer")
    ran: list[Row] = []
    started = []
    watcher = Watcher(lambda header, done, total: started.append((done, total)), ran.append)
    run = conform(plan, resume=out, watcher=watcher)
    assert started == [(2, 5)]
    assert [row["case"] for row in ran] == ["MINI-1/c2", "MINI-1/c3", "MINI-1/c4"]
    journal = read_journal(out)
    assert not journal.truncated
    assert list(verdicts(journal.rows).values()) == ["pass", "fail", "pass", "weak", "pass"]
    assert run.counts == journal.footer["summary"]


def test_resuming_a_whole_run_runs_nothing_and_loses_nothing(tmp_path):
    out = tmp_path / "run.jsonl"
    plan = mini_plan(tmp_path, ["pass", "fail"])
    before = conform(plan, out=out)
    ran: list[Row] = []
    after = conform(plan, resume=out, watcher=Watcher(row=ran.append))
    assert ran == []
    assert after.rows == before.rows


@pytest.mark.parametrize(
    ("change", "named"), [({"seed": 3}, "seed"), ({"targets": ("other",)}, "targets"), ({"spec": True}, "spec hash")]
)
def test_a_journal_of_another_run_is_not_resumed(tmp_path, change, named):
    out = tmp_path / "run.jsonl"
    plan = mini_plan(tmp_path, ["pass", "pass"])
    conform(plan, out=out)
    cut(out, 2)
    before = out.read_text()
    if change.pop("spec", False):
        (plan.spec_root / "sources.yaml").write_text("documents: [another]\n")
    with pytest.raises(JournalError, match=named):
        conform(replace(plan, **change), resume=out)
    assert out.read_text() == before


def test_a_run_of_other_cases_is_not_resumed(tmp_path):
    out = tmp_path / "run.jsonl"
    plan = mini_plan(tmp_path, ["pass", "pass", "pass"])
    conform(replace(plan, cases=plan.cases[:2], selection={"clause": ["MINI-*"], "tag": []}), out=out)
    before = out.read_text()
    with pytest.raises(JournalError, match=r"2 cases \(--clause MINI-\*\), and this one is of 3 cases \(the who"):
        conform(plan, resume=out)
    # As many cases, but others.
    with pytest.raises(JournalError, match="it is a run of 2 cases"):
        conform(replace(plan, cases=plan.cases[1:]), resume=out)
    assert out.read_text() == before


def test_a_run_of_a_target_whose_code_has_changed_is_not_resumed(tmp_path):
    out = tmp_path / "run.jsonl"
    target = tmp_path / "mine.py"
    target.write_text("# one\n")
    plan = mini_plan(tmp_path, ["pass", "pass"], targets=("mini", str(target)))
    conform(plan, out=out)
    assert conform(plan, resume=out).counts["pass"] == 4
    assert read_journal(out).header["target_hashes"]["mini"] == ""
    target.write_text("# two\n")
    with pytest.raises(JournalError, match=r"the code of .*mine\.py has changed since"):
        conform(plan, resume=out)


def test_a_run_on_other_versions_of_packages_is_not_resumed(tmp_path):
    out = tmp_path / "run.jsonl"
    plan = mini_plan(tmp_path, ["pass"])
    conform(plan, out=out)
    header, *rest = out.read_text().splitlines(keepends=True)
    entry = json.loads(header)
    entry["versions"]["mlx"] = "0.1"
    out.write_text("".join([json.dumps(entry) + "\n", *rest]))
    with pytest.raises(JournalError, match=r"its versions is mlx 0\.1, "):
        conform(plan, resume=out)


def test_a_waiver_turns_a_failure_into_waived_in_the_journal_too(tmp_path):
    out = tmp_path / "run.jsonl"
    waiver = Waiver("MINI-1/*", "cpu", "https://example.org/1", __import__("datetime").date.max)
    run = conform(mini_plan(tmp_path, ["pass", "fail"]), out=out, waivers=Waivers((waiver,)))
    assert run.counts["waived"] == 1
    assert run.exit_code == 0
    assert read_journal(out).rows[1]["verdict"] == "waived"


def test_a_waiver_that_hides_nothing_is_an_error(tmp_path):
    waiver = Waiver("MINI-1/*", "cpu", "https://example.org/1", __import__("datetime").date.max)
    run = conform(mini_plan(tmp_path, ["pass"]), waivers=Waivers((waiver,)))
    assert run.counts["error"] == 1
    assert "fails any more" in run.rows[-1]["message"]
    assert run.exit_code == 3


SCRIPT = """
import sys
from pathlib import Path
from mlx_tx_conformance.runner import InterruptedRunError, Watcher, conform
from tests.conformance.runner.miniatures import mini_plan
root = Path(sys.argv[1])
plan = mini_plan(root, ["quick"] * 3 + [sys.argv[2]] * 2000)
try:
    conform(plan, out=root / "run.jsonl", watcher=Watcher(row=lambda row: print("row", flush=True)))
except InterruptedRunError as interrupted:
    print("interrupted after", len(interrupted.run.rows), flush=True)
"""


@pytest.fixture
def running(tmp_path, request):
    """A long run in a process group of its own, once its first rows are there; by parameter what its cases do."""
    does = getattr(request, "param", "quick")
    root = str(request.config.rootpath)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([root, *sys.path])}
    with heeding_ctrl_c():
        process = subprocess.Popen(
            [sys.executable, "-c", SCRIPT, str(tmp_path), does],
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
            start_new_session=True,
        )
    for _ in range(3):
        assert process.stdout.readline() == "row\n"
    yield process
    process.kill()
    process.stdout.close()
    process.wait()


def test_ctrl_c_leaves_a_journal_that_can_be_resumed(tmp_path, running):
    os.killpg(running.pid, signal.SIGINT)  # as a terminal does: the whole group
    rest = running.stdout.read()
    assert "interrupted after" in rest
    journal = read_journal(tmp_path / "run.jsonl")
    assert journal.truncated == "no footer"
    assert len(journal.rows) >= 3
    assert len(journal.rows) < 2000
    assert {row["verdict"] for row in journal.rows} == {"pass"}, "the workers were not hit"


def test_a_killed_run_leaves_a_journal_that_can_be_read(tmp_path, running):
    running.kill()
    running.wait()
    journal = read_journal(tmp_path / "run.jsonl")
    assert journal.truncated
    assert len(journal.rows) >= 3


@pytest.mark.parametrize("running", ["quick", "sleep"], indirect=True)
def test_workers_end_with_their_parent_in_the_middle_of_a_case_too(running):
    children = [
        int(line.split()[0])
        for line in subprocess.run(
            ["ps", "-o", "pid=,ppid=", "-A"], capture_output=True, text=True, check=True
        ).stdout.splitlines()
        if line.split()[1] == str(running.pid)
    ]
    assert children
    assert all(os.getsid(pid) != os.getsid(running.pid) for pid in children), "Ctrl-C must reach the parent alone"
    running.kill()
    running.wait()
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline and any(_alive(pid) for pid in children):
        time.sleep(0.05)
    assert not any(_alive(pid) for pid in children)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    status = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False).stdout
    return bool(status.strip()) and not status.startswith("Z")


def test_the_header_names_the_machine(tmp_path):
    out = tmp_path / "run.jsonl"
    conform(mini_plan(tmp_path, ["pass"]), out=out)
    header = json.loads(out.read_text().splitlines()[0])
    for name in ("suite", "device", "device_name", "blas", "platform", "python", "versions", "seed", "spec_hash"):
        assert header[name] not in (None, ""), name
    assert header["versions"]["mlx"]
