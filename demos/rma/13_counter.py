"""Three ways to take items from a shared counter: two of them race, counted and drawn.

    mpiexec -n 4 python demos/rma/13_counter.py
    mpiexec -n 8 python demos/rma/13_counter.py --plot counter.png      needs matplotlib

A counter in the window of rank 0 holds the number of the next item. Every rank takes items until
none is left; to take one is to read the counter and to lower it by one.

Get, Put            A rank that is slow to put back what it read overwrites what the others did
                    meanwhile: the counter goes up again, and items are done twice or more.
Get, Accumulate     The update is atomic, so the counter is right. The pair is not: two ranks read
                    the same number, both subtract, and the number below it is handed to nobody.
Fetch_and_op        Reading and lowering are one atomic: every item is taken exactly once. The loop
                    ends at the first number that is not positive; each rank draws one such.

MPI promises atomicity for each accumulate call, and for no pair of calls (MPI-4.1, 12.7.1). What a
Get returns beside a concurrent update is undefined (12.7). So the items are checked for the last
way and the counter for the last two; of the first two it is shown that they race. To do an item is
nothing at all here, or a pause of up to 50 us.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import numpy as np
from demonstration import Demonstration, mpi_name
from mpi4py import MPI
from numpy.typing import NDArray

HOST = 0  # the rank with the counter
ENOUGH = 20  # items taken again, to see a race well
PATIENCE_S = 5.0  # how long to go on for them


class Counter:
    """One int64 in the window of rank `HOST`, and an access epoch for the whole program."""

    def __init__(self, comm: MPI.Intracomm) -> None:
        self.win = MPI.Win.Allocate(8 if comm.Get_rank() == HOST else 0, 8, comm=comm)
        self.win.Lock_all()
        self.updates = 0  # made by this rank
        self._old, self._new = np.zeros((2, 1), np.int64)
        self._minus_one = np.full(1, -1, np.int64)

    def get(self) -> int:
        self.win.Get(self._old, HOST)
        self.win.Flush(HOST)  # the value is here only now
        return int(self._old[0])

    def put(self, value: int) -> None:
        self._new[0] = value
        self.win.Put(self._new, HOST)
        self.win.Flush(HOST)
        self.updates += 1

    def take_by_put(self) -> int:
        if (value := self.get()) > 0:
            self.put(value - 1)
        return value

    def take_by_accumulate(self) -> int:
        if (value := self.get()) > 0:
            self.win.Accumulate(self._minus_one, HOST, op=MPI.SUM)
            self.win.Flush(HOST)
            self.updates += 1
        return value

    def take_by_fetch_and_op(self) -> int:
        self.win.Fetch_and_op(self._minus_one, self._old, HOST, 0, MPI.SUM)
        self.win.Flush(HOST)
        self.updates += 1
        return int(self._old[0])


PUT, ACCUMULATE, FETCH_AND_OP = "Get, Put", "Get, Accumulate", "Fetch_and_op"
WAYS: dict[str, Callable[[Counter], int]] = {
    PUT: Counter.take_by_put,
    ACCUMULATE: Counter.take_by_accumulate,
    FETCH_AND_OP: Counter.take_by_fetch_and_op,
}


class Round(NamedTuple):
    """One countdown: what all ranks did together, and what this rank took and when."""

    takes: NDArray[np.int64]  # how often each item was taken; item 1 first
    again: int
    never: int
    updates: int
    fell_by: int
    mine: list[tuple[float, int]]  # second and item


def count_down(demo: Demonstration, counter: Counter, way: str, items: int, start: int) -> Round:
    """Take items on every rank until none is left."""
    if demo.rank == HOST:
        counter.put(start)
    counter.updates = 0
    demo.comm.Barrier()
    mine = []
    while (item := WAYS[way](counter)) > 0:
        mine.append((time.perf_counter(), item))
        if random.random() < 0.25:
            time.sleep(50e-6 * random.random())
    demo.comm.Barrier()
    takes = np.bincount([item for _, item in mine], minlength=items + 1)[1:].astype(np.int64)
    demo.comm.Allreduce(MPI.IN_PLACE, takes)
    again, never = np.maximum(takes - 1, 0).sum(), np.count_nonzero(takes == 0)
    end = demo.comm.bcast(counter.get() if demo.rank == HOST else None, HOST)
    updates = demo.comm.allreduce(counter.updates)
    return Round(takes, int(again), never, updates, items - end, mine)


def play(demo: Demonstration, counter: Counter, way: str, items: int, least: int) -> list[Round]:
    """Count down `least` times; where a race is to be seen, more often until it is."""
    rounds: list[Round] = []
    end = time.perf_counter() + (0 if way == FETCH_AND_OP else PATIENCE_S)
    while len(rounds) < least or demo.comm.bcast(
        sum(each.again for each in rounds) < ENOUGH and time.perf_counter() < end
    ):
        broken = demo.sabotage and way == FETCH_AND_OP and not rounds
        rounds.append(count_down(demo, counter, way, items, items - broken))
    return rounds


def picture(demo: Demonstration, path: Path, played: dict[str, list[Round]]) -> None:
    """Draw all rounds, and some of the one with most items taken again, as it went."""
    shown = {}
    for way, rounds in played.items():
        worst = max(rounds, key=lambda each: each.again)
        shown[way] = worst, demo.comm.gather(worst.mine)
    if demo.rank == 0:
        from counter_picture import draw

        draw(path, f"A shared counter, three ways: {demo.size} ranks, {mpi_name()}", played, shown)
        print(f"\ndrawn: {path}")


def drawable(path: str) -> Path:
    """Return the path of a picture, or say why none can be drawn."""
    if find_spec("matplotlib") is None:
        raise argparse.ArgumentTypeError("matplotlib is not installed: pip install matplotlib")
    if not Path(path).parent.is_dir() or Path(path).suffix not in (".png", ".pdf", ".svg"):
        raise argparse.ArgumentTypeError(f"{path}: name a .png, .pdf or .svg in a directory")
    return Path(path)


def main() -> int:
    """Play each way, print and check what happened."""
    demo = Demonstration(__doc__)
    demo.parser.add_argument("--items", type=int, default=200, help="of one countdown (200)")
    demo.parser.add_argument("--rounds", type=int, default=50, help="countdowns of each way (50)")
    demo.parser.add_argument("--plot", type=drawable, metavar="FILE.png", help="draw the race")
    options = demo.begin()
    if options.items < 1 or options.rounds < 1:
        demo.parser.error("--items and --rounds: at least 1")

    counter = Counter(demo.comm)
    played = {way: play(demo, counter, way, options.items, options.rounds) for way in WAYS}
    counter.win.Unlock_all()
    counter.win.Free()

    demo.say("                  rounds   items   taken again   never taken   updates   fell by")
    for way, rounds in played.items():
        sums = (sum(column) for column in zip(*(each[1:5] for each in rounds), strict=True))
        cells = (len(rounds), len(rounds) * options.items, *sums)
        widths = (8, 8, 14, 14, 10, 10)
        demo.say(f"{way:<16}" + "".join(f"{c:>{w},}" for c, w in zip(cells, widths, strict=True)))
    demo.say()
    for way in (PUT, ACCUMULATE):
        demo.check(f"{way}: the race was seen", any(each.again for each in played[way]))
    for way in (ACCUMULATE, FETCH_AND_OP):
        right = all(each.fell_by == each.updates for each in played[way])
        demo.check(f"{way}: the counter fell by one for each update", right)
    once = all((each.takes == 1).all() for each in played[FETCH_AND_OP])
    demo.check(f"{FETCH_AND_OP}: every item was taken exactly once in every round", once)
    if options.plot:
        picture(demo, options.plot, played)
    return demo.end(
        "workpool/repository/tickets.py, CounterTaker.take: tickets by one Fetch_and_op"
    )


if __name__ == "__main__":
    sys.exit(main())
