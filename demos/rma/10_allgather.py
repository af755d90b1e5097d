"""An all-gather by one-sided calls: every rank puts its numbers into every rank's window.

    mpiexec -n 4 python demos/rma/10_allgather.py
    mpiexec -n 4 python demos/rma/10_allgather.py --numbers 10000

Each window has one slot for each rank. Rank r puts into slot r of every window, its own included:
a Put to oneself is a Put like any other (MPI-4.1, 12.3), so there is no special case. No two ranks
put to the same place, so nothing has to be atomic. What remains to be known is when all is there:

fence       Fence, Puts, Fence. The second one completes every Put on both sides, and nobody leaves
            it before its own window is complete (12.5.1).
passive     Puts and Flush_all in an epoch that Lock_all has opened. A flush completes the Puts of
            this rank and says nothing about those of others (12.5.4). So it takes a barrier to know
            that all have flushed, and one more before a slot that may still be read is put anew.
collective  Allgather, to compare with: it is told at once that everybody takes part.
"""

from __future__ import annotations

import sys

import numpy as np
from demonstration import Demonstration, median_us
from mpi4py import MPI
from numpy.typing import NDArray

ROUNDS = 10  # with new numbers in each, so that what was put too late is seen


class Gather:
    """A window on every rank with a slot of `count` doubles for each rank."""

    def __init__(self, comm: MPI.Intracomm, count: int) -> None:
        self.comm = comm
        self.place = comm.Get_rank() * count  # of our slot, in every window
        self.win = MPI.Win.Allocate(8 * comm.Get_size() * count, 8, comm=comm)
        self.slots = np.frombuffer(self.win.tomemory(), float).reshape(-1, count)
        self.copy = np.zeros_like(self.slots)

    def put_to_all(self, mine: NDArray[np.float64]) -> None:
        for target in range(self.comm.Get_size()):
            self.win.Put(mine, target, self.place)

    def fence(self, mine: NDArray[np.float64]) -> NDArray[np.float64]:
        self.win.Fence()  # all have read what was there before
        self.put_to_all(mine)
        self.win.Fence()
        return self.slots

    def passive(self, mine: NDArray[np.float64]) -> NDArray[np.float64]:
        self.comm.Barrier()  # all have read what was there before
        self.put_to_all(mine)
        self.win.Flush_all()
        self.comm.Barrier()  # all have flushed
        self.win.Sync()  # our own loads see what others put (12.7)
        return self.slots

    def collective(self, mine: NDArray[np.float64]) -> NDArray[np.float64]:
        self.comm.Allgather(mine, self.copy)
        return self.copy


def numbers(rank: int, turn: int, count: int) -> NDArray[np.float64]:
    """Return what a rank contributes in one round."""
    return np.sqrt(rank + 1) + turn + np.arange(count) / count


def main() -> int:
    """Gather in each way, check every slot on every rank, and take the time."""
    demo = Demonstration(__doc__)
    demo.parser.add_argument("--numbers", type=int, default=1, help="doubles of each rank (1)")
    count = demo.begin().numbers
    if count < 1:
        demo.parser.error(f"--numbers {count}: at least 1")
    gather = Gather(demo.comm, count)

    right: dict[str, bool] = {}
    took_us: dict[str, float] = {}
    for way in (gather.fence, gather.passive, gather.collective):
        if way == gather.passive:
            gather.win.Fence(MPI.MODE_NOSUCCEED)  # the last: fences and locks do not overlap
            gather.win.Lock_all()
        name = way.__name__
        right[name] = True
        for turn in range(ROUNDS):
            mine = numbers(demo.rank, turn, count)
            if demo.sabotage and demo.rank == demo.size - 1:
                mine[-1] += 1
            expected = [numbers(rank, turn, count) for rank in range(demo.size)]
            right[name] &= np.array_equal(way(mine), expected)
        took_us[name] = median_us(lambda way=way, mine=mine: way(mine), calls=10)
    gather.win.Unlock_all()

    demo.say(f"the first number in each slot after round {ROUNDS}")
    demo.say_each(f"rank {demo.rank:<6}" + "".join(f"{x:9.4f}" for x in gather.slots[:8, 0]))
    demo.say()
    for name, us in took_us.items():
        demo.say(f"{name:<11}{us:>9,.1f} us for {8 * count:,} bytes from each rank")
    demo.say()
    for name, fine in right.items():
        demo.check(f"{name}: every rank got the numbers of every rank, {ROUNDS} times", fine)
    gather.win.Free()
    return demo.end(
        "workpool/repository/claimant.py, Claimant.complete: the outcome is put and flushed\n"
        "before a compare-and-swap says DONE; that word, no barrier, tells others it is there"
    )


if __name__ == "__main__":
    sys.exit(main())
