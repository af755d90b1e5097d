"""Request-based operations: what they let overlap, and what completion of a request means.

    mpiexec -n 4 python demos/rma/12_requests.py
    MPIR_CVAR_NOLOCAL=1 mpiexec -n 4 python demos/rma/12_requests.py       MPICH, as over a network

The window of rank 0 holds blocks of numbers, room for their squares, and a total. Each rank squares
its share of the blocks: once with a flush after each call, once by requests, where the next block
is on its way while this one is worked on, and so is the last result.

Rget            complete: the block is here and may be read.
Rput            complete: the buffer may be used anew, no more. This is local completion. Whether
                the numbers are at the target is settled by a flush (MPI-4.1, 12.3.5).
Raccumulate     as Rput.

They are for passive target epochs only. Here every buffer is overwritten as soon as its request is
complete, and what is in the window after the flush must be right. To overlap, somebody has to carry
the data meanwhile, such as a network card. On one host it is the caller who copies, within the call
itself: the table shows it, and there is next to nothing to gain. The second line above takes MPICH
through its network code: then the call only starts the transfer, and the time is spent in Wait.
"""

from __future__ import annotations

import sys
import time

import numpy as np
from demonstration import Demonstration
from mpi4py import MPI
from numpy.typing import NDArray

HOST = 0  # the rank with the window
ROUNDS = 5  # of each way
TRIALS = 20  # looks at what an Rput has done


class Blocks:
    """The window: all blocks, as many results, and the total; and what this rank works with."""

    def __init__(self, comm: MPI.Intracomm, blocks: int, numbers: int) -> None:
        self.numbers = numbers
        self.count = blocks * comm.Get_size()
        self.mine = range(comm.Get_rank(), self.count, comm.Get_size())
        self.results = self.count * numbers  # displacement
        self.total = 2 * self.results
        nbytes = 8 * (self.total + 1) if comm.Get_rank() == HOST else 0
        self.win = MPI.Win.Allocate(nbytes, 8, comm=comm)
        self.win.Lock_all()
        self._blocks, self._squares = np.ones((2, 2, numbers))  # two buffers of each kind
        self._sums = np.ones((2, 1))

    def one_after_another(self) -> None:
        for index in self.mine:
            self.win.Get(self._blocks[0], HOST, index * self.numbers)
            self.win.Flush(HOST)
            self._work(0)
            self.win.Put(self._squares[0], HOST, self.results + index * self.numbers)
            self.win.Flush(HOST)
            self.win.Accumulate(self._sums[0], HOST, self.total, op=MPI.SUM)
            self.win.Flush(HOST)

    def by_requests(self) -> None:
        going: list[list[MPI.Request]] = [[], []]
        coming = self.win.Rget(self._blocks[0], HOST, self.mine[0] * self.numbers)
        for turn, index in enumerate(self.mine):
            now, then = turn % 2, (turn + 1) % 2
            coming.Wait()  # the block is here
            if turn + 1 < len(self.mine):
                following = self.mine[turn + 1] * self.numbers
                coming = self.win.Rget(self._blocks[then], HOST, following)
            MPI.Request.Waitall(going[now])  # of two turns ago: the buffers are ours again
            self._work(now)
            place = self.results + index * self.numbers
            going[now] = [
                self.win.Rput(self._squares[now], HOST, place),
                self.win.Raccumulate(self._sums[now], HOST, self.total, op=MPI.SUM),
            ]
        MPI.Request.Waitall(going[0] + going[1])
        self._squares[:] = self._sums[:] = np.nan  # ours again, wherever the numbers are by now
        self.win.Flush(HOST)  # and now they are in the window

    def _work(self, side: int) -> None:
        np.multiply(self._blocks[side], self._blocks[side], out=self._squares[side])
        self._sums[side] = self._squares[side].sum()

    def fill(self, offset: int) -> None:
        """Write this rank's blocks, and clear what has come of them."""
        for index in self.mine:
            block = numbers_of(index, self.numbers) + offset
            cleared = np.full(self.numbers, np.nan)
            self.win.Put(block, HOST, index * self.numbers)
            self.win.Put(cleared, HOST, self.results + index * self.numbers)
            self.win.Flush(HOST)  # MPI reads both until here: they must live as long
        if 0 in self.mine:
            total = np.zeros(1)
            self.win.Put(total, HOST, self.total)
            self.win.Flush(HOST)

    def get(self, at: int, count: int = 1) -> NDArray[np.float64]:
        numbers = np.empty(count)
        self.win.Get(numbers, HOST, at)
        self.win.Flush(HOST)
        return numbers


def numbers_of(index: int, count: int) -> NDArray[np.float64]:
    """Return what block `index` begins with: whole numbers, so that sums are exact."""
    return np.arange(index, index + count) % 1000.0


def right(blocks: Blocks) -> bool:
    """Return whether the window holds the squares of the next rank's blocks, and their total."""
    n, total, fine = blocks.numbers, 0.0, True
    theirs = {(index + 1) % blocks.count for index in blocks.mine}
    for index in range(blocks.count):
        squares = numbers_of(index, n) ** 2
        total += squares.sum()
        if index in theirs:
            fine &= np.array_equal(blocks.get(blocks.results + index * n, n), squares)
    return fine and blocks.get(blocks.total)[0] == total


def seen_at_target(demo: Demonstration, blocks: Blocks) -> tuple[int, int]:
    """Return in how many trials an Rput was at the target after its Wait, and after a flush."""
    number = np.zeros(1)
    counts = [0, 0]
    for trial in range(1, TRIALS + 1):
        if demo.rank == demo.size - 1:
            number[0] = trial
            blocks.win.Rput(number, HOST, blocks.total).Wait()
            number[0] = -1  # ours again
        for i in range(2):
            demo.comm.Barrier()
            counts[i] += blocks.get(blocks.total)[0] == trial
            demo.comm.Barrier()
            blocks.win.Flush(HOST)
    return counts[0], counts[1]


def costs(blocks: Blocks) -> str:
    """Return a table of how long each call takes, and its completion."""
    buffer = np.zeros(blocks.numbers)
    win, at = blocks.win, blocks.results
    calls = {
        "Rget": lambda: win.Rget(buffer, HOST, at),
        "Rput": lambda: win.Rput(buffer, HOST, at),
        "Raccumulate": lambda: win.Raccumulate(buffer, HOST, at, op=MPI.SUM),
    }
    text = f"{buffer.nbytes:>9,} bytes    in the call    in Wait   in Flush"
    for name, call in calls.items():
        times = []
        for _ in range(50):
            begun = time.perf_counter()
            request = call()
            called = time.perf_counter()
            request.Wait()
            waited = time.perf_counter()
            win.Flush(HOST)
            times.append((called - begun, waited - called, time.perf_counter() - waited))
        us = 1e6 * np.median(times, axis=0)
        text += f"\n{name:<15}{us[0]:>15.1f} us{us[1]:>8.1f} us{us[2]:>8.1f} us"
    return text


def main() -> int:
    """Square all blocks in both ways, check them, and look what completion means."""
    demo = Demonstration(__doc__)
    demo.parser.add_argument("--blocks", type=int, default=4, help="of each rank (4)")
    demo.parser.add_argument("--numbers", type=int, default=1 << 15, help="in a block (32768)")
    options = demo.begin()
    if options.blocks < 1 or options.numbers < 1:
        demo.parser.error("--blocks and --numbers: at least 1")
    blocks = Blocks(demo.comm, options.blocks, options.numbers)

    for way in (blocks.one_after_another, blocks.by_requests):
        times_ms, fine = [], True
        for _ in range(ROUNDS):
            blocks.fill(demo.sabotage and demo.rank == HOST)
            demo.comm.Barrier()
            begun = time.perf_counter()
            way()
            times_ms.append(demo.comm.allreduce(1e3 * (time.perf_counter() - begun), MPI.MAX))
            fine &= right(blocks)
            demo.comm.Barrier()
        name = way.__name__.replace("_", " ")
        demo.say(f"{name}: {np.median(times_ms):.2f} ms on the slowest rank, median of {ROUNDS}")
        demo.check(f"{name}: every square, and the total", fine)

    demo.say()
    demo.say_each(costs(blocks) if demo.rank == demo.size - 1 else "")
    after_wait, after_flush = seen_at_target(demo, blocks)
    demo.say(
        f"\nRput, seen at the target: after its Wait {after_wait} times of {TRIALS} (not promised),"
        f" after a flush {after_flush}"
    )
    demo.check("after a flush it was always there", after_flush == TRIALS)
    blocks.win.Unlock_all()
    blocks.win.Free()
    return demo.end(
        "workpool/rma/words.py, Words.compare_and_swap_all: many calls under way, one flush;\n"
        "Claimant.complete has the commit of a task and the claim of the next one share it"
    )


if __name__ == "__main__":
    sys.exit(main())
