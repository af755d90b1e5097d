"""How the driver calls its workers together, each of them a thread here."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from workpool.errors import ResourceError, WorkerUnreachable
from workpool.job import control
from workpool.job.control import Callee, Caller, Choice, Order
from workpool.job.crew import Crew
from workpool.layout.control import presence
from workpool.members.leases import Gone
from workpool.members.liveness import this_process
from workpool.testing import MemoryWindow


def ranks(size: int) -> Any:
    """Return a group of so many ranks, of which this is the first worker."""
    windows: list[MemoryWindow] = []

    def allocate(nbytes: int, *_: int) -> MemoryWindow:
        windows.append(MemoryWindow(nbytes))
        windows[-1].memory = windows[0].memory
        return windows[-1]

    return SimpleNamespace(size=size, rank=1, allocate=allocate)


def pair(hearts: Callable[[], object], near: bool = True) -> tuple[Crew, Callee]:
    """Return how a driver calls, and its worker is called, perhaps from another host."""
    group = ranks(2)
    here = this_process()
    rest: Any = SimpleNamespace(
        state=bool,
        ring_all=bool,
        drivers=[],
        hearts=hearts,
        members=[here, here],
        near=lambda member: near,
        dead=list,
    )
    return Crew(Caller(group), rest, rest, rest, survive=False, fail=sys.exit), Callee(group)


@contextmanager
def beside(serve: Callable[[], None]) -> Iterator[None]:
    """Have a worker serve meanwhile, in a thread of its own."""
    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield
    thread.join(10)


def pauses(monkeypatch: pytest.MonkeyPatch, pause: Callable[[], object]) -> None:
    """Have something done where a worker waits for its order."""
    monkeypatch.setattr(control, "Backoff", lambda limit_s: SimpleNamespace(pause=pause))


def test_who_has_not_seen_the_end_of_a_call_does_not_miss_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The next call comes as soon as the driver is back: not all orders are collective."""

    def serve() -> None:
        while len(told) < 3:
            if order := callee.look():
                told.append(order)
                callee.report_done()

    def call() -> None:
        for _ in range(3):
            crew.call(Order("stay"), bool)

    pauses(monkeypatch, lambda: time.sleep(0.05))
    told: list[Order] = []
    crew, callee = pair(lambda: None)
    threads = [threading.Thread(target=target, daemon=True) for target in (serve, call)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert told == [Order("stay")] * 3
    assert not any(thread.is_alive() for thread in threads)


def test_who_has_come_goes_on_when_the_driver_is_interrupted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def interrupted() -> None:
        if next(looks):
            raise KeyboardInterrupt

    looks = iter([False, True])  # it has come to the end of the last call, and is called again
    pauses(monkeypatch, lambda: pytest.fail("the driver has gone elsewhere"))
    crew, callee = pair(interrupted)
    with pytest.raises(KeyboardInterrupt):
        crew.call(Order("stay"), bool)
    assert callee.look() == Order("nothing")
    callee.report_done()
    assert callee.look() is None


def test_an_order_whose_step_has_failed_is_not_taken_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who has come is at it by now, and waits for no other order."""

    def serve() -> None:
        while not told:
            if order := callee.look():
                told.append(order)
                callee.report_done()

    def fail() -> None:
        raise MemoryError

    pauses(monkeypatch, lambda: time.sleep(1e-3))
    told: list[Order] = []
    crew, callee = pair(lambda: None)
    with beside(serve), pytest.raises(MemoryError):
        crew.call(Order("stay"), fail)
    assert (told, callee.look()) == ([Order("stay")], None)


def test_a_death_is_reported_though_the_last_step_of_the_dead_is_on_its_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    group = ranks(3)
    caller, dead = Caller(group), Callee(group)
    group.rank = 2
    other = Callee(group)
    came = caller.call()
    dead.window.compare_and_swap(presence(1), 0, came)
    for found in ([0], []):  # what stood there just before; once it is reported, nobody looks
        monkeypatch.setattr(other.window, "load", lambda disp, found=found: found.pop())
        other.report_dead(1)
        assert (caller.reported_dead(), caller.missing(came)) == ([1], [2])


@pytest.mark.parametrize("fails_too", [True, False])
@pytest.mark.parametrize("error", [ResourceError("no memory"), MemoryError()])
def test_a_step_that_fails_for_the_driver_alone_ends_the_job(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    error: Exception,
    fails_too: bool,
) -> None:
    """Its workers would wait for it in MPI for ever."""

    def serve() -> None:
        while callee.look() is None:
            time.sleep(0)
        if fails_too:
            callee.report_done()

    def fail() -> None:
        raise error

    monkeypatch.setattr("workpool.job.crew.FAILED_S", 10 if fails_too else 0.1)
    crew, callee = pair(lambda: None)
    with beside(serve), pytest.raises(type(error) if fails_too else SystemExit):
        crew.call(Order("open"), fail)
    said = f"{str(error) or 'MemoryError'}; other ranks still wait"
    assert (said in capsys.readouterr().err) is not fails_too


def test_a_step_that_cannot_be_watched_is_not_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the workers would begin it, and wait in MPI for a driver that has not."""

    def fail(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    def serve() -> None:
        while not told:
            if order := callee.look():
                told.append(order)
                callee.report_done()

    told: list[Order] = []
    crew, callee = pair(lambda: None, near=False)
    monkeypatch.setattr("workpool.job.crew.VitalThread.start", fail)
    with beside(serve), pytest.raises(RuntimeError, match="start new thread"):
        crew.call(Order("open"), lambda: pytest.fail("it was begun"))
    assert told == [Order("nothing")]


@pytest.mark.parametrize("opened", [True, False])
def test_a_host_that_falls_silent_while_a_table_is_opened_ends_the_job(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], opened: bool
) -> None:
    """The other workers may wait for it in MPI for ever, where they make a communicator."""

    def serve() -> None:
        while callee.look() is None:
            time.sleep(0)
        if opened:
            time.sleep(0.1)
            callee.report_done()

    monkeypatch.setattr("workpool.job.crew.STEP_S", 10 if opened else 0.1)
    crew, callee = pair(lambda: None, near=False)
    with beside(serve), nullcontext() if opened else pytest.raises(SystemExit, match="1"):
        crew.call(Order("open"), bool)
    assert crew.control.missing(crew.control.obeyed) == [1] * (not opened)
    assert ("has not opened a table within 0.1 s" in capsys.readouterr().err) is not opened


@pytest.mark.parametrize("of_others", [True, False])
@pytest.mark.parametrize("near", [True, False])
def test_a_host_that_is_cut_off_and_serves_no_table_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    near: bool,
    of_others: bool,
) -> None:
    """It has no task: a worker that does not come is stopped, or its host is gone."""

    def serve() -> None:
        while callee.look() is None:
            time.sleep(0.5)
        callee.report_done()

    monkeypatch.setattr("workpool.job.crew.STEP_S", 0.1)
    monkeypatch.setattr("workpool.job.crew.LATE_S", 0.0)
    table = Choice(0, 8, 0, "pointer", 0, 3.0), SimpleNamespace(due=lambda: False)
    crew, callee = pair(lambda: table if of_others else None, near)
    if near:
        with beside(serve):
            time.sleep(0.2)
            crew.call(Order("stay"), bool)
    else:
        with pytest.raises(WorkerUnreachable, match="has not been heard of"):
            crew.call(Order("stay"), bool)
    assert capsys.readouterr().err.count("waits until each has ended its task") == 1


def test_a_worker_that_is_not_heard_of_any_more_is_not_waited_for() -> None:
    def gone(members: list[int]) -> dict[int, Gone]:
        asked.append(members)
        return {1: Gone.SILENT} if len(asked) > 1 else {1: Gone.STOPPED}

    asked: list[list[int]] = []
    dues = iter([False, True, True])
    leases = SimpleNamespace(due=lambda: next(dues), gone=gone)
    crew, _ = pair(lambda: (Choice(1, 8, 0, "pointer", 0, 3.0), leases))
    with pytest.raises(WorkerUnreachable, match="has not been heard of for 3 s"):
        crew.call(Order("stay"), bool)
    assert asked == [[1], [1]]


def test_a_step_that_does_not_end_where_a_host_may_be_cut_off_ends_the_job(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("workpool.job.crew.STEP_S", 0.1)
    monkeypatch.setattr("workpool.job.crew.LOOK_S", 0.01)
    failed = threading.Event()
    crew, _ = pair(bool, near=False)
    crew._fail = failed.set  # type: ignore[assignment]
    with crew._watched():
        assert failed.wait(10)
    assert "has not ended within 0.1 s" in capsys.readouterr().err
