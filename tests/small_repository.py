"""One publisher and some claimants on a window in plain memory, and the tickets of its rows."""

from __future__ import annotations

from workpool import layout
from workpool.extents import Extent
from workpool.layout import NO_BLOB, Descriptor, Geometry
from workpool.protocol import State
from workpool.repository import TAKERS, Claim, Claimant, Miss, Publisher, Row
from workpool.testing import MemoryWindow


class SmallRepository:
    """One publisher and some claimants on a window in plain memory."""

    def __init__(self, rows: int, method: str, workers: int = 2) -> None:
        self.geometry = Geometry(rows, workers + 1, 1 << 20)
        self.window = MemoryWindow(self.geometry.nbytes)
        self.publisher = Publisher(self.window, self.geometry, 0)
        self.claimants = [
            Claimant(self.window, self.geometry, member, TAKERS[method](self.window, workers))
            for member in range(1, workers + 1)
        ]

    def publish(self, *tasks: int) -> list[bool]:
        records = []
        for task in tasks:
            none = Extent(layout.INLINE, 0)
            records.append(layout.write_descriptor(Descriptor(task, 0, *NO_BLOB, *NO_BLOB, *none)))
        self.rows = self.publisher.publish(records)
        return [row is not None for row in self.rows]

    def run(self, claimant: Claimant, limit: int = 4) -> list[int]:
        """Take, claim and complete what there is; return the tasks."""
        found = claimant.take(limit)
        done = []
        for offer in found if not isinstance(found, Miss) else []:
            claim = claimant.claim(offer)
            if isinstance(claim, Claim):
                record = bytearray(layout.OUTCOME_NBYTES)
                assert claimant.complete(claim, record)[0]
                done.append(claim.descriptor[0].task_id)
        return done

    def collect(self) -> int:
        words = self.publisher.look().tolist()
        done = [(i, w) for i, w in enumerate(words) if layout.state_of(w) == State.DONE]
        self.publisher.retire([Row(*row) for row in done])
        return len(done)


def tickets_of(small: SmallRepository) -> list[int]:
    return [small.geometry.ticket(*row) for row in small.rows if row is not None]
