"""Persistent requests: messages around a ring, set up once and started again and again.

    mpiexec -n 4 python demos/rma/03_ring.py
    mpiexec -n 4 python demos/rma/03_ring.py --steps 2000 --nbytes 8 1024

The two-sided counterpart of the fence: every rank sends to its right neighbour and receives from
its left one, the same buffers in every step. A persistent request (MPI-4.1, 3.9) fixes buffer,
datatype, partner and tag for good, so that a step is Startall and Waitall; a plain Isend has all
that checked and set up anew each time, by MPI and by mpi4py before it. What is saved is a fixed
cost at the start of each message. It is a large part of that start, and a small part of the whole
step, which is mostly waiting for the neighbours; with more ranks than cores it drowns in that.

Every rank starts with its own number. What arrives is passed on in the next step, increased by
one, so after s steps a rank must hold the number of the rank s places to its left, plus s.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from time import perf_counter

import numpy as np
from demonstration import Demonstration
from mpi4py import MPI

ROUNDS = 5  # of each kind, taken in turn


class Ring:
    """One rank's place in the ring, with the buffers that every step uses."""

    def __init__(self, comm: MPI.Intracomm, nbytes: int) -> None:
        self.comm = comm
        self.left = (comm.rank - 1) % comm.size
        self.right = (comm.rank + 1) % comm.size
        self.out = np.zeros(nbytes // 8, np.int64)
        self.into = np.zeros_like(self.out)
        self.kept = [comm.Recv_init(self.into, self.left), comm.Send_init(self.out, self.right)]

    def nonblocking(self) -> Sequence[MPI.Request]:
        """Start a step with requests that are made for it."""
        return [self.comm.Irecv(self.into, self.left), self.comm.Isend(self.out, self.right)]

    def persistent(self) -> Sequence[MPI.Request]:
        """Start a step with the requests that are there."""
        MPI.Prequest.Startall(self.kept)
        return self.kept

    def go(self, start: Callable[[], Sequence[MPI.Request]], steps: int, number: int) -> np.ndarray:
        """Pass numbers on; return the microseconds of each start and of each whole step."""
        self.out[:] = number
        times_us = np.empty((steps, 2))
        self.comm.Barrier()
        for step in range(steps):
            begun = perf_counter()
            requests = start()
            started = perf_counter()
            MPI.Request.Waitall(requests)
            times_us[step] = (started - begun) * 1e6, (perf_counter() - begun) * 1e6
            np.add(self.into, 1, out=self.out)
        return times_us

    def expected(self, steps: int) -> int:
        """Return what every element must be after some steps."""
        return (self.comm.rank - steps) % self.comm.size + steps

    def free(self) -> None:
        """Give the requests back: a persistent one outlives its completion."""
        for request in self.kept:
            request.Free()


def main() -> int:
    """Time both kinds of start for messages of several sizes."""
    demo = Demonstration(__doc__)
    demo.parser.add_argument("--nbytes", type=int, nargs="+", default=[8, 4096, 262144])
    demo.parser.add_argument("--steps", type=int, default=100, help="in each round")
    options = demo.begin()
    if min(options.nbytes) < 8 or options.steps < 1:
        demo.parser.error("--nbytes: at least 8; --steps: at least 1")

    demo.say(f"{'us on rank 0, median':<20}{'start':>20}{'':<17}{'whole step':>13}")
    demo.say(f"{'message':<20}" + 2 * f"{'nonblocking':>18}{'persistent':>12}")
    right = True
    for nbytes in options.nbytes:
        ring = Ring(demo.comm, nbytes)
        measured = []
        for start in [ring.nonblocking, ring.persistent] * ROUNDS:
            number = demo.rank + (demo.sabotage and demo.rank == 0)
            measured.append(ring.go(start, options.steps, number))
            right &= bool(np.all(ring.out == ring.expected(options.steps)))
        ring.free()
        rounds = np.reshape(measured, (ROUNDS, 2, options.steps, 2))
        plain, kept = np.median(rounds, axis=(0, 2))  # each: start, whole step
        cells = "".join(f"{a:>18.1f}{b:>12.1f}" for a, b in zip(plain, kept, strict=True))
        demo.say(f"{nbytes:>9,} bytes     {cells}")

    demo.say()
    demo.check("every number has come round as often as it should", right)
    return demo.end(
        "workpool/rma/words.py, Words.__init__: the buffers of every atomic are made\n"
        "once (_slots) and used again for each call, because setting up costs more than the atomic"
    )


if __name__ == "__main__":
    sys.exit(main())
