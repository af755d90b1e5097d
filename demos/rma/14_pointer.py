"""A table of work descriptors and a pointer to the first unprocessed one: four ways to advance it.

    mpiexec -n 4 python demos/rma/14_pointer.py

The window of rank 0 holds the pointer and the table. Every rank takes a descriptor, does what it
says, and comes back until none is left. What all of them computed is compared with NumPy.

read, then write    Get and Put: two ranks read the same pointer and take the same descriptor.
Fetch_and_op        Unconditional: it adds one even when nothing is left. The pointer runs past the
                    end by one for each rank; nobody looks there, so it does no harm.
test, Fetch_and_op  Look first, draw only if something is left. Between the two others draw: the
                    pointer can run past the end all the same.
Compare_and_swap    Advance the pointer only from where I saw it. It never passes the end; whoever
                    comes second has lost a race and tries again.

Can Fetch_and_op be made conditional? No: its operation knows the two operands and no bound, and a
test made before it is out of date by the time it happens. Compare_and_swap is the conditional one.
Is there an unconditional way? Yes: draw, then test what was drawn. So the test that ends the loop
is `drawn >= len(table)`, on the value that the atomic returned to this rank. A second look at the
pointer would tell about another moment, and `==` would be met by one rank only (MPI-4.1, 12.3.4
for the calls, 12.7.1 for their atomicity).
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from demonstration import Demonstration
from mpi4py import MPI
from numpy.typing import NDArray

HOST = 0  # the rank with the table
POINTER, TABLE = 0, 8  # displacements in words: the pointer has a cache line of its own
NEVER = -1  # no value of the pointer: a compare with it only reads
PATIENCE_S = 5.0  # how long to go on where nobody met anybody yet


class Pool:
    """The pointer and the descriptors (first, count, pause in us) in the window of `HOST`."""

    def __init__(self, comm: MPI.Intracomm, table: NDArray[np.int64]) -> None:
        self.rows = len(table)
        self.lost = self.past_end = 0  # races, and draws that gave nothing
        self._a, self._b, self._old = np.zeros((3, 1), np.int64)
        nbytes = 8 * (TABLE + table.size) if comm.Get_rank() == HOST else 0
        self.win = MPI.Win.Allocate(nbytes, 8, comm=comm)
        self.win.Lock_all()
        if comm.Get_rank() == HOST:
            self._call(self.win.Put, table, HOST, TABLE)

    def point(self, row: int) -> None:
        self._a[0] = row
        self._call(self.win.Put, self._a, HOST, POINTER)

    def look(self) -> int:
        return self._call(self.win.Fetch_and_op, self._a, self._old, HOST, POINTER, MPI.NO_OP)

    def read_then_write(self) -> int:
        row = self._call(self.win.Get, self._old, HOST, POINTER)
        if row < self.rows:
            self.point(row + 1)
        return row

    def fetch_and_op(self) -> int:
        self._a[0] = 1
        row = self._call(self.win.Fetch_and_op, self._a, self._old, HOST, POINTER, MPI.SUM)
        self.past_end += row >= self.rows
        return row

    def test_then_fetch_and_op(self) -> int:
        row = self.look()
        return row if row >= self.rows else self.fetch_and_op()

    def compare_and_swap(self) -> int:
        row = self._swap(NEVER, NEVER)
        while row < self.rows:
            found = self._swap(row, row + 1)
            if found == row:
                break
            self.lost += 1
            row = found  # where it points now: the next try begins there
        return row

    def _swap(self, expected: int, desired: int) -> int:
        self._a[0], self._b[0] = desired, expected
        return self._call(self.win.Compare_and_swap, self._a, self._b, self._old, HOST, POINTER)

    def _call(self, call: Callable[..., object], *arguments: object) -> int:
        call(*arguments)
        self.win.Flush(HOST)  # done there, and the answer is here
        return int(self._old[0])

    def run(self, row: int) -> int:
        """Do what a descriptor says: sum the squares of some integers, and pause."""
        descriptor = np.zeros(3, np.int64)
        self._call(self.win.Get, descriptor, HOST, TABLE + 3 * row)
        first, count, pause_us = descriptor.tolist()
        if pause_us:
            time.sleep(pause_us * 1e-6)
        return sum(i * i for i in range(first, first + count))


WAYS: dict[str, Callable[[Pool], int]] = {
    "read, then write": Pool.read_then_write,
    "Fetch_and_op": Pool.fetch_and_op,
    "test, Fetch_and_op": Pool.test_then_fetch_and_op,
    "Compare_and_swap": Pool.compare_and_swap,
}


@dataclass
class Tally:
    """What all ranks did in all rounds of one way."""

    rounds: int = 0
    again: int = 0  # takes of a descriptor that had been taken before
    lost: int = 0
    past_end: int = 0
    ends: tuple[int, ...] = ()  # where the pointer stood after each round
    right: bool = True  # every descriptor taken once, and the sum of the results


def play(demo: Demonstration, pool: Pool, way: str, rounds: int, expected: int) -> Tally:
    """Empty the table many times, and more often until ranks get into each other's way."""
    tally = Tally()
    end = time.perf_counter() + PATIENCE_S
    while tally.rounds < rounds or demo.comm.bcast(
        tally.again + tally.lost + tally.past_end == 0 and time.perf_counter() < end
    ):
        if demo.rank == HOST:
            pool.point(0)
        pool.lost = pool.past_end = total = 0
        times = np.zeros(pool.rows, np.int64)
        demo.comm.Barrier()
        while (row := WAYS[way](pool)) < pool.rows:
            times[row] += 1
            total += pool.run(row)
        demo.comm.Barrier()
        demo.comm.Allreduce(MPI.IN_PLACE, times)
        tally.rounds += 1
        tally.again += int(np.maximum(times - 1, 0).sum())
        tally.lost += demo.comm.allreduce(pool.lost)
        tally.past_end += demo.comm.allreduce(pool.past_end)
        tally.ends += (demo.comm.bcast(pool.look() if demo.rank == HOST else None, HOST),)
        tally.right &= bool((times == 1).all()) and demo.comm.allreduce(total) == expected
    return tally


def main() -> int:
    """Play each way; print and check what happened."""
    demo = Demonstration(__doc__)
    demo.parser.add_argument("--rows", type=int, default=100, help="descriptors in the table (100)")
    demo.parser.add_argument("--rounds", type=int, default=40, help="times it is emptied (40)")
    options = demo.begin()
    if options.rows < 1 or options.rounds < 1:
        demo.parser.error("--rows and --rounds: at least 1")

    chance = random.Random(0)
    pauses = [chance.randrange(50) if chance.random() < 0.3 else 0 for _ in range(options.rows)]
    starts = np.cumsum([0, *(chance.randrange(50) for _ in range(options.rows))])
    table = np.column_stack([starts[:-1], np.diff(starts), pauses])
    expected = int((np.arange(starts[-1]) ** 2).sum())  # each integer belongs to one descriptor
    if demo.sabotage:
        table[options.rows // 2, 1] += 1
    pool = Pool(demo.comm, table)
    tallies = {way: play(demo, pool, way, options.rounds, expected) for way in WAYS}
    pool.win.Unlock_all()
    pool.win.Free()

    demo.say(f"{options.rows:>7} descriptors  rounds  taken again  lost races  past end   ends at")
    for way, tally in tallies.items():
        ends = " to ".join(map(str, sorted({min(tally.ends), max(tally.ends)})))
        cells = f"{tally.rounds:>5,}{tally.again:>13,}{tally.lost:>12,}{tally.past_end:>10,}"
        demo.say(f"{way:<22}{cells}{ends:>14}")
    naive, drawn, tested, swapped = tallies.values()
    demo.say(f"\ndraws past the end in spite of a test before them: {tested.past_end}\n")
    n, ranks = options.rows, demo.size
    demo.check("read, then write: some descriptors were taken again", naive.again)
    for way in list(WAYS)[1:]:
        demo.check(f"{way}: each descriptor once, the sum right", tallies[way].right)
    demo.check("Fetch_and_op: past the end by one for each rank", {*drawn.ends} == {n + ranks})
    demo.check("test, Fetch_and_op: by less", all(n <= end < n + ranks for end in tested.ends))
    demo.check("Compare_and_swap: never past the end", {*swapped.ends} == {n})
    return demo.end(
        "workpool/repository/tickets.py, PointerTaker.take, is the Compare_and_swap,\n"
        "and CounterTaker.take the Fetch_and_op, whose tickets past the end wait for work to come"
    )


if __name__ == "__main__":
    sys.exit(main())
