"""A repository: a table of floats on one rank, to which all others add by exclusive lock.

    mpiexec -n 4 python demos/rma/15_repository.py

Rank 0 gives the memory and takes no part. Each other rank adds contributions of its own to random
elements, one lock for each update, and reads in the same step what was there before. An update is
two calls here: the value grows by the contribution, and a count beside it by one.

exclusive    While one rank has the lock nobody else has one: the two calls are one update. So what
             the ranks found must form one history of each element: in the order of the counts, the
             first found the initial value, and each one the value before plus what was added.
shared       Each Fetch_and_op is atomic all the same, so sums and counts are right (MPI-4.1,
             12.7.1). The pair is not: where another rank comes between, a value does not go with
             its count. How often is printed, not promised; it takes two that update at once.

With one call for each update the lock may as well be shared, and kept: see 16_epochs.py. On MPICH a
Lock is a message that rank 0 must be in MPI to answer, here between two short sleeps, and an update
takes milliseconds; on Open MPI it is an atomic in shared memory.
"""

from __future__ import annotations

import random
import sys
import time
from typing import NamedTuple

import numpy as np
from demonstration import Demonstration
from mpi4py import MPI

REPOSITORY = 0


class Update(NamedTuple):
    """What one rank added to an element, and what it found there."""

    element: int
    count: int  # found
    value: float  # found
    contribution: float
    rank: int


class Repository:
    """Values, and a count for each, in the window of rank `REPOSITORY`."""

    def __init__(self, comm: MPI.Intracomm, elements: int) -> None:
        self.elements = elements
        nbytes = 16 * elements if comm.Get_rank() == REPOSITORY else 0
        self.win = MPI.Win.Allocate(nbytes, 8, comm=comm)
        self._one, self._count = np.ones(1, np.int64), np.zeros(1, np.int64)
        self._contribution, self._value = np.zeros((2, 1))

    def write(self, values: np.ndarray) -> None:
        """Start a new table."""
        counts = np.zeros(self.elements, np.int64)
        self.win.Lock(REPOSITORY, MPI.LOCK_EXCLUSIVE)
        self.win.Put(values, REPOSITORY, 0)
        self.win.Put(counts, REPOSITORY, self.elements)
        self.win.Unlock(REPOSITORY)

    def read(self) -> tuple[np.ndarray, np.ndarray]:
        values, counts = np.zeros(self.elements), np.zeros(self.elements, np.int64)
        self.win.Lock(REPOSITORY, MPI.LOCK_SHARED)  # readers do not disturb each other
        self.win.Get(values, REPOSITORY, 0)
        self.win.Get(counts, REPOSITORY, self.elements)
        self.win.Unlock(REPOSITORY)
        return values, counts

    def add(self, lock: int, element: int, contribution: float) -> tuple[int, float]:
        """Update an element; return the count and the value that were there."""
        self._contribution[0] = contribution
        self.win.Lock(REPOSITORY, lock)
        self.win.Fetch_and_op(self._contribution, self._value, REPOSITORY, element, MPI.SUM)
        self.win.Flush(REPOSITORY)  # first the value, then the count
        count_at = self.elements + element
        self.win.Fetch_and_op(self._one, self._count, REPOSITORY, count_at, MPI.SUM)
        self.win.Unlock(REPOSITORY)  # both are done there, and what they found is here
        return int(self._count[0]), float(self._value[0])


def misfits(updates: list[Update], start: float, end: float) -> int:
    """Return how many updates of one element found what the history by the counts does not say."""
    value, wrong = start, 0
    for count, update in enumerate(sorted(updates, key=lambda each: each.count)):
        wrong += (update.count, update.value) != (count, value)
        value += update.contribution
    return wrong + (value != end)


def fill(
    demo: Demonstration, repository: Repository, lock: int, starts: np.ndarray, updates: int
) -> tuple[list[list[Update]], float]:
    """Let all ranks but one update the table; return each element's updates, and us for one."""
    if demo.rank == REPOSITORY:
        repository.write(starts)
    demo.meet()
    begun = time.perf_counter()
    mine = []
    for i in range(updates if demo.rank != REPOSITORY else 0):
        element, contribution = random.randrange(starts.size), demo.rank + random.randrange(4) / 4
        found = repository.add(lock, element, contribution + (demo.sabotage and i == 0))
        mine.append(Update(element, *found, contribution, demo.rank))
        if random.random() < 0.25:
            time.sleep(50e-6 * random.random())
    took_us = 1e6 * (time.perf_counter() - begun) / updates
    demo.meet()  # rank 0 waits here, and answers requests for locks
    everything = [update for each in demo.comm.allgather(mine) for update in each]
    rows = [[update for update in everything if update.element == i] for i in range(starts.size)]
    return rows, demo.comm.allreduce(took_us, MPI.MAX)


def main() -> int:
    """Fill the table under each kind of lock; check sums and histories on every rank."""
    demo = Demonstration(__doc__)
    demo.parser.add_argument("--elements", type=int, default=3, help="of the table (3)")
    demo.parser.add_argument("--updates", type=int, default=100, help="of each rank (100)")
    options = demo.begin()
    if options.elements < 1 or options.updates < 1:
        demo.parser.error("--elements and --updates: at least 1")
    repository = Repository(demo.comm, options.elements)
    starts = np.arange(options.elements) / 2  # halves and quarters: every sum is exact

    for lock, name in ((MPI.LOCK_EXCLUSIVE, "exclusive"), (MPI.LOCK_SHARED, "shared")):
        rows, took_us = fill(demo, repository, lock, starts, options.updates)
        values, counts = repository.read()
        demo.say(f"{name} lock: {sum(map(len, rows)):,} updates, {took_us:.1f} us each")
        if lock == MPI.LOCK_EXCLUSIVE:
            demo.say("  element   began   updates      ended   and began like this")
            for i, row in enumerate(rows[:8]):
                first = sorted(row, key=lambda update: update.count)[:4]
                steps = "".join(f"  +{u.contribution:.2f} (rank {u.rank})" for u in first)
                demo.say(f"{i:>9}{starts[i]:>8.2f}{len(row):>10}{values[i]:>11.2f} {steps}")
        sums = [starts[i] + sum(u.contribution for u in row) for i, row in enumerate(rows)]
        demo.check("the sums and counts", [*values] == sums and [*counts] == [*map(len, rows)])
        wrong = sum(map(misfits, rows, starts, values))
        if lock == MPI.LOCK_EXCLUSIVE:
            demo.check("what the ranks found is one history of each element", wrong == 0)
            demo.say()
        else:
            demo.say(f"{wrong} updates found a value that does not go with the count they found")
        demo.comm.Barrier()
    repository.win.Free()
    return demo.end(
        "workpool/contributions.py, contribute: tasks add to numbers in the repository's\n"
        "window; one Accumulate each under the epoch that is always open, so it takes no lock"
    )


if __name__ == "__main__":
    sys.exit(main())
