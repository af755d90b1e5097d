"""Two workers that take tickets, or claim the row of the next one, while the tail moves.

A row is a word that is 1 when somebody has claimed it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from workpool import layout
from workpool.layout import Geometry
from workpool.repository import TAKERS, Miss
from workpool.testing import Explorer, Memory, MemoryWindow
from workpool.testing.memory import Op

from .places import GREEDY, OVER, Choose, Port

SHAPE = Geometry(4, 3, 1 << 16)

#: Where the tail is at first, and where it ends.  By the counter a worker may hold two tickets when
#: half of four are published; by the pointer that takes several times as long, and shows no more.
TAILS = {"pointer": (1, 3), "counter": (2, 4)}


@dataclass
class Ticketer:
    """Takes tickets and claims rows, and does nothing with them."""

    method: str
    taken: list[int] = field(default_factory=list)
    claimed: list[int] = field(default_factory=list)  # of which it may not have the tickets

    def __post_init__(self) -> None:
        self.port = Port(range(layout.HEAD, SHAPE.word(0)))
        self.taker = TAKERS[self.method](self.port, GREEDY)  # type: ignore[arg-type]

    @property
    def found(self) -> list[int]:
        """All tickets whose rows it has claimed, or may claim."""
        return [*self.taken, *self.claimed]

    def step(self, window: MemoryWindow, choose: Choose) -> bool:
        self.port.window = window
        if self._claim(window, choose):
            return True
        found = self.taker.take(2)
        self.taken += [] if isinstance(found, Miss) else found
        return not (found is Miss.EMPTY and self.port.over)

    def _claim(self, window: MemoryWindow, choose: Choose) -> bool:
        """Claim the next row, as ``seize``, and perhaps move the pointer, as ``complete``."""
        first = self.taker.first
        if first < 0 or not choose(2) or self.taker.quiet(*self.port.peek(layout.TAIL)):
            return False
        if window.compare_and_swap(SHAPE.word(first), 0, 1) == 0:
            self.claimed.append(first)
        self.taker.pass_first()
        if self.taker.owed is not None and choose(2):
            self.taker.pay(window.compare_and_swap(*self.taker.owed))
        return True


@dataclass
class Publisher:
    """Publishes the last rows together, and no more."""

    begin: int
    end: int

    def step(self, window: MemoryWindow, choose: Choose) -> bool:
        window.compare_and_swap(layout.TAIL, self.begin, self.end)
        window.compare_and_swap(OVER, 0, 1)
        return False


def explore_tickets(method: str) -> None:
    """Let two workers take the tickets up to the tail."""
    begin, end = TAILS[method]
    memory = Memory()
    memory.compare_and_swap(layout.TAIL, 0, begin)
    workers = {name: Ticketer(method) for name in ("one", "other")}

    def watch(process: object, memory: Memory, op: Op) -> None:
        if op[:2] == ("compare_and_swap", layout.HEAD) and memory.word(layout.HEAD) == op[2]:
            assert op[2] < op[3], f"HEAD goes from {op[2]} to {op[3]}"

    def invariant(memory: Memory, processes: dict[str, Any], alive: dict[str, bool]) -> None:
        taken = [ticket for name in workers for ticket in processes[name].taken]
        assert len(taken) == len(set(taken)), f"a ticket was given twice: {sorted(taken)}"
        assert set(taken) <= set(range(memory.word(layout.TAIL))), (
            f"tickets beyond the tail: {sorted(taken)}"
        )

    def final(memory: Memory, processes: dict[str, Any], alive: dict[str, bool]) -> None:
        found = {ticket for name in workers for ticket in processes[name].found}
        assert found == set(range(end)), f"of {end} tickets only {sorted(found)}"
        head = memory.word(layout.HEAD)
        assert head == (end if method == "pointer" else 0), f"HEAD is left at {head}"

    everybody = workers | {"publisher": Publisher(begin, end)}
    Explorer(everybody, SHAPE.nbytes, invariant, final, watch=watch, memory=memory).run()
