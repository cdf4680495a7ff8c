"""The command line as a whole: exit statuses, messages, what it imports, how it ends."""

from __future__ import annotations

import errno
import io
import os
import signal
import subprocess
import sys
import time

import pytest

from mlx_tx.cli import COMMANDS, main, make_parser
from mlx_tx_conformance.runner import read_journal

from ..conformance.runner.miniatures import RIGHT, UPPER_LEFT, heeding_ctrl_c, tiny_spec


@pytest.fixture
def spec(tmp_path):
    return str(tiny_spec(tmp_path / "spec"))


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)}


def start(*arguments: str, **rest) -> subprocess.Popen:
    command = [sys.executable, "-P", "-m", "mlx_tx", *arguments]
    with heeding_ctrl_c():
        return subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(), **rest
        )


def test_every_command_has_help(capsys):
    for module in COMMANDS:
        with pytest.raises(SystemExit) as ended:
            main([module.__name__.rpartition(".")[2], "--help"])
        assert ended.value.code == 0
        assert "exit status" in capsys.readouterr().out


def test_the_parser_knows_nothing_twice():
    names = [module.__name__.rpartition(".")[2] for module in COMMANDS]
    assert len(names) == len(set(names))
    make_parser()


@pytest.mark.parametrize("arguments", [[], ["nonsense"], ["conform", "--jobs", "0"], ["conform", "--time-limit", "-1"]])
def test_wrong_usage_is_2(arguments, capsys):
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert "usage" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["conform", "--target", "mx.fats"], "did you mean 'mx.fast'"),
        (["conform", "--clause", "MSX-1"], "did you mean 'MSK-1'"),
        (["conform", "--out", "nowhere/run.jsonl"], "no folder nowhere"),
        (["conform", "--resume", "nothing.jsonl"], "nothing.jsonl"),
        (["conform", "--waivers", "nothing.yaml"], "nothing.yaml"),
        (["explain", "MSK-1/equals"], "did you mean 'MSK-1/equals-oracle[float32]'"),
        (["explain", "MSK-1/equals-oracle"], "2 cases; name one of them"),
        (["spec", "show", "MSX-1"], "did you mean 'MSK-1'"),
        (["spec", "show", "MSK-1/nothing"], "MSK-1/nothing"),
        (["spec", "list", "--clause", "MSX-1"], "did you mean 'MSK-1'"),
        (["spec", "coverage", "--scope", "atention"], "attention"),
        (["spec", "new", "MSK-1/equals-oracle"], "already"),
        (["spec", "new", "XYZ-1"], "--subject"),
    ],
)
def test_what_cannot_be_done_is_2_with_one_clear_line(arguments, said, spec, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main([*arguments, "--spec", spec]) == 2
    shown = capsys.readouterr()
    assert said in shown.err
    assert "Traceback" not in shown.err
    assert shown.out == ""


def test_a_spec_that_does_not_load_is_2_with_file_and_line(spec, tmp_path, capsys):
    path = tmp_path / "spec" / "mask" / "msk-1.yaml"
    path.write_text(path.read_text().replace("check: equals_oracle", "chekc: equals_oracle"))
    assert main(["conform", "--spec", spec]) == 2
    shown = capsys.readouterr().err
    assert "msk-1.yaml:" in shown
    assert "'check'" in shown


@pytest.mark.parametrize("arguments", [["spec", "list"], ["spec", "show", "MSK-1"], ["spec", "lint"], ["--help"]])
def test_reading_the_spec_imports_no_mlx(arguments):
    code = (
        "import sys\nfrom mlx_tx.cli import main\n"
        f"try: main({arguments!r})\nexcept SystemExit: pass\n"
        "print('loaded', sorted(n for n in sys.modules if n.split('.')[0] == 'mlx'), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], capture_output=True, text=True, env=environment(), check=True
    )
    assert "loaded []" in done.stderr


def test_a_reader_that_has_enough_is_no_error():
    process = start("spec", "list", "--cases")
    process.stdout.readline()
    process.stdout.close()
    assert "Traceback" not in process.stderr.read()
    process.stderr.close()
    assert process.wait() in (0, 141)


class FullDisk(io.RawIOBase):
    """A file that takes nothing until somebody makes room."""

    def __init__(self, file):
        self.file = file
        self.full = True

    def writable(self):
        return True

    def fileno(self):
        return self.file.fileno()

    def write(self, data):
        if self.full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return len(data)


@pytest.mark.parametrize("arguments", [["spec", "list", "--cases"], ["conform", "--target", "right.py", "--quiet"]])
def test_a_full_disk_behind_stdout_is_3_with_one_line(arguments, spec, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "right.py").write_text(RIGHT)
    with (tmp_path / "out").open("wb") as file:
        disk = FullDisk(file)
        stdout = io.TextIOWrapper(io.BufferedWriter(disk), "utf-8")
        monkeypatch.setattr(sys, "stdout", stdout)
        assert main([*arguments, "--spec", spec]) == 3
        disk.full = False
        stdout.close()
    assert capsys.readouterr().err == f"mlx-tx {arguments[0]}: cannot write: No space left on device\n"


def test_a_terminal_that_shows_ascii_alone_gets_other_characters(spec, tmp_path):
    (tmp_path / "wrong.py").write_text(UPPER_LEFT)
    plain = {**environment(), "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": "ascii"}
    command = [sys.executable, "-P", "-m", "mlx_tx", "conform", "--target", "wrong.py", "--spec", spec, "--quiet"]
    done = subprocess.run(
        [*command, "--format", "md"], cwd=tmp_path, capture_output=True, text=True, env=plain, check=False
    )
    assert done.returncode == 1
    assert done.stderr == ""
    assert "| MSK-1 | ? 2/2 fail |" in done.stdout


def test_ctrl_c_ends_conform_with_a_journal_to_go_on_with(spec, tmp_path):
    slow = RIGHT.replace("    k, v =", "    import time; time.sleep(0.3)\n    k, v =", 1)
    (tmp_path / "slow.py").write_text(slow)
    out = tmp_path / "run.jsonl"
    arguments = ["--spec", spec, "--target", "slow.py", "--jobs", "1"]
    process = start("conform", *arguments, "--out", str(out), cwd=tmp_path)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and not (out.exists() and len(out.read_text().splitlines()) >= 2):
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    said = process.stderr.read()
    process.stdout.close()
    process.stderr.close()
    assert process.wait() == 130, said
    assert f"--resume {out}" in said
    kept = read_journal(out)
    assert kept.truncated == "no footer"
    rest = start("conform", *arguments, "--resume", str(out), cwd=tmp_path)
    report, _ = rest.communicate()
    assert rest.returncode == 0, report
    whole = read_journal(out)
    assert not whole.truncated
    assert len(whole.rows) == 4
    assert whole.rows[: len(kept.rows)] == kept.rows


def test_the_wrong_attention_exits_1_by_the_name_of_its_clause(spec, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "wrong.py").write_text(UPPER_LEFT)
    assert main(["conform", "--target", "wrong.py", "--spec", spec, "--jobs", "1"]) == 1
    assert "fail   MSK-1/equals-oracle[float32]  on wrong.py" in capsys.readouterr().out
