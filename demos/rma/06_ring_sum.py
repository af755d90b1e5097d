"""A sum around the ring: every rank gets its left neighbour's number, again and again.

    mpiexec -n 4 python demos/rma/06_ring_sum.py
    mpiexec -n 4 python demos/rma/06_ring_sum.py --numbers 100000

In each step a rank gets what its left neighbour shows in its window, adds it to its sum, and shows
it in its own window, where the right neighbour gets it in the next step. After as many steps as
there are ranks, each number has been everywhere, and every rank has the whole sum.

Each epoch of Gets lies between two fences, and the assertions say what these need not do
(MPI-4.1, 12.5.5). Each is a promise of this rank's, which must be true:

    opening  NOPRECEDE  no call of mine is completed by it       nothing was asked for since closing
             NOPUT      nobody puts into my window until closing             all they do is get
    closing  NOSTORE    I have stored nothing there since opening      what I get lands elsewhere
             NOPUT      nobody puts into my window until opening            nobody ever does
             NOSUCCEED  no call of mine begins an epoch here              the next one has its own

NOSTORE would be false in the opening fence: the number has just been stored there.
"""

from __future__ import annotations

import sys
import time

import numpy as np
from demonstration import Demonstration
from mpi4py import MPI

OPENING = MPI.MODE_NOPRECEDE | MPI.MODE_NOPUT
CLOSING = MPI.MODE_NOSTORE | MPI.MODE_NOPUT | MPI.MODE_NOSUCCEED


def number_of(rank: int, count: int) -> np.ndarray:
    """Return what a rank brings into the sum: an array, whose first element is the rank."""
    return rank + 1000 * np.arange(count)


def main() -> int:
    """Go once around the ring, and compare with NumPy's sum."""
    demo = Demonstration(__doc__)
    demo.parser.add_argument("--numbers", type=int, default=1000, help="in each rank's array")
    options = demo.begin()
    if options.numbers < 1:
        demo.parser.error("--numbers: at least 1")

    win = MPI.Win.Allocate(options.numbers * 8, comm=demo.comm)
    shown = np.frombuffer(win.tomemory(), np.int64)
    shown[:] = number_of(demo.rank, options.numbers)
    if demo.sabotage and demo.rank == 0:
        shown[-1] += 1
    got = np.empty_like(shown)
    total = np.zeros_like(shown)
    came = []
    left = (demo.rank - 1) % demo.size

    demo.comm.Barrier()
    begun = time.perf_counter()
    for _ in range(demo.size):
        win.Fence(OPENING)
        win.Get(got, left)
        win.Fence(CLOSING)  # what I get is here, and the right neighbour has got what I show
        shown[:] = got
        total += got
        came.append(got[0])
    step_us = (time.perf_counter() - begun) / demo.size * 1e6
    win.Free()

    width = max(34, 4 * demo.size + 2)
    demo.say(f"{'':<8}{'came from the left, step by step':<{width}}{'sum':>5}")
    steps = "".join(f"{each:<4}" for each in came)
    demo.say_each(f"rank {demo.rank:<3}{steps:<{width}}{total[0]:>5}")
    demo.say(f"\n{step_us:.1f} us for one step: two fences, a Get of {got.nbytes:,} bytes, a copy")

    demo.say()
    own = number_of(demo.rank, options.numbers)
    expected = sum(number_of(rank, options.numbers) for rank in range(demo.size))
    demo.check("every rank has the sum over all ranks", np.array_equal(total, expected))
    demo.check("the last to come is what a rank began with", np.array_equal(got, own))
    return demo.end(
        "workpool/contributions.py, contribute: tasks add up numbers where they\n"
        "lie, by Accumulate into the repository's window, and nothing goes around"
    )


if __name__ == "__main__":
    sys.exit(main())
