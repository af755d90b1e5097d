"""Two workers that only take tickets, up to a tail that does not move."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from workpool import layout
from workpool.layout import Geometry
from workpool.repository import TAKERS, Miss
from workpool.testing import Explorer, Memory, MemoryWindow

from .places import GREEDY, OVER, Port


@dataclass
class Ticketer:
    """Takes tickets, and does nothing with them."""

    method: str
    taken: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.port = Port(range(0))
        self.taker = TAKERS[self.method](self.port, GREEDY)  # type: ignore[arg-type]

    def step(self, window: MemoryWindow, choose: Any) -> bool:
        self.port.window = window
        found = self.taker.take(2)
        self.taken += [] if isinstance(found, Miss) else found
        return not (found is Miss.EMPTY and self.port.over)


def explore_tickets(method: str) -> None:
    """Let two workers take the tickets up to the tail, which does not move."""
    memory, tail = Memory(), 4
    memory.compare_and_swap(layout.TAIL, 0, tail)
    memory.compare_and_swap(OVER, 0, 1)

    def invariant(memory: Memory, processes: dict[str, Any], alive: dict[str, bool]) -> None:
        taken = [ticket for process in processes.values() for ticket in process.taken]
        assert len(taken) == len(set(taken)), f"a ticket was given twice: {sorted(taken)}"
        assert set(taken) <= set(range(tail)), f"tickets beyond the tail: {sorted(taken)}"

    def final(memory: Memory, processes: dict[str, Any], alive: dict[str, bool]) -> None:
        taken = [ticket for process in processes.values() for ticket in process.taken]
        assert sorted(taken) == list(range(tail)), f"of {tail} tickets only {sorted(taken)}"

    workers = {name: Ticketer(method) for name in ("one", "other")}
    Explorer(workers, Geometry(1, 3, 1 << 16).nbytes, invariant, final, memory=memory).run()
