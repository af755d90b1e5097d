"""Halo update: heat spreads over a grid cut into slabs, whose edge rows cross by Put or by Get.

    mpiexec -n 4 python demos/rma/09_halo.py
    mpiexec -n 4 python demos/rma/09_halo.py --rows 2000 --columns 2000 --steps 20

A Jacobi step makes every point the mean of its four neighbours. A rank owns some rows and needs one
more on either side, its halo. Between two fences the halo is under way and the core is computed,
all that does not need it; after the closing fence come the first and the last row. The result must
equal NumPy's on the whole grid, bit by bit.

A fence may be told what it need not do (MPI-4.1, 12.5.5). What is true depends on what the window
holds, which is why it is small here: with Put the two rows that neighbours fill, with Get the two
rows that neighbours fetch. Grid and halo then lie elsewhere, and may be stored to at any time.

             opening                          closing
    both     NOPRECEDE: no call to complete   NOSUCCEED: no call before the next opening
    both                                      NOPUT: until then nobody puts
    both                                      NOSTORE: in between I stored nothing in my window
    Put      NOSTORE: nor since the last one, only neighbours write there
    Get      NOPUT: they only get; but not NOSTORE, for I have just stored my edge rows

(Were the whole slab the window, computing would store into it: NOSTORE would be false at the
opening fence, and with Get at the closing one as well, because what is got would land there.)

An assertion is a permission. Neither MPI makes use of it here: the same two fences around a Put of
8 bytes between 2 ranks take 6.3 us with MPICH and 1.0 us with Open MPI, with assertions or without.
"""

from __future__ import annotations

import sys
from time import perf_counter

import numpy as np
from demonstration import Demonstration
from mpi4py import MPI

ABOVE, BELOW = 0, 1  # rows of a halo
FIRST, LAST = 0, 1  # rows of a slab's edges
OPENING = {
    "Put": MPI.MODE_NOPRECEDE | MPI.MODE_NOSTORE,
    "Get": MPI.MODE_NOPRECEDE | MPI.MODE_NOPUT,
}
CLOSING = MPI.MODE_NOSTORE | MPI.MODE_NOPUT | MPI.MODE_NOSUCCEED


def jacobi(grid: np.ndarray) -> np.ndarray:
    """Return the means for all points but the outermost."""
    return 0.25 * ((grid[:-2, 1:-1] + grid[2:, 1:-1]) + (grid[1:-1, :-2] + grid[1:-1, 2:]))


class Slab:
    """One rank's rows of a grid, and the two fences of a step.

    Parameters
    ----------
    comm : MPI.Intracomm
    grid : array
        The whole, with the fixed rows above and below.
    rows : slice
        Those that are this rank's.
    way : str
        "Put" or "Get".
    assertions : bool
        Whether the fences are told what they need not do.
    """

    def __init__(
        self, comm: MPI.Intracomm, grid: np.ndarray, rows: slice, way: str, assertions: bool
    ) -> None:
        self.upper = comm.rank - 1 if comm.rank > 0 else MPI.PROC_NULL
        self.lower = comm.rank + 1 if comm.rank < comm.size - 1 else MPI.PROC_NULL
        self.now = grid[rows].copy()
        self.after = self.now.copy()
        columns = grid.shape[1]
        self.win = MPI.Win.Allocate(2 * columns * 8, columns * 8, comm=comm)  # unit: one row
        self.window = np.frombuffer(self.win.tomemory(), float).reshape(2, columns)
        self.update = self.update_by_put if way == "Put" else self.update_by_get
        self.halo = self.window if way == "Put" else np.empty_like(self.window)
        self.halo[:] = np.nan  # a row that does not come is noticed
        if self.upper == MPI.PROC_NULL:
            self.halo[ABOVE] = grid[0]
        if self.lower == MPI.PROC_NULL:
            self.halo[BELOW] = grid[-1]
        self.win.Fence(MPI.MODE_NOPRECEDE | MPI.MODE_NOSUCCEED)  # the window has what was stored
        self.opening, self.closing = (OPENING[way], CLOSING) if assertions else (0, 0)

    def update_by_put(self) -> None:
        """Start to fill the neighbours' halos; the window is the halo."""
        self.win.Fence(self.opening)
        self.win.Put(self.now[0], self.upper, BELOW)
        self.win.Put(self.now[-1], self.lower, ABOVE)

    def update_by_get(self) -> None:
        """Start to fetch the neighbours' edges; the window is a copy of the edges."""
        self.window[FIRST], self.window[LAST] = self.now[0], self.now[-1]
        self.win.Fence(self.opening)
        self.win.Get(self.halo[ABOVE], self.upper, LAST)
        self.win.Get(self.halo[BELOW], self.lower, FIRST)

    def step(self) -> list[float]:
        """Replace every point by the mean of its neighbours; return when each part ended."""
        now, after, (above, below) = self.now, self.after, self.halo
        times = [perf_counter()]
        self.update()
        times.append(perf_counter())
        after[1:-1, 1:-1] = jacobi(now)
        times.append(perf_counter())
        self.win.Fence(self.closing)
        times.append(perf_counter())
        after[:1, 1:-1] = jacobi(np.stack([above, now[0], now[1]]))
        after[-1:, 1:-1] = jacobi(np.stack([now[-2], now[-1], below]))
        self.now, self.after = after, now
        times.append(perf_counter())
        return times


def main() -> int:
    """Compute it by Put and by Get, with and without assertions, and on the whole grid."""
    demo = Demonstration(__doc__)
    demo.parser.add_argument("--rows", type=int, default=400)
    demo.parser.add_argument("--columns", type=int, default=400)
    demo.parser.add_argument("--steps", type=int, default=50)
    options = demo.begin()
    if options.rows < 2 * demo.size or options.columns < 3 or options.steps < 1:
        demo.parser.error("--rows: at least 2 for each rank; --columns: 3; --steps: 1")

    start = np.random.default_rng(1).random((options.rows + 2, options.columns))
    whole = start.copy()
    for _ in range(options.steps):
        whole[1:-1, 1:-1] = jacobi(whole)
    rows = slice(*(1 + options.rows * each // demo.size for each in (demo.rank, demo.rank + 1)))

    demo.say(f"{options.rows} x {options.columns} points, {options.steps} steps")
    parts = ("open, ask", "core", "close", "edges")
    demo.say(f"{'us on rank 0, median':<24}" + "".join(f"{part:>11}" for part in parts))
    right = {}
    for way in OPENING:
        for assertions in (True, False):
            slab = Slab(demo.comm, start, rows, way, assertions)
            if demo.sabotage and demo.rank == 0:
                slab.now[-1, 1] += 1e-9
            parts_us = np.diff([slab.step() for _ in range(options.steps)]) * 1e6
            slab.win.Free()
            name = f"{way}, {'with' if assertions else 'no'} assertions"
            cells = "".join(f"{part:>11.1f}" for part in np.median(parts_us, axis=0))
            demo.say(f"{name:<24}{cells}")
            right[name] = np.array_equal(slab.now, whole[rows])

    demo.say()
    for name, same in right.items():
        demo.check(f"every point as NumPy has it on the whole grid: {name}", same)
    return demo.end(
        "workpool/arena.py, write: the segments of a payload are all on their way\n"
        "before one Flush completes them; a batch of atomics likewise, in\n"
        "rma/words.py, Words.compare_and_swap_all"
    )


if __name__ == "__main__":
    sys.exit(main())
