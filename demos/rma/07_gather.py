"""Gather without a gather: every rank gets the table from one rank's window, under a lock.

    mpiexec -n 4 python demos/rma/07_gather.py
    mpiexec -n 4 python demos/rma/07_gather.py --hold-ms 100

Every rank puts its row into a table on rank 0. Rows do not overlap, so nobody needs to keep the
others away: shared locks do. When all rows are there (a barrier says so), every rank gets the whole
table, first under an exclusive lock, then under a shared one, and keeps the lock for a while as if
it had more to do there.

Exclusive locks are held one after another, so the last reader waits for all others; shared ones are
held together (MPI-4.1, 12.5.3). Reading needs no more than a shared lock. mpi4py's Win.Lock takes
an exclusive one unless told otherwise: the difference is one forgotten argument.

Whoever keeps the lock looks into MPI now and then. That matters on rank 0, with MPICH: it grants a
Lock only while the target is in MPI, so a reader there that really slept would keep others waiting
even under a shared lock. With Open MPI it would not.
"""

from __future__ import annotations

import sys
import time

import numpy as np
from demonstration import Demonstration
from mpi4py import MPI

HOST = 0
WAYS = {"exclusive": MPI.LOCK_EXCLUSIVE, "shared": MPI.LOCK_SHARED}


def row_of(rank: int, count: int) -> np.ndarray:
    """Return the row that a rank brings."""
    return np.arange(count) + 1000 * rank


def hold(comm: MPI.Intracomm, seconds: float) -> None:
    """Keep the lock for a while, and look into MPI."""
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        comm.Iprobe()
        time.sleep(0.2e-3)


def main() -> int:
    """Fill the table, get it in two ways, and compare it with what it should be."""
    demo = Demonstration(__doc__)
    demo.parser.add_argument("--numbers", type=int, default=1000, help="in each row")
    demo.parser.add_argument("--hold-ms", type=float, default=20, help="how long to keep the lock")
    options = demo.begin()
    if options.numbers < 1 or options.hold_ms < 0:
        demo.parser.error("--numbers: at least 1; --hold-ms: not negative")

    row = row_of(demo.rank, options.numbers)
    if demo.sabotage and demo.rank == demo.size - 1:
        row[0] -= 1
    nbytes = demo.size * row.nbytes if demo.rank == HOST else 0
    win = MPI.Win.Allocate(nbytes, disp_unit=row.nbytes, comm=demo.comm)  # displacement: the row

    win.Lock(HOST, MPI.LOCK_SHARED)
    win.Put(row, HOST, demo.rank)
    win.Unlock(HOST)
    demo.meet()

    expected = np.array([row_of(rank, options.numbers) for rank in range(demo.size)])
    right, waited = True, []
    for lock in WAYS.values():
        table = np.full(expected.shape, -1)
        demo.meet()
        begun = time.perf_counter()
        win.Lock(HOST, lock)
        win.Get(table, HOST)
        hold(demo.comm, options.hold_ms / 1e3)
        win.Unlock(HOST)  # only now is the table ours to read
        waited.append((time.perf_counter() - begun) * 1e3)
        demo.meet()
        right &= np.array_equal(table, expected)
    win.Free()

    demo.say(f"ms from Lock to Unlock, the lock being kept for {options.hold_ms:g} ms")
    demo.say(f"{'':<10}" + "".join(f"{name:>12}" for name in WAYS))
    demo.say_each(f"rank {demo.rank:<5}" + "".join(f"{ms:>12.1f}" for ms in waited))
    longest = [demo.comm.allreduce(ms, MPI.MAX) for ms in waited]
    demo.say(f"{'longest':<10}" + "".join(f"{ms:>12.1f}" for ms in longest))

    demo.say()
    demo.check("every rank has every rank's row, both times", right)
    return demo.end(
        "workpool/repository/table.py, Table.look: one Get of the words of all rows. Its lock\n"
        "is the shared one of Lock_all, held for the window's life: who may change a row is\n"
        "decided by a compare-and-swap of that row's word, and nobody is locked out"
    )


if __name__ == "__main__":
    sys.exit(main())
