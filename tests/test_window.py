"""The verbs of a window: of ours in plain memory, and what is asked of MPI."""

from __future__ import annotations

import math
import os
import threading
import weakref
from functools import partial
from typing import Any

import numpy as np
import pytest
from remote_win import RemoteWin, remote_window

from workpool.errors import WindowError
from workpool.testing import MemoryWindow


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
def test_one_thread_at_a_time_calls_mpi(ours: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    class Win:
        def __getattr__(self, call: str) -> Any:
            return lambda *_: calls.append((call, lock.locked()))

    monkeypatch.setenv("MPI4PY_RC_INITIALIZE", "false")
    from workpool.rma.window import Window

    calls: list[tuple[str, bool]] = []
    lock = threading.Lock()
    memory = memoryview(bytearray(4096)) if ours else None
    window = Window(Win(), 0, 4096, lock, memory)  # type: ignore[arg-type]
    for enter_s in (0, math.inf):  # a flush, or a sync where we have the memory
        for call in (
            lambda: window.load(8),
            lambda: window.compare_and_swap_all([(8, 0, 5)]),
            lambda: window.fetch_add(16, 1),
            lambda: window.peek(8, 16),
            lambda: window.await_change([7], 8, seconds=1),
            lambda: window.put_and_swap(64, b"content", [(8, 0, 5)]),
            lambda: window.get_and_swap(64, 7, [(8, 0, 5)]),
            lambda: window.put(64, b"content"),
            lambda: window.get(64, bytearray(7)),
            lambda: window.copy(64, 7),
            window.flush,
            lambda: window.accumulate(128, np.ones(1), "sum"),
            lambda: window.put_and_swap(64, b"content", [(8, 0, 5)]),
            lambda: window.get_numbers(128, np.ones(1)),
            window.flush,
        ):
            window._enter_s = enter_s
            call()
            assert not lock.locked()
    window.close()
    made = {call for call, _ in calls}
    assert made >= {"Compare_and_swap", "Fetch_and_op", "Accumulate", "Get_accumulate", "Flush"}
    assert made & {"Sync", "Put", "Get"} == ({"Sync"} if ours else {"Put", "Get"})
    assert all(locked for _, locked in calls), calls
    assert [call for call, _ in calls[-2:]] == ["Unlock_all", "Free"]


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
def test_what_is_put_and_got_is_there_after_the_flush(
    ours: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, window = remote_window(ours, monkeypatch)
    numbers, got = np.arange(6, dtype="i4").reshape(2, 3), np.zeros((3, 2), "i4")
    window.put(64, numbers)
    window.flush()
    window.get(64, got)
    window.flush()
    assert got.ravel().tolist() == [*range(6)]
    for disp in (-24, -1, 4080, 4096):
        for call in (window.put, window.get):
            with pytest.raises(WindowError, match="outside"):
                call(disp, got)


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
        assert [window.fetch_add(24, amount) for amount in (2, 0, 1, 0)] == [0, 2, 2, 3]
        numbers = np.ones((2, 2))
        add = partial(window.accumulate, op="sum")
        for step in (add, add, window.get_numbers):
            step(4096 - numbers.nbytes, numbers)
            window.flush()
            for disp in (-8, 4, 4096 - 24):
                with pytest.raises(WindowError):
                    step(disp, numbers)
        assert numbers.tolist() == [[2, 2], [2, 2]]
        for disp in (-8, 4, 4096):
            with pytest.raises(WindowError):
                window.load(disp)
            with pytest.raises(WindowError):
                window.fetch_add(disp, 1)
