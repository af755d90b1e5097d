"""Items of a range are handed out once, and never after their counter was taken back."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from model import Port

from workpool import layout
from workpool.layout import Geometry, Items
from workpool.repository import Counters, take_items
from workpool.testing import Explorer, Found, Memory, MemoryWindow

pytestmark = pytest.mark.model

SHAPE = Geometry(1, 4, 1 << 16)
TOTAL = 2
PLACES = (layout.HEAD, layout.TAIL)  # where takers find out what is lent: one more than its base
OVER = layout.TAIL + layout.WORD_NBYTES  # 1 when the first items have been taken back


@dataclass
class Lender:
    """Lends the one counter twice; may withdraw what is left before it takes it back."""

    rounds: int = 0
    lent: Items | None = None
    withdrawn: list[tuple[int, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.port = Port(range(0))
        self.counters = Counters(self.port, SHAPE)  # type: ignore[arg-type]

    def step(self, window: MemoryWindow, choose: Any) -> bool:
        self.port.window = window
        if self.lent is None:
            self.lent = self.counters.lend(TOTAL, ())
            assert self.lent is not None
            window.compare_and_swap(PLACES[self.rounds], 0, 1 + self.lent.base)
            return True
        if choose(2):
            left = take_items(window, SHAPE, self.lent, TOTAL)
            self.withdrawn += [(self.rounds, item) for item in left]
        self.counters.take_back(self.lent)
        window.compare_and_swap(OVER, 0, 1)
        self.lent = None
        self.rounds += 1
        return self.rounds < len(PLACES)


@dataclass
class Taker:
    """Takes items of one lending, as long as there are any."""

    number: int
    items: Items | None = None
    ran: list[tuple[int, int]] = field(default_factory=list)

    def step(self, window: MemoryWindow, choose: Any) -> bool:
        if self.items is None:
            base = window.load(PLACES[self.number]) - 1
            self.items = Items(0, base, TOTAL) if base >= 0 else None
            return True
        taken = take_items(window, SHAPE, self.items, 1)
        self.ran += [(self.number, item) for item in taken]
        return bool(taken)


def watch(process: Any, memory: Memory, op: Any) -> None:
    if isinstance(process, Taker) and op[0] == "fetch_add" and process.items is not None:
        left = memory.word(SHAPE.counter(0)) - process.items.base < TOTAL
        late = process.number == 0 and memory.word(OVER)
        assert not (late and left), "an item is handed out after its counter was taken back"


def explore() -> Any:
    def invariant(memory: Memory, processes: dict[str, Any], alive: dict[str, bool]) -> None:
        lender, *takers = processes.values()
        taken = lender.withdrawn + [item for taker in takers for item in taker.ran]
        assert len(taken) == len(set(taken)), f"an item was handed out twice: {sorted(taken)}"

    def final(memory: Memory, processes: dict[str, Any], alive: dict[str, bool]) -> None:
        assert processes["lender"].rounds == len(PLACES)

    processes = {
        "lender": Lender(),
        "first": Taker(0),
        "another of the first": Taker(0),
        "second": Taker(1),
    }
    return Explorer(processes, SHAPE.nbytes, invariant, final, watch=watch).run()


def test_every_item_is_handed_out_once() -> None:
    report = explore()
    assert report.states > 1_000, report


def test_a_counter_that_is_not_exhausted_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Counters, "take_back", lambda self, items: self._lent.pop(items.counter))
    with pytest.raises(Found, match="after its counter was taken back"):
        explore()


def test_a_counter_that_starts_anew_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def lend(self: Counters, total: int, known: object) -> Items:
        place = SHAPE.counter(0)
        self._window.fetch_add(place, -self._window.fetch_add(place, 0))
        items = self._lent[0] = Items(0, 0, total)
        return items

    monkeypatch.setattr(Counters, "lend", lend)
    with pytest.raises(Found, match="after its counter was taken back"):
        explore()
