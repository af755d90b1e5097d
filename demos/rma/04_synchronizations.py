"""Three synchronizations around the same Put: what each of them costs, and who waits for whom.

    mpiexec -n 4 python demos/rma/04_synchronizations.py
    mpiexec -n 4 python demos/rma/04_synchronizations.py --nbytes 8 1048576 --late-ms 100

Ranks 0 and 1, 2 and 3, ... exchange an array: each puts its own into its partner's window. If the
number of ranks is odd, the last one has no partner: it calls the fences, which are collective, and
has no part in the rest.

fence
    All ranks of the window, twice (MPI-4.1, 12.5.1).
post, start, complete, wait
    Only partners: Post exposes my window to mine, Start waits for its Post, Complete says that my
    Puts are made, Wait waits for its Complete (12.5.2).
lock, unlock
    The origin alone (12.5.3). Its Put is complete, but the target has not been told: when it may
    read is for somebody else to say. A message before the Lock (you may overwrite it) and another
    after the Unlock (it is there) make it the same exchange as with the other two.

Measured: with MPICH, Lock waits until the target is inside MPI even if both share memory, so a
late partner delays it (not with MODE_NOCHECK, which is right where no other lock can be in the
way); with Open MPI it waits for nothing but another holder of the lock.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import numpy as np
from demonstration import Demonstration, median_us
from mpi4py import MPI

CHECKED = 10  # exchanges of each kind and size that are compared in full


def contents(rank: int, number: int, count: int) -> np.ndarray:
    """Return what a rank puts in one exchange: no two are equal."""
    return np.arange(count) + 1000.0 * rank + number


class Exchange:
    """One rank's window, what it puts into its partner's, and the ways to do it."""

    def __init__(self, comm: MPI.Intracomm, nbytes: int) -> None:
        self.comm = comm
        self.rank = comm.rank
        self.partner = comm.rank ^ 1 if comm.rank ^ 1 < comm.size else MPI.PROC_NULL
        self.win = MPI.Win.Allocate(nbytes, comm=comm)
        self.mine = np.frombuffer(self.win.tomemory(), float)
        self.out = np.zeros_like(self.mine)
        partners = [] if self.partner == MPI.PROC_NULL else [self.partner]
        self.pair = comm.Get_group().Incl(partners)
        self.ways: dict[str, Callable[[], None]] = {
            "fence": self.fence,
            "post, start, complete, wait": self.pairwise,
            "lock, unlock, with messages": self.lock_and_messages,
            "lock, unlock alone": self.lock,
        }

    def fence(self) -> None:
        """Everybody waits for everybody."""
        self.win.Fence(MPI.MODE_NOPRECEDE)  # an epoch begins here, none ends
        self.win.Put(self.out, self.partner)
        self.win.Fence(MPI.MODE_NOSUCCEED)

    def pairwise(self) -> None:
        """Partners wait for each other."""
        self.win.Post(self.pair)
        self.win.Start(self.pair)
        self.win.Put(self.out, self.partner)
        self.win.Complete()
        self.win.Wait()

    def lock(self) -> None:
        """Nobody is told."""
        if self.partner != MPI.PROC_NULL:
            self.win.Lock(self.partner)
            self.win.Put(self.out, self.partner)
            self.win.Unlock(self.partner)

    def lock_and_messages(self) -> None:
        """Partners wait for each other: the second way, made by hand."""
        nothing = bytearray()
        self.comm.Sendrecv(nothing, self.partner, recvbuf=nothing, source=self.partner)
        self.lock()
        self.comm.Sendrecv(nothing, self.partner, recvbuf=nothing, source=self.partner)
        self.win.Lock(self.rank, MPI.LOCK_SHARED)  # now my own loads see it (12.7)
        self.win.Unlock(self.rank)

    def right(self, way: Callable[[], None], number: int, damage: float) -> bool:
        """Exchange once; return whether the partner's array has come."""
        self.out[:] = contents(self.rank, number, self.out.size)
        self.out[-1] += damage
        way()
        expected = contents(self.partner, number, self.mine.size)
        return self.partner == MPI.PROC_NULL or np.array_equal(self.mine, expected)

    def late_ms(self, way: Callable[[], None], late_s: float) -> float:
        """Exchange once with rank 0 late; return the milliseconds that it took here."""
        self.comm.Barrier()
        time.sleep(late_s if self.rank == 0 else 1e-3)  # all have left the barrier
        begun = time.perf_counter()
        way()
        return (time.perf_counter() - begun) * 1e3


def main() -> int:
    """Check all ways, time them, and let one rank be late."""
    demo = Demonstration(__doc__)
    demo.parser.add_argument("--nbytes", type=int, nargs="+", default=[8, 8192, 524288])
    demo.parser.add_argument("--calls", type=int, default=50, help="in each of 6 rounds")
    demo.parser.add_argument("--late-ms", type=float, default=30)
    options = demo.begin()
    if any(each < 8 or each % 8 for each in options.nbytes):
        demo.parser.error("--nbytes: multiples of 8")
    if options.calls < 1 or options.late_ms < 0:
        demo.parser.error("--calls: at least 1; --late-ms: not negative")

    exchanges = [Exchange(demo.comm, nbytes) for nbytes in options.nbytes]
    names = list(exchanges[0].ways)
    sizes = "".join(f"{nbytes:>11,} B" for nbytes in options.nbytes)
    demo.say(f"{'us for one exchange':<29}{sizes}")
    right = dict.fromkeys(names[:-1], True)  # the last alone tells nobody when to look
    for name in names:
        cells = ""
        for exchange in exchanges:
            way = exchange.ways[name]
            for number in range(CHECKED if name in right else 0):
                damage = demo.sabotage and demo.rank == 0 and number == CHECKED // 2
                right[name] &= exchange.right(way, number, damage)
            demo.comm.Barrier()
            cells += f"{median_us(way, options.calls):>13.1f}"
            demo.comm.Barrier()
        demo.say(f"{name:<29}{cells}")

    demo.say(f"\nms in one exchange, rank 0 being {options.late_ms:g} ms late")
    demo.say(f"{'':<10}{'fence':>15}{'post ... wait':>15}{'lock, messages':>16}{'lock alone':>14}")
    ms = [exchanges[0].late_ms(way, options.late_ms / 1e3) for way in exchanges[0].ways.values()]
    demo.say_each(f"rank {demo.rank:<5}{ms[0]:>15.1f}{ms[1]:>15.1f}{ms[2]:>16.1f}{ms[3]:>14.1f}")

    demo.say()
    for name, came in right.items():
        demo.check(f"every array came: {name}", came)
    for exchange in exchanges:
        exchange.win.Free()
    return demo.end(
        "workpool/rma/group.py, Group.allocate: none of the three. One Lock_all for the\n"
        "window's life, with MODE_NOCHECK, which no target has to answer; each operation is\n"
        "completed by a Flush, and a compare-and-swap of the row's word tells whom it concerns"
    )


if __name__ == "__main__":
    sys.exit(main())
