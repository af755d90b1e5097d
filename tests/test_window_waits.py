"""How a window is looked at by who waits, and kept moving by who is waited for."""

from __future__ import annotations

import math
import os
import sys
import threading
from types import SimpleNamespace

import pytest
from remote_win import remote_window

from workpool import layout
from workpool.errors import WindowError
from workpool.layout import Geometry
from workpool.pool.options import ROWS
from workpool.whole import held


def test_who_awaits_a_change_looks_until_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def others() -> None:
        nonlocal now
        now += 1
        waited.append(len(win.calls))
        if len(waited) == 3:
            memoryview(win.content).cast("q")[2] = 7

    waited: list[int] = []
    now = 0
    monkeypatch.setattr(os, "sched_yield", others)
    win, window = remote_window(True, monkeypatch)
    monkeypatch.setattr("workpool.rma.words.monotonic", lambda: now)
    window._enter_s = math.inf
    assert window.await_change([0, 0], 8, 16, seconds=5) == [0, 7]
    assert waited == [0, 0, 0]
    assert win.calls == [("sync", 0)]  # nothing that is read from here on is older
    assert window.await_change([0, 7], 8, 16, seconds=5) == [0, 7]
    assert len(waited) == 8
    for seen, seconds in (([], 5), ([7, 0], 5), ([0, 7], 0)):
        assert window.await_change(seen, 8, 16, seconds=seconds) == [0, 7]
    assert len(waited) == 8
    for disp in (-8, 4, 4096):
        with pytest.raises(WindowError, match="outside"):
            window.await_change([0], disp, seconds=1)


def test_over_a_network_a_look_is_a_get(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_yield", lambda: 1 / 0)
    win, window = remote_window(False, monkeypatch)
    assert window.await_change([0, 0], 8, 16, seconds=5) == [0, 0]
    assert win.calls == [("get", 8), ("get", 16), ("flush", 0)]


def test_who_has_nothing_to_do_sleeps_until_the_answer_comes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """MPI may read into the words until then, whatever comes between."""
    from workpool.rma import glance

    class Interrupted(Exception):
        pass

    def test_all(requests: list[tuple[memoryview, int]]) -> bool:
        assert window._lock.locked()
        asked.append(len(requests))
        done = len(asked) % looks == 0
        for view, disp in requests if done else ():
            view[:] = win.content[disp : disp + len(view)]
        return done

    def rest(seconds: float) -> None:
        assert not window._lock.locked(), "the heart wants it"
        rests.append(seconds)
        if len(rests) == 3:
            raise Interrupted

    asked, rests, looks = list[int](), list[float](), 3
    win, window = remote_window(False, monkeypatch)
    mpi = SimpleNamespace(
        Request=SimpleNamespace(Testall=test_all), INT64_T=None, Exception=glance.MPI.Exception
    )
    monkeypatch.setattr(glance, "MPI", mpi)
    monkeypatch.setattr(glance, "sleep", rest)
    words = memoryview(win.content).cast("q")
    words[1:4] = memoryview(bytes(range(24))).cast("q")
    assert window.await_change([0], 8, 16, seconds=0) == words[1:3].tolist()
    assert win.calls == [("rget", 8), ("rget", 16)]
    assert rests == [glance.FIRST_S, 2 * glance.FIRST_S]
    with pytest.raises(Interrupted):
        window.await_change([0], 8, 16, seconds=0)
    assert window.await_change([0], 24, seconds=0) == [words[3]]
    assert asked == [2] * 6 + [1] * 3, "first what was cut off"
    for disp in (-8, 4, 4096):
        with pytest.raises(WindowError, match="outside"):
            window.await_change([0], disp, seconds=0)
    del rests[2:]
    with pytest.raises(Interrupted):
        window.await_change([0], 24, seconds=0)
    for call in "Unlock_all", "Free":
        monkeypatch.setattr(win, call, lambda: ends.append(len(asked)), raising=False)
    ends, looks = list[int](), 20
    window.close()
    assert ends == [20, 20], "what was cut off has ended before the window does"
    assert rests[-1] == max(rests) == glance.LONGEST_S


def test_who_is_needed_inside_mpi_looks_for_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    """The step for whose end it waits waits itself for each time that it is there."""

    def others() -> None:
        nonlocal now
        now += 1

    now = 0
    win, window = remote_window(False, monkeypatch)
    monkeypatch.setattr(os, "sched_yield", others)
    monkeypatch.setattr("workpool.rma.words.monotonic", lambda: now)
    window._ticker = SimpleNamespace()  # type: ignore[assignment]
    assert window.await_change([0], 8, seconds=2) == [0]
    looks = win.calls.count(("flush", 0))
    assert looks > 2 * 5
    for seen, seconds in (([7], 2), ([0], 0)):
        assert window.await_change(seen, 8, seconds=seconds) == [0]
    assert win.calls.count(("flush", 0)) == looks + 2


def test_who_is_needed_inside_mpi_enters_it_with_each_look_at_its_own_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    win, window = remote_window(True, monkeypatch)
    window._ticker = SimpleNamespace()  # type: ignore[assignment]
    for _ in range(3):
        assert window.peek(8) == [0]
    assert win.calls == [("flush", 0)] * 3


def test_who_keeps_mpi_moving_looks_often_whatever_is_going_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And seldom when there are only hearts that beat."""
    monkeypatch.setenv("MPI4PY_RC_INITIALIZE", "false")
    from workpool.rma import group, ticker

    geometry = Geometry(ROWS, 100, 1 << 20)
    assert geometry.watched_nbytes <= group.WATCHED_NBYTES
    memory = bytearray(geometry.table_nbytes)
    thread = ticker.Ticker(memoryview(memory)[: geometry.watched_nbytes], threading.Lock())
    pauses: list[float] = []
    changing = [layout.HEAD, geometry.word(ROWS - 1), geometry.counter(ROWS - 1)]

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        turn = len(pauses)
        memory[geometry.beat(turn % 100)] += 1
        if turn % 500 == 0:
            assert seconds == thread.LONGEST_S
            thread._stopped = not changing
            if changing:
                memory[changing.pop()] += 1
        elif turn % 500 == 1:
            assert seconds == thread.SHORTEST_S

    monkeypatch.setattr(ticker, "enter", lambda: None)
    monkeypatch.setattr(ticker, "sleep", sleep)
    thread._run()
    assert len(pauses) == 2000


def test_who_keeps_mpi_moving_is_in_the_middle_of_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """A finalizer that comes there would wait for the lock of its own thread."""
    monkeypatch.setenv("MPI4PY_RC_INITIALIZE", "false")
    from workpool.rma import Window, ticker

    lock = threading.Lock()
    thread = ticker.Ticker(memoryview(b""), lock)
    window = Window(SimpleNamespace(Compare_and_swap=bool), 0, 0, lock)  # type: ignore[arg-type]
    met: list[bool] = []

    def enter() -> None:
        met.extend([window.entered(), held(sys._getframe())])
        thread._stopped = True

    monkeypatch.setattr(ticker, "enter", enter)
    thread._run()
    assert met == [True, True]
