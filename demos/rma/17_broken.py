"""A short program with nine faults, point by point, beside one that is right.

    mpiexec -n 4 python demos/rma/17_broken.py
    MPIR_CVAR_NOLOCAL=1 mpiexec -n 4 python demos/rma/17_broken.py      MPICH, as over a network

What is wanted: every rank but 0 adds one to a counter of rank 0, and rank 0 waits until all have.
The wrong program is a sketch in C, printed with its faults; those that can be shown without harm
are shown on this MPI. On one host several of them go unpunished, which is what makes them last.
The right program is `count_all`, here in Python: each fault has its remedy at the number.
"""

from __future__ import annotations

import sys

import numpy as np
from demonstration import Demonstration, wait_until
from mpi4py import MPI

HOST = 0
SKETCH = """\
    int count[1], add = 1;
    MPI_Win_allocate(sizeof(MPI_INT), sizeof(MPI_INT), info, comm, count, &win);       // 1 2
    MPI_Win_lock_all(0, win);
    if (rank > 0)
        MPI_Fetch_and_op(&add, count, MPI_INT, 0, 0, MPI_SUM, win);                    // 3
    else
        for (count[0] = 0; count[0] != 4; printf("%d so far\\n", count[0]))             // 4 5 6 7
            MPI_Fetch_and_op(count, count, MPI_INT, 0, 0, MPI_NO_OP, win);             // 8
    return 0;                                                                          // 9
"""
FAULTS = """\
1  MPI_Win_allocate is to be told where a pointer is, and stores an address there (MPI-4.1,
   12.2.2). Here it is told of an int: {pointer} bytes go over {element}, and nobody knows where the
   window's memory is.
2  sizeof(MPI_INT) is the size of a handle, {handle} bytes on this MPI; an int takes {element}.
   Size and displacement unit are right by accident, or wrong with nobody to say so.
3  Those who add return with neither flush nor unlock: the call need not even have begun
   (12.5.4). Here it was in the window before its flush {landed} times of {trials}.
4  The 0 goes into a variable, and the window holds whatever it was allocated with. In the
   window it might come late, after others have added: that left {late} of {trials} here. Store it,
   MPI_Win_sync, a barrier, and only then add.
5  The number to wait for is 4 with five ranks only; here it is {others}. And a test for `!=` misses
   a counter that has gone past it.
6  The loop looks and prints as often as it can, and takes the core from those it waits for.
   The right program sleeps between two looks; it made {looks}. It also gives up after a minute.
7  The number is used before a flush says that it is here (12.5.4). Here it was in time
   {in_time} times of {trials}, which promises nothing.
8  One buffer is both origin and result: the two must be disjoint (12.3.4).
9  The epoch is not closed, the window not freed, MPI not finalized (12.5.3, 12.2.5)."""
TRIALS = 20


def count_all(demo: Demonstration, amount: int) -> tuple[int, int, int]:
    """Let every rank but 0 add; return what this one was told, what stands there, and the looks."""
    element = MPI.INT64_T.Get_size()  # 2: what an element takes, not its handle
    win = MPI.Win.Allocate(element if demo.rank == HOST else 0, element, comm=demo.comm)
    memory = np.frombuffer(win.tomemory(), np.int64)  # 1: the window is where MPI says it is
    mine, told = np.array([amount]), np.array([-1])  # 8: a buffer for each purpose
    looks = 0
    win.Lock_all()
    if demo.rank == HOST:
        memory[0] = 0  # 4: in the window itself, ...
        win.Sync()
    demo.comm.Barrier()  # 4: ... and before anybody adds

    def all_have_added() -> bool:
        nonlocal looks
        looks += 1
        win.Fetch_and_op(mine, told, HOST, 0, MPI.NO_OP)
        win.Flush(HOST)  # 7: the number is here only now
        return bool(told[0] >= demo.size - 1)  # 5: as many as the others are, and not `!=`

    if demo.rank == HOST:
        wait_until(all_have_added, "the others")  # 6: sleeps between looks, not for ever
    else:
        win.Fetch_and_op(mine, told, HOST, 0, MPI.SUM)
        win.Flush(HOST)  # 3: now it is counted
    demo.comm.Barrier()
    win.Sync()
    stands = demo.comm.bcast(int(memory[0]) if demo.rank == HOST else None)
    win.Unlock_all()  # 9: as for MPI itself, mpi4py finalizes it at exit
    win.Free()
    return int(told[0]), stands, demo.comm.bcast(looks)


def faults_here(demo: Demonstration) -> dict[str, int]:
    """Try the faults that do no harm: calls without a flush, and a 0 that comes late."""
    win = MPI.Win.Allocate(8 if demo.rank == HOST else 0, 8, comm=demo.comm)
    one, told, zero = np.array([1]), np.array([-1]), np.array([0])
    in_time = landed = late = 0
    win.Lock_all()
    if demo.rank == HOST:
        win.Put(zero, HOST)
        win.Flush(HOST)
    demo.comm.Barrier()

    def look() -> int:
        win.Fetch_and_op(zero, told, HOST, 0, MPI.NO_OP)
        win.Flush(HOST)
        return int(told[0])

    for trial in range(TRIALS):
        if demo.rank == demo.size - 1:
            told[0] = -1
            win.Fetch_and_op(one, told, HOST, 0, MPI.SUM)
            in_time += int(told[0]) == trial  # fault 7
        demo.comm.Barrier()
        if demo.rank == HOST:
            landed += look() == trial + 1  # fault 3
        demo.comm.Barrier()
        win.Flush(HOST)
        demo.comm.Barrier()
    if demo.rank == HOST:
        win.Put(zero, HOST)  # fault 4: all have added, and now comes who begins with 0
        win.Flush(HOST)
        late = look()
    demo.comm.Barrier()
    win.Unlock_all()
    win.Free()
    return {
        "in_time": demo.comm.bcast(in_time, demo.size - 1),
        "landed": demo.comm.bcast(landed, HOST),
        "late": demo.comm.bcast(late, HOST),
    }


def main() -> int:
    """Print the wrong program and its faults, run the right one and check it."""
    demo = Demonstration(__doc__)
    demo.begin()
    others = demo.size - 1
    told, stands, looks = count_all(demo, 1 + (demo.sabotage and demo.rank == others))
    sizes = {"pointer": np.intp().itemsize, "element": MPI.INT.Get_size()}
    shown = {**sizes, **faults_here(demo), "handle": MPI._sizeof(MPI.INT)}
    demo.say(SKETCH)
    demo.say(FAULTS.format(**shown, others=others, looks=looks, trials=TRIALS))
    demo.say(f"\nthe right program: {stands} of {others} counted")
    tickets = demo.comm.allgather(told)
    demo.check("the counter stands at the number of the others", stands == others)
    demo.check("rank 0 was told so", tickets[HOST] == others)
    demo.check("each other rank was told a number of its own", {*tickets[1:]} == {*range(others)})
    return demo.end(
        "workpool/rma/group.py, Group.allocate: store, barrier, one epoch for the window's life;\n"
        "rma/words.py, Words.fetch_add: two buffers, and no answer without its flush"
    )


if __name__ == "__main__":
    sys.exit(main())
