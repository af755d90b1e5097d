"""What a job does beside its work when it outlives its dead: watch, tell, leave.

A rank that dies leaves MPI as it is: the windows of others go on working, but a collective call
that counts on the dead never ends, ``MPI_Finalize`` included, nor does a call that waits for a lock
which the dead has held, unless that can be unlocked.  So every rank has a ``Sentry``, a thread that
looks whether it can go on, and nobody leaves by way of MPI.
"""

from __future__ import annotations

import atexit
import ctypes
import faulthandler
import itertools
import os
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, NoReturn

from ..clock import sleep
from ..members.liveness import Liveness
from ..system import supervisor
from ..system.abandoned import unlock
from ..system.shared_memory import WAS_FULL, mpi_files, remove
from ..system.status import VARIABLE
from ..system.streams import VitalThread, flush

if TYPE_CHECKING:
    from .. import rma

#: How often a sentry looks, which costs some 20 us for each member that it looks after.
SENTRY_S = 0.25

#: How long supervisors may take, all together, to note how their ranks have ended.
NOTE_S = 2.0

#: A call into MPI that is seen so often after a death does not end: it is collective, or waits for
#: a lock that the dead has held.  Looks are counted, because a rank may be stopped for a while.
STUCK = 10

#: How long MPI may take to end the job, before this process ends without it.
ABORT_S = 3.0


def survives() -> bool:
    """Return whether this process belongs to a job that outlives the death of workers."""
    return os.environ.get(supervisor.VARIABLE) == "1"


def spare_programs() -> None:
    """See that a rank's death does not end programs that tasks, or the script, have started.

    MPICH's mpiexec then sends SIGUSR1 to the process groups of the other ranks.  MPI catches it in
    the ranks, but not in programs that they start, which a caught signal ends; an ignored one stays
    ignored in them.
    """
    from .. import rma

    catches = "Open MPI" not in rma.library_version()
    if catches and signal.getsignal(signal.SIGUSR1) is signal.SIG_DFL:
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)


class Sentry(VitalThread):
    """Looks again and again whether this rank can go on, and ends it if not.

    Parameters
    ----------
    liveness : Liveness
    answers : callable
        Returns whether no call into MPI is under way, waiting for its end at most so many seconds.
    reason : callable
        Returns why the rank cannot go on, "" if it can.
    end : callable
        Called with that reason; must not return.
    share : callable
        Called when no call into MPI is under way: makes some, to tell or hear of the dead.
    patience : int
        How often a call into MPI may be seen after a death.
    """

    def __init__(
        self,
        liveness: Liveness,
        answers: Callable[[float], bool],
        reason: Callable[[], str],
        end: Callable[[str], NoReturn],
        share: Callable[[], None],
        patience: int = STUCK,
    ) -> None:
        super().__init__("sentry", self._run, "the sentry")
        self._liveness = liveness
        self._answers = answers
        self._reason = reason
        self._end = end
        self._share = share
        self._patience = patience
        self._stopped = threading.Event()

    def _run(self) -> None:
        busy = 0  # looks in a row that have found a call into MPI under way
        while not self._stopped.wait(SENTRY_S):
            why = self._reason()
            busy = 0 if self._answers(SENTRY_S) else busy + 1
            if not busy:
                self._share()
            elif dead := self._liveness.dead():
                self._unlock(dead)
                if busy > self._patience and not why:
                    name = name_of(self._liveness, dead[0])
                    why = f"a call into MPI does not end after {name} died; start the job again"
            if why and not self._stopped.is_set():
                self._end(why)

    def _unlock(self, dead: list[int]) -> None:
        """Unlock what the dead have locked: that may be what the call under way waits for."""
        pids = {self._liveness.members[n].pid for n in dead if self._liveness.near(n)}
        with suppress(OSError):  # no descriptor is left, or another process is just at it
            unlock(pids)

    def stop(self) -> None:
        """Look no more."""
        self._stopped.set()


def death_of(liveness: Liveness, member: int, task: str = "") -> str:
    """Return the line that tells of a death.

    Parameters
    ----------
    liveness : Liveness
    member : int
        Who has died.
    task : str
        The name of what it ran, if that is known.
    """
    process = liveness.members[member]
    ended = _end_of(process.pid, wait=liveness.near(member))
    how = "" if ended is None else f", signal {-ended}" if ended < 0 else f", exit status {ended}"
    ran = task and f", while it ran task {task}"
    advice = f"; {WAS_FULL}" if ended == -signal.SIGBUS else ""
    return f"{name_of(liveness, member)} died{how}{ran}{advice}"


_waited = itertools.count()  # for notes, in hundredths of a second


def _end_of(pid: int, wait: bool) -> int | None:
    """Return how a rank has ended, as its supervisor notes it; None if nobody does that in time."""
    place = os.environ.get(VARIABLE)
    while (ended := supervisor.ends(place).get(pid)) is None and place and os.path.isdir(place):
        if not wait or next(_waited) >= 100 * NOTE_S:
            break
        sleep(0.01)
    return ended


def exit_without_mpi(status: int) -> NoReturn:
    """End this process as Python does, but without ``MPI_Finalize``: that waits for the dead."""
    try:
        threading._shutdown()  # type: ignore[attr-defined]  # joins the threads of the program
        atexit._run_exitfuncs()
    finally:
        exit_at_once(status)


def exit_at_once(status: int) -> NoReturn:
    """End this process at once, with nothing left of it in shared memory.

    The files of the dead are among those that a living rank has mapped.
    """
    flush()
    ctypes.CDLL(None).fflush(None)  # what extensions have written
    remove(mpi_files(os.getpid()))
    os._exit(status)


def orphaned() -> Callable[[], None]:
    """Return what ends this rank when the process that has started it is gone.

    That is the process manager's: when it is killed, Open MPI leaves its ranks behind, and MPICH
    those of a proxy, and nobody would ever end them.  It is done without a word: the process that
    would have passed it on is gone, or whoever has ended it says why.
    """
    parent = os.getppid()

    def check() -> None:
        if os.getppid() != parent:
            exit_at_once(1)

    return check


def abort(group: rma.Group, status: int) -> NoReturn:
    """End the job at once; with --survive this process alone, whose death the others notice."""
    try:
        flush()
        if survives() and group.size > 1:
            exit_at_once(status)  # a dead worker for the others; if we drive, they leave
        sleep(0.1)  # mpiexec may lose what was written just before the end
        remove(mpi_files(os.getpid()))
        # Open MPI waits for ever if a task has closed its connection to mpiexec.  No thread of
        # Python's could end that.
        faulthandler.dump_traceback_later(ABORT_S, exit=True, file=2)
        group.abort(status)
        sleep(1)  # MPICH's may return before the process is killed
    finally:  # a task may have replaced what is called here: to leave by way of MPI never ends
        os._exit(status)


def name_of(liveness: Liveness, member: int) -> str:
    """Return how a member is named in messages."""
    process = liveness.members[member]
    what = "worker" if member else "the driver,"
    return f"{what} rank {process.rank} on {process.host} (process {process.pid})"
