"""The ranks of a job, and the few collective calls that they make."""

from __future__ import annotations

import math
import os
import threading
from array import array
from typing import Any

from ..clock import Stopwatch, monotonic, sleep
from ..errors import ResourceError, UsageError
from ..layout import PAGE_NBYTES, WORD_NBYTES
from ..system.ranks import size_here
from ..system.shared_memory import SHM, free, mpi_files, remove, unmappable
from ..system.streams import say
from ..whole import whole
from .mpi import MPI, unshared
from .naming import LEVELS, library_version
from .own import OwnWindow
from .patient import PatientWindow
from .ticker import Ticker
from .window import Window

#: How long the host of a window waits to see another rank count there, and how far that one counts.
PROBE_S = 0.1
PROBES = 4

#: How long the root of an SPMD program waits for the other ranks before it says so.
LATE_S = 10.0

#: What a rank must have left for a window besides its bytes: MPI takes a descriptor and some pages.
SPARE_FDS = 2
SPARE_NBYTES = 1 << 20

#: How often ranks that have come look whether all others have.
AWAIT_S = 1e-3

#: Most that is watched of a window: more would take too long where nothing else is to be done.
WATCHED_NBYTES = 1 << 15

#: Held during every call into MPI while there may be others: mpi4py may have been asked for less
#: than MPI_THREAD_MULTIPLE.
_IN_MPI = threading.Lock()


class Group:
    """Some ranks that share windows.

    Parameters
    ----------
    comm : MPI.Intracomm, optional
        Default: ``MPI.COMM_WORLD``.  It is duplicated, so no traffic of the caller's is met.
    root : int
        The rank of `comm` that becomes rank 0 of the group; the others keep their order.
    mortal : bool
        Whether ranks may die, and the others go on.
    spmd : bool
        Whether it is a program that has each rank come here, and may forget one.

    Attributes
    ----------
    rank, size : int
        Ours in the group, and how many there are.
    one_host : bool
        Whether every rank shares memory with every other.
    comm : MPI.Intracomm
        Of all ranks.

    Raises
    ------
    UsageError
        If this cannot be the group of a job.
    """

    def __init__(
        self,
        comm: MPI.Intracomm | None = None,
        root: int = 0,
        mortal: bool = False,
        spmd: bool = False,
    ) -> None:
        _check()
        if comm is None:
            comm = MPI.COMM_WORLD
            if comm.Get_size() == 1 and size_here() > 1:
                name = library_version().partition(",")[0]
                remove(mpi_files(os.getpid()))  # Open MPI forgets it
                raise UsageError(
                    f"{size_here()} ranks were started, and MPI ({name}) knows of this one alone: "
                    "by the mpiexec of another MPI, or an srun that speaks another PMI (srun "
                    "--mpi=list); `workpool run` finds the right one"
                )
        check_root(comm, root)
        rank = comm.Get_rank()
        if spmd:
            _await_others(comm, rank == root)
        self._root = root
        self._lock = _IN_MPI
        order = -1 if rank == root else rank
        node = comm.Split_type(MPI.COMM_TYPE_SHARED, order)
        self.one_host = node.Get_size() == comm.Get_size()
        if not self.one_host:
            node.Free()
        self.comm = MPI.Intracomm(node if self.one_host else comm.Split(0, order))
        self.rank = self.comm.Get_rank()
        self.size = self.comm.Get_size()
        world = MPI.COMM_WORLD
        self._own = world.Get_rank() if 1 < self.size == world.Get_size() else None
        patient = not self.one_host and (mortal or "Open MPI" in library_version())
        self._kind: type[Window] = PatientWindow if patient else Window
        if self.size == 1:
            self._kind = OwnWindow
        self._advancing = False  # whether it was seen that calls do without the host of a window
        self._windows: list[Window] = []  # that were opened, some of them closed since
        self._most_free = 0  # bytes of shared memory, as far as was seen

    def outer(self, rank: int) -> int:
        """Return which rank of the caller's communicator one of the group is."""
        return self._root if rank == 0 else rank - (rank <= self._root)

    def inner(self, rank: int) -> int:
        """Return which rank of the group one of the caller's communicator is."""
        return 0 if rank == self._root else rank + (rank < self._root)

    def is_own_rank(self, number: int, comm: object) -> bool:
        """Tell whether a number is ours in ``MPI.COMM_WORLD``, and the group all of that."""
        return isinstance(comm, MPI.Comm) and comm == MPI.COMM_WORLD and number == self._own

    def agree(self, mine: bool) -> bool:
        """Return whether every rank says yes.  Collective."""
        one, everybody = array("i", [mine]), array("i", [0])
        with self._lock:  # not `allreduce`, which needs what is gone when MPI is being finalized
            self.comm.Allreduce(one, everybody, MPI.MIN)
        return bool(everybody[0])

    def gather(self, mine: Any) -> list[Any]:
        """Return everybody's value, by rank, on every rank.  Collective."""
        with self._lock:
            return self.comm.allgather(mine)

    def first(self, count: int) -> MPI.Intracomm:
        """Return a communicator of the first so many ranks after 0.  Collective, for these."""
        with self._lock:
            everybody = self.comm.Get_group()
            some = everybody.Range_incl([(1, count, 1)])
            comm = self.comm.Create_group(some)
            some.Free()
            everybody.Free()
        return comm

    def free(self, comm: MPI.Intracomm) -> None:
        """Free what `first` has returned.  Collective, for its ranks."""
        with self._lock:
            comm.Free()

    @whole  # as long as it has the lock
    def answers(self, limit_s: float) -> bool:
        """Return whether no call into MPI is under way, waiting for its end if need be."""
        if not self._lock.acquire(timeout=limit_s):
            return False
        self._lock.release()
        return True

    def allocate(
        self,
        nbytes: int,
        host: int,
        clear_nbytes: int,
        start: bytes = b"",
        watched_nbytes: int = PAGE_NBYTES,
    ) -> Window:
        """Allocate a window at rank `host`, and open the access epoch.  Collective.

        Parameters
        ----------
        nbytes : int
            Size of the window.
        host : int
            The rank that gives the memory.
        clear_nbytes : int
            How much of it is zero at first; the rest is whatever MPI returns.
        start : bytes
            What it begins with instead.
        watched_nbytes : int
            What changes at its beginning whenever others do something there: see ``Ticker``.

        Raises
        ------
        ResourceError
            On every rank, if one lacks memory or descriptors for it, or MPI allocates none.

        Notes
        -----
        Never ``MPI_Win_create``: with it one-sided calls stall until the target enters MPI, even on
        one node, and cost fifty times as much.  Where they stall all the same, a thread on the host
        enters MPI again and again.  On one host every rank gets the memory itself, by
        ``MPI_Win_allocate_shared``: to load from it costs a third of a Get and its flush.
        """
        mine = nbytes if self.rank == host else 0
        lack = self._lack(nbytes, mine)
        if not self.agree(not lack):
            lacks = self.gather(lack)
            short = next(rank for rank, lack in enumerate(lacks) if lack)
            raise ResourceError(
                f"a window of {nbytes:,} bytes cannot be opened: rank {self.outer(short)} "
                f"{lacks[short]}"
            )
        with self._lock:
            try:
                shared = self.one_host and self.size > 1
                make = MPI.Win.Allocate_shared if shared else MPI.Win.Allocate
                win = make(mine, 1, comm=self.comm)
            except MPI.Exception as error:
                remedy = "lower arena_nbytes= (WORKPOOL_ARENA_NBYTES)"
                if shared and (choice := unshared()):
                    remedy = f"{choice} leaves out sm, by which one host shares memory: add it"
                raise ResourceError(
                    f"MPI allocates no window of {nbytes:,} bytes ({error.Get_error_string()}): "
                    f"{remedy}"
                ) from error
            memory = memoryview(win.tomemory()).cast("B")  # type: ignore[arg-type]
            win.Lock_all(MPI.MODE_NOCHECK)
            unified = win.model == MPI.WIN_UNIFIED
        if self.one_host and unified and not self._advancing:
            self._advancing = self._advances(win, host, memory)
        if not mine and self._advancing:
            memory = self._lent(win, host, nbytes)
        if mine:
            for at in range(0, clear_nbytes, PAGE_NBYTES):  # there may be no memory for all at once
                page = memory[at : min(at + PAGE_NBYTES, clear_nbytes)]
                page[:] = bytes(len(page))
            memory[: len(start)] = start
        with self._lock:
            win.Sync()
            self.comm.Barrier()  # nobody looks before the host has written the start
        ticker = None
        if mine and not self._advancing:
            ticker = Ticker(memory[: min(watched_nbytes, WATCHED_NBYTES)], self._lock)
            ticker.start()
        own = memory if unified and memory else None
        window = self._kind(win, host, nbytes, self._lock, own, ticker)
        self._windows.append(window)
        return window

    def _lack(self, nbytes: int, mine: int) -> str:
        """Return what this rank lacks for a window, and what to do; "" if nothing.

        Where one rank alone fails in the call that allocates, Open MPI lets the others wait for it;
        and MPICH 5.0 ends by a segmentation fault where a lone process gets no second window.

        Parameters
        ----------
        nbytes : int
            Of the window.
        mine : int
            Those that this rank gives.
        """
        alone = self.size == 1  # whose window is its own memory
        room = None if alone else self.room()
        if room is not None and mine > room:
            return (
                f"has {room:,} bytes left in {SHM} of its host: lower arena_nbytes= "
                "(WORKPOOL_ARENA_NBYTES), remove left-over files there, or enlarge it "
                "(docker run --shm-size=1g), or raise what a file may have (ulimit -f)"
            )
        mapped = nbytes if self.one_host else mine
        why = unmappable(mapped + SPARE_NBYTES if mapped else 0, SPARE_FDS, private=alone)
        return why and (
            f"cannot map it ({why}): lower arena_nbytes= (WORKPOOL_ARENA_NBYTES), or see what is "
            "short there, open files (ulimit -n) or memory (ulimit -v)"
        )

    def _lent(self, win: MPI.Win, host: int, nbytes: int) -> memoryview:
        """Return the memory of another rank of this host; nothing if MPI does not lend it."""
        nothing = memoryview(b"")
        try:
            with self._lock:
                lent, _ = win.Shared_query(host)
        except MPI.Exception:
            return nothing
        memory = memoryview(lent).cast("B")  # type: ignore[arg-type]
        return memory if len(memory) >= nbytes else nothing

    def room(self) -> int | None:
        """Return how many bytes of this host's shared memory are left; None if any number may be.

        Some of what is free now is taken: a window gets its memory when that is first touched.
        """
        left = free()
        if left is None or self.size == 1:  # whose windows are its own memory
            return left
        self._windows = [window for window in self._windows if not window.closed]
        here = [window for window in self._windows if self.one_host or window.host == self.rank]
        self._most_free = max(self._most_free, left)
        return max(0, min(left, self._most_free - sum(window.nbytes for window in here)))

    def _advances(self, win: MPI.Win, host: int, memory: memoryview) -> bool:
        """Return whether the calls of others are carried out while the host is outside of MPI.

        Collective.  They are where MPI shares the memory of one host; where it does not (MPICH 4.0
        over UCX), each waits until the host enters MPI, for as long as a task may take.  So the
        host watches its memory without entering while another rank counts there.
        """
        if self.size == 1:
            return True
        seen = True
        count = memory[:WORD_NBYTES].cast("q")
        if self.rank == host:
            count[0] = 0
        with self._lock:
            self.comm.Barrier()
            if self.rank == host:
                # What was counted before this look may have been while we were in the barrier.
                first, end = count[0], monotonic() + PROBE_S
                while count[0] == first < PROBES and monotonic() < end:
                    sleep(PROBE_S / 1000)
                seen = count[0] != first or first == PROBES
            elif self.rank == (1 if host == 0 else 0):
                one, old = array("q", [1]), array("q", [0])
                for _ in range(PROBES):
                    win.Fetch_and_op(one, old, host, 0, MPI.SUM)
                    win.Flush(host)
                    sleep(PROBE_S / 500)
        return self.agree(seen)

    def abort(self, status: int) -> None:
        """End every process of the job."""
        MPI.COMM_WORLD.Abort(status)

    def close(self) -> None:
        """Free the communicator.  Collective."""
        self.comm.Free()


def world_size() -> int:
    """Return the number of ranks of ``MPI.COMM_WORLD``.

    Raises
    ------
    UsageError
        If MPI is not such that ranks can share windows.
    """
    _check()
    return MPI.COMM_WORLD.Get_size()


def check_root(comm: MPI.Intracomm | None, root: int) -> None:
    """See that a communicator can be that of a group, with one of its ranks as its rank 0.

    Raises
    ------
    UsageError
        If it cannot.
    """
    comm = MPI.COMM_WORLD if comm is None else comm
    if not isinstance(comm, MPI.Comm) or comm == MPI.COMM_NULL or comm.Is_inter():
        raise UsageError(f"comm={comm!r}: workpool needs an intra-communicator")
    if root not in range(comm.Get_size()):  # nor between two of them
        raise UsageError(f"root={root!r}: the communicator has ranks 0 to {comm.Get_size() - 1}")


def _check() -> None:
    """See that MPI runs, and lets several threads call it, one at a time."""
    if MPI.Is_finalized():
        raise UsageError("MPI is finalized: no pool can be made any more")
    if not MPI.Is_initialized():
        raise UsageError("MPI is not initialized: call MPI.Init_thread() before you make a pool")
    if (level := MPI.Query_thread()) < MPI.THREAD_SERIALIZED:
        raise UsageError(
            f"MPI was initialized with thread level {LEVELS[level]}, and a pool calls it from "
            'several threads, one at a time: leave mpi4py.rc.thread_level at "multiple", or set it '
            'to "serialized"'
        )


def _await_others(comm: MPI.Intracomm, tell: bool) -> None:
    """Wait asleep until every other rank has come here; perhaps say so if that takes long."""
    met = comm.Ibarrier()
    watch, late_s = Stopwatch(), LATE_S if tell else math.inf
    while not met.Test():
        if watch.look() > late_s:
            say(
                f"this rank has waited for other ranks for {LATE_S:g} s, and goes on waiting: call "
                "workpool.run, or enter an MPICommExecutor, on every rank of the communicator"
            )
            late_s = math.inf
        sleep(AWAIT_S)
