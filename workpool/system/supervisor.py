"""The parent of a rank that may die: mpiexec sees the supervisor, and that one ends well.

    mpiexec ... python -I -S supervisor.py python -m workpool ...

Every mpiexec ends the whole job when one of its processes is killed.  What MPICH's offers against
it (``-disable-auto-cleanup``) still sends SIGUSR1 to the other ranks of the host, which ends them;
what Open MPI's offers (``--enable-recovery``) is for processes that leave well, only without
``MPI_Finalize``.  So a rank runs as the child of a process that ignores signals, notes how it
ended, and leaves with 0.  The rank never outlives its supervisor.

It is a script of its own, which imports nothing of this package, to start at once.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import NoReturn

#: Set to 1 for every rank of a job that outlives the death of workers, by its supervisor: not every
#: mpiexec hands the variables of its caller on to other hosts.
VARIABLE = "WORKPOOL_SURVIVE"

#: Names the directory where ends are noted, if there is a launcher: ``status.VARIABLE``.
_PLACE = "WORKPOOL_STATUS"

#: Variables by which an MPI tells a process its rank.
RANK_VARIABLES = ("PMI_RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK")

_PR_SET_PDEATHSIG = 1  # prctl(2)

#: What process managers send to end a rank, or all of them because one has died.
_SIGNALS = (signal.SIGUSR1, signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def command(words: Sequence[str]) -> list[str]:
    """Return the command that runs `words` below a supervisor."""
    here = [__file__]
    if not os.path.exists(__file__):  # this package is imported from a zip file
        from pkgutil import get_data  # which a supervisor itself does without

        text = get_data(__name__.rpartition(".")[0], os.path.basename(__file__))
        here = ["-c", (text or b"").decode()]
    return [sys.executable, "-I", "-S", *here, *words]


def ends(place: str | None) -> dict[int, int]:
    """Return how supervised ranks of this host have ended.

    Parameters
    ----------
    place : str or None
        The launcher's directory; without one nothing is known.

    Returns
    -------
    dict
        By process id the exit status, -n for a rank that signal n has killed.
    """
    return dict(_notes(place, "ended"))


def killed(place: str | None) -> dict[int, int]:
    """Return the ranks of this host that were killed with their supervisors, as `ends` does."""
    lost = []
    for me, rank in _notes(place, "begun"):
        try:
            os.kill(me, 0)
        except OSError:  # gone, and perhaps another user's process has its id by now
            lost.append(rank)
    noted = ends(place)  # after the look: who ends well notes it before
    return {rank: -signal.SIGKILL for rank in lost if rank not in noted}


def die_with(parent: int, signum: int = signal.SIGKILL) -> None:
    """Have this process get a signal when its parent ends; end it now if that is gone by now."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signum)
    if os.getppid() != parent:  # gone before it could be asked for
        os._exit(1)


def on_several_hosts() -> bool:
    """Return whether Open MPI says that its job is on several."""
    counts = (os.environ.get(f"OMPI_COMM_WORLD_{what}SIZE") for what in ("", "LOCAL_"))
    return len(set(counts)) == 2


def main(words: Sequence[str]) -> NoReturn:
    """Run `words` as a child; leave with 0, or with the driver's status if nobody else has it."""
    me = os.getpid()
    os.environ[VARIABLE] = "1"
    # Over a network, Open MPI ends whoever loses the connection to one that has died, unless it
    # tolerates faults; then it warns at the start that windows are untested.
    if on_several_hosts():
        os.environ.update(OMPI_MCA_mpi_ft_enable="1")
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)  # until both know what they are
    rank = os.fork()
    if rank == 0:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        die_with(me)
        os.execvp(words[0], [*words])
    for signum in _SIGNALS:
        signal.signal(signum, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    # Among them is the process manager's socket: by its end that is to see that the rank is dead.
    for fd in [int(name) for name in os.listdir("/proc/self/fd")]:
        if fd > 2:
            with suppress(OSError):  # the one that has listed them
                os.close(fd)
    place = os.environ.get(_PLACE)
    _note(place, "begun", me, rank)
    status = os.waitstatus_to_exitcode(os.waitpid(rank, 0)[1])
    _note(place, "ended", rank, status)
    # The driver's status is the job's.  A worker that ends with another status than 0 has died, and
    # several that tell it would end an Open MPI job: a worker's supervisor ends with 0.
    driver = {os.environ.get(name, "0") for name in RANK_VARIABLES} == {"0"}
    if status < 0 and not place:  # nobody else tells of the signal
        status = 128 - status
    os._exit(max(0, status) if driver else 0)


def _note(place: str | None, what: str, pid: int, number: int) -> None:
    """Tell the launcher, if there is one, by a name: it is there as a whole or not at all."""
    if place:
        with suppress(OSError):  # the launcher is gone
            os.close(os.open(os.path.join(place, f"{what}.{pid}.{number}"), os.O_CREAT))


def _notes(place: str | None, what: str) -> list[tuple[int, int]]:
    """Return what was noted so far."""
    found = []
    with suppress(OSError):  # the launcher is gone
        for name in os.listdir(place) if place else ():
            if name.startswith(f"{what}."):
                _, pid, number = name.split(".")
                found.append((int(pid), int(number)))
    return found


if __name__ == "__main__":
    main(sys.argv[1:])
