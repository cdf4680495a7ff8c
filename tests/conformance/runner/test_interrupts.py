"""Whose KeyboardInterrupt it is."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from mlx_tx_conformance.outcome import passed
from mlx_tx_conformance.runner.interrupts import listening
from mlx_tx_conformance.runner.worker import judge

from .miniatures import MiniCase, MiniTarget, heeding_ctrl_c


@pytest.fixture(autouse=True)
def heeded():
    """SIGINT raises KeyboardInterrupt, whatever this process inherited."""
    with heeding_ctrl_c():
        yield


def raises(case, target):
    raise KeyboardInterrupt


def pressed(case, target):
    os.kill(os.getpid(), signal.SIGINT)
    return passed()


def test_the_users_ctrl_c_interrupts_and_the_targets_own_does_not():
    with pytest.raises(KeyboardInterrupt):
        judge(pressed, MiniCase("A-1/a"), MiniTarget("mini"))
    assert judge(raises, MiniCase("A-1/a"), MiniTarget("mini")).verdict == "error"


def test_the_handler_is_what_it_was():
    with listening():
        assert signal.getsignal(signal.SIGINT) is not signal.default_int_handler
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_ignored_signal_stays_ignored():
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with listening() as interrupted:
        os.kill(os.getpid(), signal.SIGINT)
        assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN
    assert not interrupted()


def test_another_thread_judges_too():
    found = []
    thread = threading.Thread(target=lambda: found.append(judge(raises, MiniCase("A-1/a"), MiniTarget("mini"))))
    thread.start()
    thread.join()
    assert found[0].verdict == "error"
