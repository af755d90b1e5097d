"""A row of several tasks in a window in memory, and the batch that runs them."""

from __future__ import annotations

from collections.abc import Callable, Collection

from workpool import layout
from workpool.context import TaskKind
from workpool.contributions import Contributions
from workpool.extents import Extent
from workpool.layout import NOTHING, Geometry
from workpool.repository import TAKERS, Claim, Claimant, Publisher
from workpool.serializer import Kind
from workpool.testing import MemoryWindow
from workpool.worker.batch import BatchRun, Outcomes

TASKS = 40


CALL = "pool", TaskKind.CALL, 7  # what a runner must know of them


class Runner:
    """Tasks that note that they ran; short ones, however busy this machine is."""

    def __init__(self) -> None:
        self.short_ns = 10**12
        self.contributions = Contributions()
        self.ran: list[int] = []
        self.during: Callable[[int], object] = lambda n: None
        self.ahead: list[int] = []  # sent, and not asked for
        self.retracts = True
        self.more = b""  # in the results

    def call(self, pool: str, kind: int, code_id: int, payload: bytes) -> tuple[Kind, bytes]:
        assert (pool, kind, code_id) == CALL
        n = payload[0]
        if self.ahead:
            assert self.ahead.pop(0) == n
        self.ran.append(n)
        self.during(n)
        return Kind.VALUE, payload + self.more

    def send_ahead(self, pool: str, kind: int, code_id: int, payloads: Collection[bytes]) -> None:
        assert (pool, kind, code_id) == CALL
        assert not self.ahead
        self.ahead = [payload[0] for payload in payloads]

    def failure(self, error: BaseException) -> bytes:
        return str(error).encode()

    def retract(self) -> bool:
        if self.retracts:
            self.ahead = []
        return self.retracts


class ClaimedRow:
    """A row of several tasks that is claimed, and what its submitter sees of it."""

    def __init__(self, room: int = 1 << 16, tasks: int = TASKS) -> None:
        self.geometry = Geometry(4, 2, 1 << 20)
        self.window = MemoryWindow(self.geometry.nbytes)
        self.publisher = Publisher(self.window, self.geometry, 0)
        self.claimant = Claimant(self.window, self.geometry, 1, TAKERS["pointer"](self.window, 1))
        record = layout.write_descriptor(
            layout.Descriptor(0, 0, *layout.NO_BLOB, *layout.NO_BLOB, *NOTHING, tasks)
        )
        self.publisher.publish([record])
        (offer,) = self.claimant.take(1)  # type: ignore[misc]
        claim = self.claimant.claim(offer)
        assert isinstance(claim, Claim)
        self.claim = claim
        extent = Extent(self.geometry.region(1).offset, room) if room else NOTHING
        payloads = [bytes([n]) for n in range(tasks)]
        self.runner = Runner()
        self.ran = self.runner.ran
        self.batch = BatchRun(self.claimant, claim, payloads, Outcomes(extent), self.runner, CALL)

    @property
    def word(self) -> int:
        return self.window.load(self.geometry.word(0))

    def run(self, during: Callable[[int], object] = lambda n: None) -> list[int]:
        """Run the tasks; return those whose outcomes are to be committed."""
        self.runner.during = during
        self.batch.run()
        assert not self.runner.ahead, "sent, and neither asked for nor taken back"
        return [content[0] for _, _, content in self.outcomes()]

    def outcomes(self) -> list[tuple[int, int, memoryview]]:
        """Return kind, time and content of the outcomes that are to be committed."""
        content = memoryview(b"".join(self.batch.outcomes.entries))
        assert len(content) == self.batch.outcomes.nbytes
        return layout.read_task_outcomes(content)

    def said(self) -> list[int]:
        """Return the tasks whose outcomes are in the window, as the word says."""
        count = layout.ended_of(self.word)
        if not count:
            return []
        place = layout.read_place(self.publisher.read_record(0))
        said = layout.read_task_outcomes(self.window.copy(*place), count)
        return [content[0] for _, _, content in said]
