"""A stand-in for the windows of MPI."""

from __future__ import annotations

import threading
from typing import Any

import pytest


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
