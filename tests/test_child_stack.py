"""Where a task in a child process was when its time was over."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest
from children import Child, payload

from workpool.context import Limits
from workpool.loss import Why
from workpool.system.process import ChildProcess
from workpool.worker.child import STACK_SIGNAL


def test_a_task_that_takes_too_long_need_have_no_stack(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ChildProcess, "stack", lambda self, signum: "")
    found = Child(time.sleep, Limits(timeout_s=0.1))
    assert found.call(payload(60)).why is Why.TIMEOUT


def test_a_stack_is_awaited_to_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who writes it may lose its core amidst of that."""
    (tmp_path / "slow.py").write_text("""\
import os, signal, socket, time
from workpool.system.channel import Channel

def main(fd, stack_fd, numbers_fd, parent):
    def show(*_):
        os.write(stack_fd, b"title")
        time.sleep(0.2)
        os.write(stack_fd, b" and frames")
        os._exit(0)

    signal.signal(signal.SIGUSR1, show)
    Channel(socket.socket(fileno=fd)).send([b"ready"])
    time.sleep(60)
""")
    monkeypatch.syspath_prepend(tmp_path)
    slow = ChildProcess("slow")
    assert slow.channel.ready(30)
    assert slow.stack(signal.SIGUSR1) == "title and frames"
    slow.kill()


def test_who_has_written_its_stack_ends() -> None:
    found = Child(abs, Limits())
    process = found.runner._current(found.pool.limits)
    assert "in main" in process.stack(STACK_SIGNAL)
    assert process.ended()
    found.runner.leave()
