"""A window: one rank fills another's memory by lock, put, unlock, and every rank gets a copy.

    mpiexec -n 4 python demos/rma/01_window.py
    mpiexec -n 4 python demos/rma/01_window.py --numbers 1000000

Rank 0 gives the memory and has no part in the Put. The last rank, its origin, needs to know two
things only: the target's rank and a displacement in its window. Three rules are enough to read the
program (MPI-4.1, 12.5.3 and 12.7):

* A Put or Get has only been asked for until Unlock returns; then it is complete on both sides.
* An exclusive lock keeps every other lock away, a shared one keeps away the exclusive ones: no
  reader can see half of what the writer puts.
* A lock orders nothing by itself: the barrier makes the writer come first.

The three calls together take a few microseconds once they are warm. MPICH's Lock is a message that
the target must be in MPI to answer; Open MPI's is an atomic in shared memory.
"""

from __future__ import annotations

import sys
import time

import numpy as np
from demonstration import Demonstration
from mpi4py import MPI

HOST = 0  # the rank whose memory it is


def main() -> int:
    """Fill the window, read it from every rank, and compare with what should be there."""
    demo = Demonstration(__doc__)
    demo.parser.add_argument("--numbers", type=int, default=1000, help="doubles in the window")
    options = demo.begin()
    if options.numbers < 1:
        demo.parser.error(f"--numbers {options.numbers}: at least 1")
    writer = demo.size - 1

    nbytes = options.numbers * 8 if demo.rank == HOST else 0
    win = MPI.Win.Allocate(nbytes, disp_unit=8, comm=demo.comm)  # displacements count doubles
    demo.say(f"window: {options.numbers:,} doubles on rank {HOST}, none on the others")

    if demo.rank == writer:
        squares = np.arange(options.numbers, dtype=float) ** 2
        if demo.sabotage:
            squares[-1] += 1
        win.Lock(HOST, MPI.LOCK_EXCLUSIVE)
        win.Put(squares, HOST, 0)
        win.Unlock(HOST)  # complete at the target too: what is put is there
    demo.comm.Barrier()  # nobody reads before that

    copy = np.full(options.numbers, np.nan)
    begun = time.perf_counter()
    win.Lock(HOST, MPI.LOCK_SHARED)
    win.Get(copy, HOST, 0)
    win.Unlock(HOST)  # before this, the copy may be anything
    took_us = (time.perf_counter() - begun) * 1e6
    demo.meet()

    demo.say(f"rank {writer} put the squares of 0, 1, 2, ... there\n")
    demo.say(f"{'':<8}{'numbers':>9}{'last':>18}{'lock, get, unlock':>21}")
    demo.say_each(f"rank {demo.rank:<3}{copy.size:>9,}{copy[-1]:>18,.0f}{took_us:>18.0f} us")

    i = np.arange(options.numbers)
    right = np.array_equal(copy, i * i)
    if demo.rank == HOST:  # its own memory needs no Get, but an epoch: the lock makes it current
        win.Lock(HOST, MPI.LOCK_SHARED)
        right &= np.array_equal(np.frombuffer(win.tomemory(), float), i * i)
        win.Unlock(HOST)
    demo.say()
    demo.check("every rank got what was put, and the host sees it in its own memory", right)
    win.Free()
    return demo.end(
        "workpool/rma/window.py, Window.put and Window.get; there one epoch\n"
        "(Lock_all in rma/group.py, Group.allocate) lasts for the window's life, and Flush\n"
        "takes the place of Unlock (on one host, loads, stores and Sync that of all three)"
    )


if __name__ == "__main__":
    sys.exit(main())
