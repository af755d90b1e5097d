"""A counter that several ranks run down: how all see the same number, and what ends their loop.

    mpiexec -n 4 python demos/rma/11_countdown.py

Rank 0 has the counter. In each turn of a loop every other rank may subtract something, at a moment
of its own; when the counter is no longer positive, all stop. They must stop in the same turn: the
loop has fences in it, which are collective, and who goes on alone waits there for ever.

Everybody looks twice in each turn, and both numbers are shown:

at once      in the epoch of the updates, after its own. Each look is atomic (Fetch_and_op with
             NO_OP), but it is not ordered with the updates of other ranks (MPI-4.1, 12.7.2): it may
             see all of them, some, or none. So the ranks see different numbers.
next epoch   by a Get after the fence that completes every update. Nobody updates in this epoch, so
             there is one number, and all see it.

So it is not atomicity that makes a view common, but an epoch in which nothing changes. What ends
the loop is `<= 0` on that number; `== 0` may never be met, for several updates in one epoch can
take the counter below. Where ranks need not stop together they need no common view: with
Fetch_and_op each draws a number of its own and stops by that one, see 13_counter.py.
"""

from __future__ import annotations

import random
import sys
import time
from typing import NamedTuple

import numpy as np
from demonstration import Demonstration
from mpi4py import MPI

HOST = 0  # the rank with the counter
SHOWN = 10  # turns in the table


class Turn(NamedTuple):
    """What one rank did and saw in one turn."""

    subtracted: int
    at_once: int
    next_epoch: int


def count_down(demo: Demonstration, start: int) -> list[Turn]:
    """Run the counter down; return what this rank did and saw.  Collective."""
    win = MPI.Win.Allocate(8 if demo.rank == HOST else 0, 8, comm=demo.comm)
    amount, seen = np.full(1, start, np.int64), np.zeros(1, np.int64)
    win.Fence()
    if demo.rank == HOST:
        win.Put(amount, HOST)
    turns: list[Turn] = []
    while not turns or turns[-1].next_epoch > 0:
        win.Fence()  # from here on it is being updated
        time.sleep(100e-6 * random.random())
        subtracted = random.choice((0, 0, 0, 1, 2, 3)) if demo.rank != HOST else 0
        amount[0] = -subtracted - (demo.sabotage and not turns)
        win.Accumulate(amount, HOST, op=MPI.SUM)
        win.Fetch_and_op(amount, seen, HOST, 0, MPI.NO_OP)
        win.Fence()  # every update is complete, and the look as well
        at_once = int(seen[0])
        win.Get(seen, HOST)
        win.Fence()  # before this, the number is not here
        turns.append(Turn(subtracted, at_once, int(seen[0])))
    win.Free()
    return turns


def main() -> int:
    """Run the counter down, compare what the ranks saw, and check it by arithmetic."""
    demo = Demonstration(__doc__)
    demo.parser.add_argument("--start", type=int, default=100, help="where it begins (100)")
    start = demo.begin().start
    if start < 1:
        demo.parser.error(f"--start {start}: at least 1")

    ranks = demo.comm.allgather(count_down(demo, start))  # a list of turns for each rank
    counts = [len(turns) for turns in ranks]
    turns = np.array([each[: min(counts)] for each in ranks])
    subtracted, at_once, next_epoch = turns.transpose(2, 1, 0)  # each [turn, rank]
    after = start - np.cumsum(subtracted.sum(axis=1))
    before = np.append(start, after[:-1])

    demo.say("                         at once             next epoch")
    demo.say("  turn  subtracted   lowest   highest   lowest   highest")
    for turn in range(len(after))[-SHOWN:]:
        cells = (each(seen[turn]) for seen in (at_once, next_epoch) for each in (np.min, np.max))
        numbers = "".join(f"{cell:>{w}}" for cell, w in zip(cells, (9, 10, 9, 10), strict=True))
        demo.say(f"{turn + 1:>6}{subtracted[turn].sum():>12}{numbers}")
    differ = np.count_nonzero(np.ptp(at_once, axis=1))
    demo.say(f"\nat once, the ranks saw different numbers in {differ} of {len(after)} turns")
    first = int((at_once.min(axis=1) <= 0).argmax())  # turn in which somebody saw the end
    leave = np.flatnonzero(at_once[first] <= 0).tolist()
    if len(leave) < demo.size:
        demo.say(f"by what they saw, ranks {leave} alone would have left in turn {first + 1}")
    demo.say()
    demo.check("all ranks stopped in the same turn", len(set(counts)) == 1)
    fine = (next_epoch == after[:, None]).all() and (before > 0).all() and after[-1] <= 0
    demo.check("next epoch: one number for all, and the one that arithmetic gives", fine)
    fine = ((after[:, None] <= at_once) & (at_once <= before[:, None] - subtracted)).all()
    demo.check("at once: each look saw its rank's own update, and nothing impossible", fine)
    return demo.end(
        "workpool/repository/tickets.py, CounterTaker.take: no fences and no common view; each\n"
        "worker goes by the ticket that it drew, and its driver says when it is over"
    )


if __name__ == "__main__":
    sys.exit(main())
