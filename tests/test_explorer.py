"""The explorer: what shares a flush happens in any order, and what has no end is given up."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

import pytest

from workpool.testing import Explorer, Found, Memory, MemoryWindow, walk

FIRST, SECOND = 0, 64


@dataclass
class Writer:
    def step(self, window: MemoryWindow, choose: object) -> bool:
        window.compare_and_swap_all([(FIRST, 0, 1), (SECOND, 0, 1)])
        return False


@dataclass
class Reader:
    seen: tuple[int, int] | None = None

    def step(self, window: MemoryWindow, choose: object) -> bool:
        second = window.load(SECOND)
        self.seen = second, window.load(FIRST)
        return False


@pytest.mark.parametrize("ordered", [False, True])
def test_the_second_of_two_atomics_may_be_seen_first(ordered: bool) -> None:
    seen = set()

    def final(memory: Memory, processes: dict[str, Any], alive: dict[str, bool]) -> None:
        seen.add(processes["reader"].seen)

    processes = {"writer": Writer(), "reader": Reader()}
    Explorer(processes, 128, lambda *_: None, final, ordered=ordered).run()
    assert seen == {(0, 0), (0, 1), (1, 1)} | (set() if ordered else {(1, 0)})


@dataclass
class Endless:
    def step(self, window: MemoryWindow, choose: object) -> bool:
        window.fetch_add(FIRST, 1)
        return True


def test_what_has_no_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    case = Explorer({"endless": Endless()}, 128, lambda *_: None, lambda *_: None, most=50)
    with pytest.raises(Found, match="more than 50 states: make the case smaller"):
        case.run()
    monkeypatch.setattr(sys.modules[walk.__module__], "MOST", 60)
    with pytest.raises(Found, match="no end after 60 calls"):
        walk(case, seed=1)
