"""A tour of windows: four ways to make one, what each says of itself, and what a Put costs in it.

    mpiexec -n 4 python demos/rma/08_tour.py

Whatever its flavour, a window is used in the same way: one epoch of Lock_all, Put or Get, Flush
(MPI-4.1, 12.2 and 12.5). What differs is where the memory comes from:

create      opens an array that the program has already
allocate    MPI takes memory that others can reach well: the one to prefer
shared      the same, and every rank can load from and store to it directly; on one host only
dynamic     no memory at first; what is attached later is found by its absolute address, which its
            owner has to tell (the displacement unit is 1 byte, base and size are not known)

Every rank puts a number into its right neighbour's window, gets it back, and finds what its left
neighbour has put in its own memory. Then rank 0 measures one Put and Flush to rank 1: while that is
inside MPI, in a barrier, and while it is outside, asleep for 20 ms. MPICH and Open MPI both carry
out a Put into created or attached memory only when the target comes into MPI, even on one host;
allocated memory lies where the origin writes it alone.

Hints are promises about the use of a window. The MPI may make something of them, and says which it
has taken note of: MPICH of all of these, Open MPI of one.
"""

from __future__ import annotations

import sys
import time
from typing import NamedTuple

import numpy as np
from demonstration import Demonstration, median_us
from mpi4py import MPI

FLAVORS = {
    "create": MPI.WIN_FLAVOR_CREATE,
    "allocate": MPI.WIN_FLAVOR_ALLOCATE,
    "shared": MPI.WIN_FLAVOR_SHARED,
    "dynamic": MPI.WIN_FLAVOR_DYNAMIC,
}
COUNT = 512  # doubles in each rank's memory
AWAY_S = 0.02
MODELS = {MPI.WIN_UNIFIED: "unified", MPI.WIN_SEPARATE: "separate"}
HINTS = {
    "accumulate_ordering": "none",
    "accumulate_ops": "same_op",
    "same_disp_unit": "true",
    "same_size": "true",
    "no_locks": "false",
}


class Made(NamedTuple):
    """A window, this rank's memory in it, and the displacement of each rank's."""

    win: MPI.Win
    memory: np.ndarray
    starts: list[int]


def make(flavor: int, comm: MPI.Intracomm) -> Made:
    """Make a window of COUNT doubles on each rank, one of four ways."""
    memory, starts = np.zeros(COUNT), [0] * comm.size
    if flavor == MPI.WIN_FLAVOR_CREATE:
        win = MPI.Win.Create(memory, 8, comm=comm)
    elif flavor == MPI.WIN_FLAVOR_ALLOCATE:
        win = MPI.Win.Allocate(memory.nbytes, 8, MPI.Info.Create(HINTS), comm)
        memory = np.frombuffer(win.tomemory(), float)
    elif flavor == MPI.WIN_FLAVOR_SHARED:
        win = MPI.Win.Allocate_shared(memory.nbytes, 8, comm=comm)
        memory = np.frombuffer(win.tomemory(), float)
    else:
        win = MPI.Win.Create_dynamic(comm=comm)
        win.Attach(memory)
        starts = comm.allgather(MPI.Get_address(memory))  # and everybody has attached
    return Made(win, memory, starts)


def as_asked_for(made: Made, flavor: int) -> bool:
    """Return whether the window's attributes are those that it was made with."""
    expected = (MPI.Get_address(made.memory), made.memory.nbytes, made.memory.itemsize)
    if flavor == MPI.WIN_FLAVOR_DYNAMIC:
        expected = (0, 0, 1)  # MPI_BOTTOM, no memory, bytes
    return made.win.flavor == flavor and made.win.attrs == expected


def exchange(demo: Demonstration, made: Made) -> bool:
    """Put to the right and get it back; return whether it came, and what the left has put."""
    win, memory, starts = made
    unit = memory.itemsize // win.attrs[2]  # displacements of one element
    left, right = (demo.rank - 1) % demo.size, (demo.rank + 1) % demo.size
    memory[:] = 0
    win.Sync()  # what is stored here is there for Puts and Gets, too
    demo.comm.Barrier()
    number = np.array([1000.0 + demo.rank + (demo.sabotage and demo.rank == 0)])
    back = np.zeros(1)
    win.Put(number, right, starts[right] + unit * demo.rank)
    win.Flush(right)  # a Get is not ordered behind a Put
    win.Get(back, right, starts[right] + unit * demo.rank)
    win.Flush(right)
    demo.comm.Barrier()
    win.Sync()  # what others have put is there for loads, too
    seen = [(back[0], demo.rank), (memory[left], left)]
    if win.flavor == MPI.WIN_FLAVOR_SHARED:  # the neighbour's memory, by a plain load
        neighbours = np.frombuffer(win.Shared_query(right)[0], float)
        seen.append((neighbours[demo.rank], demo.rank))
    came = all(value == 1000 + rank for value, rank in seen) and np.count_nonzero(memory) == 1
    demo.meet()  # nobody puts anything else before all have looked
    return came


def costs(demo: Demonstration, pair: MPI.Intracomm, made: Made) -> tuple[float, float]:
    """Return the us of a Put and Flush of 8 bytes to rank 1, and the ms while that is away."""
    number = np.zeros(1)

    def put() -> None:
        made.win.Put(number, 1, made.starts[1])
        made.win.Flush(1)

    put_us = away_ms = 0.0
    if demo.rank == 0:
        put_us = median_us(put, calls=200)
    if demo.rank < 2:
        pair.Barrier()
    if demo.rank == 1:
        time.sleep(AWAY_S)
    if demo.rank == 0:
        time.sleep(1e-3)  # rank 1 has left the barrier
        begun = time.perf_counter()
        put()
        away_ms = (time.perf_counter() - begun) * 1e3
    demo.meet()
    return put_us, away_ms


def main() -> int:
    """Visit one flavour after another, then look at the hints."""
    demo = Demonstration(__doc__)
    demo.begin()
    pair = demo.comm.Split(demo.rank < 2)
    one_host = demo.comm.Split_type(MPI.COMM_TYPE_SHARED).size == demo.size
    asked = came = True
    kept: dict[str, str] = {}

    demo.say(f"{'':<9}{'window':>9}{'displace-':>11}{'memory':>9}{'Put and Flush to rank 1':>29}")
    demo.say(f"{'':<9}{'size':>9}{'ment unit':>11}{'model':>9}{'in MPI':>14}{'outside':>15}")
    for name, flavor in FLAVORS.items():
        if flavor == MPI.WIN_FLAVOR_SHARED and not one_host:
            demo.say(f"{name:<9}(not made: the ranks are on several hosts)")
            continue
        made = make(flavor, demo.comm)
        _, nbytes, unit = made.win.attrs
        asked &= as_asked_for(made, flavor)
        made.win.Lock_all(MPI.MODE_NOCHECK)
        came &= exchange(demo, made)
        put_us, away_ms = costs(demo, pair, made)
        made.win.Unlock_all()
        if flavor == MPI.WIN_FLAVOR_ALLOCATE:
            kept = dict(made.win.Get_info())
        if flavor == MPI.WIN_FLAVOR_DYNAMIC:
            made.win.Detach(made.memory)
        demo.say(
            f"{name:<9}{nbytes:>7,} B{unit:>9} B{MODELS[made.win.model]:>9}"
            f"{put_us:>11.1f} us{away_ms:>12.2f} ms"
        )
        made.win.Free()

    demo.say(f"\n{'hint for allocate':<25}{'asked for':<12}in use")
    for key, value in HINTS.items():
        demo.say(f"{key:<25}{value:<12}{kept.get(key, '-')}")

    demo.say()
    demo.check("base, size, unit and flavour are what was asked for", asked)
    demo.check("every number came, and came back", came)
    return demo.end(
        "workpool/rma/group.py, Group.allocate: Win.Allocate_shared on one host, Win.Allocate on\n"
        "several, never Win.Create: because of the last column"
    )


if __name__ == "__main__":
    sys.exit(main())
