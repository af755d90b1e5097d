"""Fence: one rank puts into another's window, and both see it after the next fence.

    mpiexec -n 4 python demos/rma/02_fence.py
    mpiexec -n 4 python demos/rma/02_fence.py --late-ms 500

Between two fences every rank is origin and target at once: the first one opens an access epoch and
an exposure epoch on all of them, the second one completes whatever was asked for in between
(MPI-4.1, 12.5.1). Here rank 0 puts, rank 1 is put to, and any other rank has nothing to do, but
calls every fence with them: Fence is collective over the window's ranks.

So a fence takes as long as the slowest rank needs to get there. The last rank arrives late at the
second one; the table shows how long each rank stood in it. The standard says only that a fence
that ends an epoch *usually* entails a barrier; here it does, on MPICH and on Open MPI.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import numpy as np
from demonstration import Demonstration
from mpi4py import MPI

ORIGIN, TARGET = 0, 1
BEFORE, PUT = -1.0, 42.0


def main() -> int:
    """Put between two fences, look after the second, get it back between two more."""
    demo = Demonstration(__doc__)
    demo.parser.add_argument("--late-ms", type=float, default=50, help="of the last rank")
    options = demo.begin()
    if options.late_ms < 0:
        demo.parser.error(f"--late-ms {options.late_ms:g}: not negative")

    win = MPI.Win.Allocate(8, disp_unit=8, comm=demo.comm)  # one number on each rank
    mine = np.frombuffer(win.tomemory(), float)
    mine[0] = BEFORE
    value = np.array([PUT + demo.sabotage])  # belongs to MPI until the second fence

    fence_ms = [timed_ms(win.Fence)]  # opens the epoch; what was stored before is in the window
    if demo.rank == ORIGIN:
        win.Put(value, TARGET)  # asked for, not yet done
    if demo.rank == demo.size - 1:
        time.sleep(options.late_ms / 1e3)
    fence_ms.append(timed_ms(win.Fence))  # done: at the target, and at the origin
    after = mine[0]  # a plain load: no Put can be under way in this epoch

    back = np.full(1, np.nan)
    if demo.rank == ORIGIN:
        win.Get(back, TARGET)
    fence_ms.append(timed_ms(win.Fence))  # the answer is there
    win.Free()

    demo.say(f"rank {ORIGIN} puts {PUT:g} into rank {TARGET}'s window")
    demo.say(f"\n{'':<10}{'own window':>12}{'got back':>10}{'time in fence 1, 2, 3':>34}")
    times = "".join(f"{each:>9.2f}" for each in fence_ms)
    got = f"{back[0]:g}" if demo.rank == ORIGIN else "-"
    demo.say_each(f"rank {demo.rank:<5}{after:>12g}{got:>10}{times:>31} ms")

    demo.say()
    demo.check(
        "the target's window holds what was put, all others what was there before",
        after == (PUT if demo.rank == TARGET else BEFORE),
    )
    demo.check("the origin gets it back", demo.rank != ORIGIN or back[0] == PUT)
    return demo.end(
        "nothing is fenced: a busy worker would keep all others waiting. The one call\n"
        "that everybody must make is prepared without it, in workpool/job/crew.py, Crew.call:\n"
        "workers come to it between two tasks, each in its own time"
    )


def timed_ms(call: Callable[[], object]) -> float:
    """Return the milliseconds that a call takes."""
    begun = time.perf_counter()
    call()
    return (time.perf_counter() - begun) * 1e3


if __name__ == "__main__":
    sys.exit(main())
