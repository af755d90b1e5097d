"""The verbs of a window: of ours in plain memory, and what is asked of MPI."""

from __future__ import annotations

import math
import os
import sys
import threading
import weakref
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from workpool import layout
from workpool.errors import WindowError
from workpool.layout import Geometry
from workpool.pool.options import ROWS
from workpool.testing import MemoryWindow
from workpool.whole import held


def test_memory_window_takes_the_freedoms_of_mpi() -> None:
    window = MemoryWindow(256)
    source, target = bytearray(b"abcdefgh"), bytearray(8)
    window.put(64, source)
    assert window.memory.read(64, 8) == bytes(8), "a put is not visible before its flush"
    window.flush()
    window.get(64, target)
    assert target != b"abcdefgh", "a get has read nothing before its flush"
    window.flush()
    assert target == b"abcdefgh"
    window.put(64, source)
    source[0] = 0
    with pytest.raises(WindowError, match="changed"):
        window.flush()
    for disp in (-8, 4, 256):
        with pytest.raises(WindowError):
            window.load(disp)
    with pytest.raises(WindowError):
        window.put(250, bytes(8))


def test_buffers_are_held_until_the_flush(monkeypatch: pytest.MonkeyPatch) -> None:
    class Lent(bytearray):
        pass

    class Win:
        def Compare_and_swap(self, *_: Any) -> None:
            raise AssertionError

        def Put(self, given: list[Any], host: int, disp: int) -> None:
            held.append(weakref.ref(given[0].obj))

        def Flush(self, host: int) -> None:
            alive.append([reference() is not None for reference in held])

    monkeypatch.setenv("MPI4PY_RC_INITIALIZE", "false")
    from workpool.rma.window import Window

    held: list[weakref.ref[Any]] = []
    alive: list[list[bool]] = []
    window = Window(Win(), 0, 4096, threading.Lock())  # type: ignore[arg-type]
    window.put(0, Lent(8))
    window.put(64, Lent(8))
    window.flush()
    assert alive == [[True, True]]
    assert [reference() for reference in held] == [None, None]


def test_many_atomics_share_a_flush(monkeypatch: pytest.MonkeyPatch) -> None:
    class Win:
        def Compare_and_swap(
            self, origin: Any, compare: Any, result: Any, host: int, disp: int
        ) -> None:
            under_way.append(disp)
            result[0][0] = words.get(disp, 0)
            if words.get(disp, 0) == compare[0][0]:
                words[disp] = origin[0][0]

        def Flush(self, host: int) -> None:
            flushed.append(len(under_way))
            under_way.clear()

    monkeypatch.setenv("MPI4PY_RC_INITIALIZE", "false")
    from workpool.rma.window import Window
    from workpool.rma.words import BATCH

    under_way: list[int] = []
    flushed: list[int] = []
    words = {8 * i: i for i in range(0, 1000, 2)}
    window = Window(Win(), 0, 8000, threading.Lock())  # type: ignore[arg-type]
    steps = [(8 * i, 0, 1000) for i in range(1000)]
    assert window.compare_and_swap_all(steps) == [0 if i % 2 else i for i in range(1000)]
    assert words == {8 * i: i if i % 2 == 0 and i else 1000 for i in range(1000)}
    assert sum(flushed) == 1000
    assert max(flushed) == BATCH
    for disp in (-8, 4, 8000):
        with pytest.raises(WindowError, match="outside"):
            window.compare_and_swap_all([(0, 1, 2), (disp, 0, 1)])
        with pytest.raises(WindowError, match="outside"):
            window.peek(disp)


class RemoteWin:
    """A stand-in for ``MPI.Win`` that carries everything out, and writes down in which order."""

    def __init__(self, nbytes: int) -> None:
        self.content = bytearray(nbytes)
        self.calls: list[tuple[str, int]] = []  # with the displacement
        self._gets: list[tuple[memoryview, int]] = []

    def Put(self, given: list[Any], host: int, disp: int) -> None:
        self.calls.append(("put", disp))
        self.content[disp : disp + given[1]] = given[0]

    def Get(self, given: list[Any], host: int, disp: int) -> None:
        self.calls.append(("get", disp))
        self._gets.append((given[0].cast("B"), disp))

    def Rget(self, given: list[Any], host: int, disp: int) -> tuple[memoryview, int]:
        self.calls.append(("rget", disp))
        return given[0].cast("B"), disp

    def Accumulate(self, given: list[Any], host: int, disp: int, op: object) -> None:
        self.calls.append(("accumulate", disp))

    def Compare_and_swap(self, origin: Any, compare: Any, answer: Any, host: int, at: int) -> None:
        self.calls.append(("swap", at))
        words = memoryview(self.content).cast("q")
        answer[0][0] = words[at // 8]
        if answer[0][0] == compare[0][0]:
            words[at // 8] = origin[0][0]

    def Flush(self, host: int) -> None:
        self.calls.append(("flush", 0))
        for view, disp in self._gets:
            view[:] = self.content[disp : disp + len(view)]
        self._gets.clear()

    def Sync(self) -> None:
        self.calls.append(("sync", 0))


def remote_window(ours: bool, monkeypatch: pytest.MonkeyPatch) -> tuple[RemoteWin, Any]:
    """Return a window, whose memory is ours or is not, and what it calls."""
    monkeypatch.setenv("MPI4PY_RC_INITIALIZE", "false")
    from workpool.rma.window import Window

    win = RemoteWin(4096)
    memory = memoryview(win.content) if ours else None
    return win, Window(win, 0, 4096, threading.Lock(), memory)  # type: ignore[arg-type]


@pytest.mark.parametrize("ours", [False, True])
def test_bytes_are_there_before_the_words_that_show_them(
    ours: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    win, window = remote_window(ours, monkeypatch)
    assert window.put_and_swap(64, b"content", [(8, 0, 5), (16, 1, 5)]) == [0, 0]
    before = [("sync", 0)] if ours else [("put", 64), ("flush", 0)]
    swaps = [("swap", 8), ("swap", 16), ("flush", 0)]
    assert win.calls == [*before, *swaps]
    assert bytes(win.content[64:72]) == b"content\0"
    assert window.peek(8, 16) == [5, 0]
    win.calls.clear()
    window.accumulate(128, np.ones(1), "sum")
    window.put_and_swap(64, b"other", [(8, 5, 6)])  # and whatever was begun before
    assert ("flush", 0) in win.calls[: win.calls.index(("swap", 8))]
    assert bytes(win.content[64:72]) == b"othernt\0"
    win.calls.clear()
    for disp in (-8, -1, 4090, 4096):
        with pytest.raises(WindowError, match="outside"):
            window.put_and_swap(disp, b"content", [(8, 6, 7)])
        with pytest.raises(WindowError, match="outside"):
            window.get_and_swap(disp, 7, [(8, 6, 7)])
    assert not win.calls
    for place in (-8, 4, 4096):
        with pytest.raises(WindowError, match="outside"):
            window.put_and_swap(64, b"content", [(place, 0, 1)])
        with pytest.raises(WindowError, match="outside"):
            window.get_and_swap(64, 7, [(place, 0, 1)])
    assert window.peek(8) == [6]


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


@pytest.mark.parametrize("buffered", [False, True])
def test_what_is_put_from_a_copy_may_change(
    buffered: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    from workpool.rma import window as window_module

    win, window = remote_window(False, monkeypatch)
    monkeypatch.setattr(window_module, "COPIED_NBYTES", 16)
    given: list[Any] = []
    monkeypatch.setattr(win, "Put", lambda origin, host, disp: given.append(origin[0].obj))
    for nbytes in (16, 17):
        buffer = bytearray(nbytes)
        window.put(64, buffer, buffered)
        assert (given.pop() is buffer) is (not buffered or nbytes > 16)
        # What is not copied has been written before the call returns.
        flushed = win.calls == [("flush", 0)]
        assert flushed is (buffered and nbytes > 16)


@pytest.mark.parametrize("ours", [False, True])
def test_whatever_mpi_refuses_is_an_error_of_the_window(
    ours: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    win, window = remote_window(ours, monkeypatch)
    from workpool.rma.mpi import MPI

    def fail(*_: object) -> None:
        raise MPI.Exception(MPI.ERR_OTHER)

    for call in ("Put", "Get", "Rget", "Accumulate", "Flush", "Sync"):
        monkeypatch.setattr(win, call, fail)
    for enter_s in (0, math.inf):  # a flush, or a sync where we have the memory
        window._enter_s = enter_s
        for call in (
            lambda: window.load(8),
            lambda: window.compare_and_swap_all([(8, 0, 5)]),
            lambda: window.peek(8, 16),
            lambda: window.await_change([7], 8, seconds=1),
            lambda: window.await_change([7], 8, seconds=0),
            lambda: window.put_and_swap(64, b"content", [(8, 0, 5)]),
            lambda: window.get_and_swap(64, 7, [(8, 0, 5)]),
            lambda: window.accumulate(128, np.ones(1), "sum"),
            window.flush,
        ):
            with pytest.raises(WindowError, match="at displacement"):
                call()


@pytest.mark.parametrize("ours", [False, True])
def test_what_is_copied_is_there_at_once(ours: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    win, window = remote_window(ours, monkeypatch)
    window._enter_s = math.inf
    win.content[64:71] = b"content"
    copy = window.copy(64, 7)
    win.content[64:71] = b"changed"
    assert bytes(copy) == b"content"
    assert win.calls == ([] if ours else [("get", 64), ("flush", 0)])
    for disp in (-8, -1, 4090, 4096):
        with pytest.raises(WindowError, match="outside"):
            window.copy(disp, 7)


@pytest.mark.parametrize("ours", [False, True])
def test_a_copy_is_complete_by_the_flush_of_the_swaps(
    ours: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    win, window = remote_window(ours, monkeypatch)
    win.content[64:71] = b"content"
    copy, found = window.get_and_swap(64, 7, [(8, 0, 5), (16, 1, 5)])
    swaps = [("swap", 8), ("swap", 16), ("flush", 0)]
    assert win.calls == [*([] if ours else [("get", 64)]), *swaps]
    assert (bytes(copy), found) == (b"content", [0, 0])
    win.content[64:71] = b"changed"
    assert bytes(copy) == b"content"
    copy, found = window.get_and_swap(4092, 4, [])  # up to the very end
    assert (bytes(copy), found) == (bytes(4), [])


def test_what_is_large_goes_in_pieces_one_flush_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that whoever waits for the lock gets it between two of them."""
    win, window = remote_window(False, monkeypatch)
    from workpool.rma import window as module

    monkeypatch.setattr(module, "PIECE_NBYTES", 1000)
    content, got = os.urandom(2500), bytearray(2500)
    window.put(64, content)
    assert win.calls == [(c, d) for d in (64, 1064, 2064) for c, d in (("put", d), ("flush", 0))]
    window.get(64, got)
    window.flush()
    assert got == content
    assert window.put_and_swap(72, content, [(8, 0, 5)]) == [0]
    copy, found = window.get_and_swap(72, 2500, [(8, 5, 6)])
    assert (bytes(copy), found) == (content, [5])


def test_a_window_of_ones_own_has_the_same_verbs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MPI4PY_RC_INITIALIZE", "false")
    from workpool.rma.own import OwnWindow

    memory = memoryview(bytearray(4096))
    windows = [
        OwnWindow(RemoteWin(0), 0, 4096, threading.Lock(), memory),  # type: ignore[arg-type]
        MemoryWindow(4096),
    ]
    for window in windows:
        assert window.put_and_swap(64, b"content", [(8, 0, 5), (16, 1, 5)]) == [0, 0]
        copy, found = window.get_and_swap(64, 7, [(8, 5, 6), (16, 1, 5)])
        assert (bytes(copy), found) == (b"content", [5, 0])
        assert window.peek(8, 16) == [6, 0]
        with pytest.raises(WindowError):
            window.put_and_swap(4090, b"content", [(8, 6, 7)])
        with pytest.raises(WindowError):
            window.get_and_swap(4090, 7, [(8, 6, 7)])
        assert window.load(8) == 6


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
