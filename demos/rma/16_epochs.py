"""The same count under five access epochs, and a rank that waits for it by looking now and then.

    mpiexec -n 4 python demos/rma/16_epochs.py
    mpiexec -n 4 python demos/rma/16_epochs.py --longest-us 2000      rank 0 sleeps longer

Every rank but 0 adds one to a counter of rank 0, again and again, by Fetch_and_op. What completes
it, so that the number it returns may be used, differs (MPI-4.1, 12.5.3 and 12.5.4):

exclusive lock for each   Unlock completes. One rank at a time has access.
shared lock for each      The same with many at a time. It can replace the exclusive one because
                          Fetch_and_op is atomic by itself (12.7.1); a Get and a Put are not.
shared lock kept          The epoch lasts, and a flush completes. Flush_local is enough for the
                          number to be here; that the counter has changed is settled by Flush, or
                          by the Unlock in the end.
Lock_all kept             A shared lock on every rank of the window, for programs with many targets.

Rank 0 waits until all have counted. It looks by Fetch_and_op with NO_OP, which is an atomic read,
completes each look as the others do, and sleeps between two, a little longer each time. How long
is felt by the others on MPICH, where a Lock is a message that its target must be in MPI to answer:
an update with a lock of its own takes 0.3 to 10 ms, one in an epoch that is kept 2 us. On Open MPI
a lock is an atomic in shared memory, and all of them take 1 to 2 us.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from demonstration import Demonstration, wait_until
from mpi4py import MPI

HOST = 0  # the rank with the counter, which waits


class Epoch(NamedTuple):
    """When an access epoch is opened and closed, and what completes an operation in it."""

    open: Callable[[], object]
    before: Callable[[], object]
    after: Callable[[], object]
    close: Callable[[], object]


def epochs(win: MPI.Win) -> dict[str, Epoch]:
    """Return the ways to access a window."""

    def nothing() -> None:
        pass

    def exclusive() -> None:
        win.Lock(HOST, MPI.LOCK_EXCLUSIVE)

    def shared() -> None:
        win.Lock(HOST, MPI.LOCK_SHARED)

    def unlock() -> None:
        win.Unlock(HOST)

    def flush() -> None:
        win.Flush(HOST)

    def flush_local() -> None:
        win.Flush_local(HOST)

    return {
        "exclusive lock for each": Epoch(nothing, exclusive, unlock, nothing),
        "shared lock for each": Epoch(nothing, shared, unlock, nothing),
        "shared lock kept, Flush_local": Epoch(shared, nothing, flush_local, unlock),
        "shared lock kept, Flush": Epoch(shared, nothing, flush, unlock),
        "Lock_all kept, Flush": Epoch(win.Lock_all, nothing, flush, win.Unlock_all),
    }


class Counter:
    """One int64 in the window of rank `HOST`."""

    def __init__(self, comm: MPI.Intracomm) -> None:
        self.win = MPI.Win.Allocate(8 if comm.Get_rank() == HOST else 0, 8, comm=comm)
        self._amount, self._old = np.zeros((2, 1), np.int64)
        self.looks = 0

    def reset(self) -> None:
        self.looks = 0
        self._amount[0] = 0
        self.win.Lock(HOST, MPI.LOCK_EXCLUSIVE)
        self.win.Put(self._amount, HOST)
        self.win.Unlock(HOST)

    def add(self, epoch: Epoch, amount: int) -> int:
        self._amount[0] = amount
        epoch.before()
        self.win.Fetch_and_op(self._amount, self._old, HOST, 0, MPI.SUM)
        epoch.after()  # the old number is here only now
        return int(self._old[0])

    def look(self, epoch: Epoch) -> int:
        self.looks += 1
        epoch.before()
        self.win.Fetch_and_op(self._amount, self._old, HOST, 0, MPI.NO_OP)
        epoch.after()
        return int(self._old[0])


def main() -> int:
    """Count under each epoch; check what every rank was told, and print the times."""
    demo = Demonstration(__doc__)
    demo.parser.add_argument("--updates", type=int, default=100, help="of each rank (100)")
    demo.parser.add_argument("--longest-us", type=int, default=200, help="sleep of rank 0 (200)")
    options = demo.begin()
    if options.updates < 1 or options.longest_us < 1:
        demo.parser.error("--updates and --longest-us: at least 1")
    counter = Counter(demo.comm)
    total = options.updates * (demo.size - 1)

    demo.say(f"{total} updates                     us each: median     mean   looks of rank 0")
    right = {}
    for name, epoch in epochs(counter.win).items():
        if demo.rank == HOST:
            counter.reset()
        demo.meet()
        epoch.open()
        mine = []
        if demo.rank == HOST:
            longest_s = 1e-6 * options.longest_us
            wait_until(lambda e=epoch: counter.look(e) >= total, "the count", longest_s)
        else:
            for i in range(options.updates):
                begun = time.perf_counter()
                old = counter.add(epoch, 1 + (demo.sabotage and i == 0))
                mine.append((old, 1e6 * (time.perf_counter() - begun)))
        epoch.close()
        demo.meet()
        old, us = np.array([each for part in demo.comm.allgather(mine) for each in part]).T
        right[name] = np.array_equal(np.sort(old), np.arange(total))
        median, mean = np.median(us), us.mean()
        demo.say(f"{name:<32}{median:>16.1f}{mean:>9.1f}{counter.looks:>18}")
    demo.say()
    for name, fine in right.items():
        demo.check(f"{name}: every number from 0 to {total - 1} returned once", fine)
    counter.win.Free()
    return demo.end(
        "workpool/rma/group.py, Group.allocate: one Lock_all for the window's whole life, then\n"
        "rma/words.py, Words.fetch_add with Flush; workpool/backoff.py is how its ranks wait"
    )


if __name__ == "__main__":
    sys.exit(main())
