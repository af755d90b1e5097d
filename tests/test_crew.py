"""How the driver calls its workers together, each of them a thread here."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace
from typing import Any

import pytest

from workpool.job import control
from workpool.job.control import Callee, Caller, Order
from workpool.job.crew import Crew
from workpool.testing import MemoryWindow


def test_who_has_not_seen_the_end_of_a_call_does_not_miss_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The next call comes as soon as the driver is back: not all orders are collective."""
    windows: list[MemoryWindow] = []

    def allocate(nbytes: int, *_: int) -> MemoryWindow:
        windows.append(MemoryWindow(nbytes))
        windows[-1].memory = windows[0].memory
        return windows[-1]

    def serve() -> None:
        while len(told) < 3:
            if order := callee.look():
                told.append(order)
                callee.report_done()

    def call() -> None:
        for _ in range(3):
            crew.call(Order("stay"), bool)

    slow = SimpleNamespace(pause=lambda: time.sleep(0.05))
    monkeypatch.setattr(control, "Backoff", lambda limit_s: slow)
    group: Any = SimpleNamespace(size=2, rank=1, allocate=allocate)
    rest: Any = SimpleNamespace(state=bool, ring_all=bool, drivers=[], hearts=lambda: None)
    told: list[Order] = []
    crew, callee = Crew(Caller(group), rest, rest, rest, False), Callee(group)
    threads = [threading.Thread(target=target, daemon=True) for target in (serve, call)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert told == [Order("stay")] * 3
    assert not any(thread.is_alive() for thread in threads)
