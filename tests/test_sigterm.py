"""What a journal makes of SIGTERM as long as it is open, without a job."""

from __future__ import annotations

import atexit
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from workpool.job.drain import Drain, Terminated, leave
from workpool.job.runtime import Runtime
from workpool.system.status import UNFINISHED, Ending, Reporter


@pytest.fixture(autouse=True)
def usual() -> Iterator[None]:
    """Have SIGTERM be as the launcher's driver has it."""
    before = signal.signal(signal.SIGTERM, leave)
    yield
    signal.signal(signal.SIGTERM, before)


def drain_of(announced: list[float]) -> Drain:
    return Drain(list, announced.append, lambda status: None)


def test_a_handler_of_the_programs_own_stays_where_it_is() -> None:
    def own(signum: int, frame: object) -> None: ...

    announced: list[float] = []
    drain = drain_of(announced)
    signal.signal(signal.SIGTERM, own)
    for change in (lambda: drain.open(1.0), drain.close):
        change()
        assert signal.getsignal(signal.SIGTERM) is own
    assert not announced


@pytest.mark.parametrize("before", [signal.SIG_DFL, leave])
def test_a_drain_takes_as_long_as_the_journals_that_are_open_want(before: object) -> None:
    announced: list[float] = []
    drain = drain_of(announced)
    signal.signal(signal.SIGTERM, before)  # type: ignore[arg-type]
    for several in ([300, 20], [1]):
        for drain_s in several:
            drain.open(drain_s)
        for _ in several:
            assert signal.getsignal(signal.SIGTERM) == drain._signalled
            drain.close()
        assert signal.getsignal(signal.SIGTERM) is before
    assert announced == [300, 300, 0, 1, 0]


def test_journals_of_other_threads() -> None:
    """These cannot set a handler: they make none, and the main thread's goes on."""

    def elsewhere(step: object, *args: float) -> None:
        thread = threading.Thread(target=step, args=args)
        thread.start()
        thread.join()

    announced: list[float] = []
    drain = drain_of(announced)
    elsewhere(drain.open, 5)
    assert signal.getsignal(signal.SIGTERM) is leave
    drain.open(1)
    drain.close()
    elsewhere(drain.close)
    assert announced == [5]
    with pytest.raises(Terminated):
        signal.raise_signal(signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) is leave
    drain.open(2)  # by a program that goes on
    assert signal.getsignal(signal.SIGTERM) == drain._signalled
    assert announced == [5, 2]
    drain.close()


def test_a_journal_that_cannot_be_prepared_for_is_not_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The next one finds a thread, or its program would end without a drain."""

    def fail(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    drain = drain_of([])
    job: Any = SimpleNamespace(entered=False, lock=nullcontext(), _drain=drain, _staying=True)
    with monkeypatch.context() as patch:
        patch.setattr("workpool.job.drain.VitalThread.start", fail)
        with pytest.raises(RuntimeError):
            Runtime.journal_opened(job, 1)
    assert signal.getsignal(signal.SIGTERM) is leave
    Runtime.journal_opened(job, 1)
    assert signal.getsignal(signal.SIGTERM) == drain._signalled
    drain.close()
    assert signal.getsignal(signal.SIGTERM) is leave


def test_who_sends_it_to_all_processes_or_several_times_ends_the_program_once() -> None:
    def drivers() -> list[Any]:
        """Be what still runs, in another thread."""
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)
        early.append(gone.wait(0.2))
        return []

    def receive() -> None:
        try:
            signal.raise_signal(signal.SIGTERM)
            time.sleep(10)  # it is told to leave while it waits
        finally:
            gone.set()

    early: list[bool] = []
    gone = threading.Event()
    drain = Drain(drivers, lambda drain_s: None, lambda status: None)
    drain.open(0)
    with pytest.raises(SystemExit) as left:
        receive()
    assert left.value.code == UNFINISHED
    assert early == [False]
    drain.close()
    signal.raise_signal(signal.SIGTERM)
    drain.ended()


def test_the_status_is_told_before_a_signal_that_comes_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ours, theirs = os.pipe()
    genuine = os.write

    def write(fd: int, line: bytes) -> int:
        signal.raise_signal(signal.SIGTERM)
        return genuine(fd, line)

    monkeypatch.setattr(atexit, "register", bool)
    reporter = Reporter()
    reporter._line = theirs
    reporter._ending = Ending(3, failed=False)
    monkeypatch.setattr(os, "write", write)

    def at_exit() -> None:
        reporter._tell()
        time.sleep(0)  # a step in which it may come

    with pytest.raises(Terminated):
        at_exit()
    reporter._let_go()
    assert os.read(ours, 100) == b"3 0\n"
    os.close(ours)
