"""A driver on a window in memory, step by step."""

from __future__ import annotations

from collections.abc import Callable

from workpool import layout
from workpool.context import Context, TaskKind
from workpool.driver.driver import Driver
from workpool.layout import Geometry
from workpool.members.doorbell import Doorbells
from workpool.repository import TAKERS, Claim, Claimant, Miss
from workpool.serializer import Encoded, Kind
from workpool.tasks import Finished, PoolContext, Tally, Task
from workpool.testing import MemoryWindow

#: An outcome that stands in the record itself, so that its worker waits for no room.
NOTHING_TO_FETCH = layout.write_outcome(Kind.VALUE, 5, layout.INLINE, 0).ljust(
    layout.OUTCOME_NBYTES, b"\0"
)


def nothing(*_: object) -> None:
    pass


def pool(
    resolve: Callable[[Finished], object] = nothing, tally: Tally | None = None
) -> PoolContext:
    """Return a pool whose outcomes go to `resolve`."""
    context = Context(1, None, b"")
    return PoolContext(1, context, resolve, nothing, tally or Tally())  # type: ignore[arg-type]


class Table:
    """A table: its driver, and a worker that does one step when it is told to."""

    def __init__(
        self, context: PoolContext | None = None, rows: int = 8, shared: bool = True
    ) -> None:
        self.context = context or pool()
        self.geometry = geometry = Geometry(rows, 2, 1 << 20)
        self.window = window = MemoryWindow(geometry.nbytes)
        window.shared = shared
        self.driver = Driver(window, geometry, None, Doorbells({}))
        self.worker = Claimant(window, geometry, 1, TAKERS["pointer"](window, 1))

    def submit(self, number: int, payload: Encoded = b"") -> Task:
        task = Task(number, TaskKind.CALL, abs, self.context, payload, None)
        self.driver.submit(task, None)
        return task

    def claim(self) -> Claim:
        found = self.worker.take(1)
        assert not isinstance(found, Miss)
        claim = self.worker.claim(found[0])
        assert isinstance(claim, Claim)
        return claim

    def end_one(self, record: bytes = NOTHING_TO_FETCH) -> None:
        self.worker.complete(self.claim(), record)
