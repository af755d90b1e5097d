"""A billboard: ranks tell each other something through a third one, and what a lock leaves open.

    mpiexec -n 4 python demos/rma/05_billboard.py
    mpiexec -n 4 python demos/rma/05_billboard.py --rounds 1000 --numbers 10

Rank 0 gives the memory and takes no part: while the others use it, it makes no call that concerns
the window. Rank 1 posts a notice there, an array that holds the number of the round throughout; all
others read it. Lock and Unlock promise that a Get and a Put under conflicting locks do not overlap:
no notice is ever seen half old and half new. They do not promise which of the two comes first
(MPI-4.1, 12.5.3). So a reader that merely looks gets the old notice or the new one, as it happens.

The remedy is a flag next to the notice, raised by a second epoch when the first one is complete,
and a reader that looks at the notice only after it has seen the flag. Raised in the same epoch,
without a Flush before it, it would be worth nothing: two Puts of one epoch are not ordered either.

Measured: Open MPI leaves rank 0 really alone. With MPICH, a Lock waits until rank 0 enters MPI for
whatever reason; MODE_NOCHECK, allowed only where no other lock can conflict, spares that.
"""

from __future__ import annotations

import random
import sys
import time
from collections import Counter
from itertools import count

import numpy as np
from demonstration import Demonstration, wait_until
from mpi4py import MPI

HOST, POSTER = 0, 1
FLAG, NOTICE = 0, 8  # displacements, in integers: on different cache lines
BATCH = 50  # rounds between two looks at whether both orders were seen
AWAY_S = 0.05


class Billboard:
    """A window on the host with a flag and a notice."""

    def __init__(self, comm: MPI.Intracomm, numbers: int) -> None:
        nbytes = (NOTICE + numbers) * 8 if comm.rank == HOST else 0
        self.win = MPI.Win.Allocate(nbytes, disp_unit=8, comm=comm)
        if comm.rank == HOST:
            self.win.Lock(HOST)  # stores into one's own window need an epoch, too
            np.frombuffer(self.win.tomemory(), np.int64)[:] = 0
            self.win.Unlock(HOST)
        self.notice = np.zeros(numbers, np.int64)
        self.flag = np.zeros(1, np.int64)
        comm.Barrier()

    def put(self, array: np.ndarray, place: int, assertion: int = 0) -> None:
        """Write, and let no other access overlap."""
        self.win.Lock(HOST, MPI.LOCK_EXCLUSIVE, assertion)
        self.win.Put(array, HOST, place)
        self.win.Unlock(HOST)  # complete on the host: what is put later comes later

    def get(self, array: np.ndarray, place: int) -> np.ndarray:
        """Read while nobody writes."""
        self.win.Lock(HOST, MPI.LOCK_SHARED)
        self.win.Get(array, HOST, place)
        self.win.Unlock(HOST)
        return array

    def post(self, number: int) -> None:
        """Put a notice there."""
        self.notice[:] = number
        self.put(self.notice, NOTICE)

    def read(self) -> int:
        """Return the number on the notice; -1 if it is not the same throughout."""
        first, *others = np.unique(self.get(self.notice, NOTICE))
        return -1 if others else int(first)


def without_flag(
    board: Billboard, origins: MPI.Intracomm, limit_s: float
) -> tuple[Counter[str], int]:
    """Read at any moment until somebody has seen both orders; return what, and the last round."""
    seen: Counter[str] = Counter()
    end = time.perf_counter() + limit_s
    for number in count(1):
        origins.Barrier()
        time.sleep(random.uniform(0, 100e-6))
        if origins.rank == 0:
            board.post(number)
        else:
            seen[{number - 1: "old", number: "new"}.get(board.read(), "wrong")] += 1
        if number % BATCH == 0:
            both = origins.allreduce(bool(seen["old"] and seen["new"]), MPI.LOR)
            if origins.bcast(both or time.perf_counter() > end):
                return seen, number
    raise AssertionError  # count has no end


def with_flag(
    board: Billboard, origins: MPI.Intracomm, numbers: range, damage: bool
) -> Counter[str]:
    """Read after the flag; return what was seen."""
    seen: Counter[str] = Counter()
    for number in numbers:
        origins.Barrier()
        if origins.rank == 0:
            board.post(number)
            if damage:
                board.put(np.array([-7]), NOTICE)
            board.flag[0] = number
            board.put(board.flag, FLAG)
        else:
            wait_until(lambda n=number: board.get(board.flag, FLAG)[0] == n, f"flag {number}")
            seen["new" if board.read() == number else "wrong"] += 1
    return seen


def away_ms(demo: Demonstration, board: Billboard, assertion: int) -> float:
    """Return how long one epoch of the poster takes while the host is outside MPI."""
    demo.comm.Barrier()
    time.sleep(AWAY_S if demo.rank == HOST else 1e-3)  # the host has left the barrier
    begun = time.perf_counter()
    if demo.rank == POSTER:
        board.put(board.notice, NOTICE, assertion)
    return demo.comm.bcast((time.perf_counter() - begun) * 1e3, POSTER)


def main() -> int:
    """Read without a flag until both orders were seen, then with one; then leave the host away."""
    demo = Demonstration(__doc__, least=3)
    demo.parser.add_argument("--numbers", type=int, default=1000, help="in the notice")
    demo.parser.add_argument("--rounds", type=int, default=200, help="with a flag")
    demo.parser.add_argument("--limit-s", type=float, default=5, help="for rounds without one")
    options = demo.begin()
    if options.numbers < 1 or options.rounds < 1:
        demo.parser.error("--numbers and --rounds: at least 1")

    board = Billboard(demo.comm, options.numbers)
    origins = demo.comm.Split(MPI.UNDEFINED if demo.rank == HOST else 0)
    bare: Counter[str] = Counter()
    flagged: Counter[str] = Counter()
    if demo.rank != HOST:
        bare, last = without_flag(board, origins, options.limit_s)
        numbers = range(last + 1, last + options.rounds + 1)
        flagged = with_flag(board, origins, numbers, demo.sabotage)
    demo.meet()  # all that the host does meanwhile

    demo.say(f"{'notices seen':<14}{'without a flag: old':>20}{'new':>8}{'with a flag: new':>22}")
    demo.say_each(
        f"rank {demo.rank:<9}{bare['old']:>20,}{bare['new']:>8,}{flagged['new']:>22,}"
        if demo.rank > POSTER
        else ""
    )
    if not demo.comm.allreduce(bool(bare["old"] and bare["new"]), MPI.LOR):
        demo.say(f"(in {options.limit_s:g} s no reader saw both orders)")

    demo.say(f"\none epoch of the poster while rank {HOST} is outside MPI for {AWAY_S * 1e3:g} ms")
    for name, assertion in (("Lock", 0), ("Lock with MODE_NOCHECK", MPI.MODE_NOCHECK)):
        took_ms = away_ms(demo, board, assertion)
        demo.say(f"{name:<24}{took_ms:>10.2f} ms")

    demo.say()
    demo.check("without a flag every notice was whole, the old one or the new", not bare["wrong"])
    demo.check("with a flag it was always the new one", not flagged["wrong"])
    board.win.Free()
    return demo.end(
        "workpool/repository/publisher.py, Publisher.publish: Put the descriptor, Flush,\n"
        "and only then a compare-and-swap to READY, the flag; Claimant in claimant.py reads a\n"
        "descriptor only after it has seen that. No rank locks: one epoch, opened with\n"
        "MODE_NOCHECK, lasts for the window's life"
    )


if __name__ == "__main__":
    sys.exit(main())
