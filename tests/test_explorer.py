"""What shares a flush happens in any order in the explorer, or in the one in which it is given."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from workpool.testing import Explorer, Memory, MemoryWindow

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
