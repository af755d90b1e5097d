"""What the launcher advises when a job has failed: a likely cause, and what to do about it."""

from __future__ import annotations

import os
import select
import signal
import socket
import stat
from collections.abc import Collection, Mapping

from ..system.shared_memory import SHM, WAS_FULL, free
from .mpiexec import Kind

#: With so little shared memory free, UCX, which MPICH uses, may die at the start by any signal.
_SHORT_NBYTES = 1 << 25

_STDOUT = 1

#: Where a rank has died, or has ended the job and said why.
RANK_DIED = (
    "; unless the reason is said above, a rank has died (of signal 9 mostly where memory is short, "
    "or has a limit): `workpool run --survive` says which, and goes on if it is a worker; submit "
    "tasks that may end their process by pool.with_options(isolate=True)"
)


def host_died(hosts: Mapping[str, str], lost: Collection[str]) -> str:
    """Return what to do where a rank has died, or a whole host.

    Parameters
    ----------
    hosts : mapping of str to str
        The other hosts of the job, each with its ranks.
    lost : collection of str
        Those that were lost first, perhaps because a rank has died; if none is, it may be each.
    """
    names = [f"{host} (ranks {hosts[host]})" for host in sorted(lost or hosts)]
    named = f", {' or '.join(names)}" if names else ""
    return (
        f": a rank of the job has died, see above, or a whole host{named}, if no rank is named "
        "there: then start it again without that host, and with a journal it goes on from there"
    )


def memory_short(status: int, kind: Kind, begun: bool) -> str:
    """Return what to do where a process died of too little shared memory; else nothing.

    Parameters
    ----------
    status : int
        How it ended, -n after signal n.
    kind : Kind
        Of the MPI.
    begun : bool
        Whether the driver had begun, so that there was enough for MPI to start.
    """
    if not begun and kind is not Kind.OPENMPI and not os.access(SHM, os.W_OK | os.X_OK):
        return f"; {SHM} is not there, or cannot be written: MPICH keeps there what its ranks share"
    left_nbytes = free()
    short = left_nbytes is not None and left_nbytes < _SHORT_NBYTES
    bus = abs(status) in (signal.SIGBUS, 128 + signal.SIGBUS)
    # MPICH's mpiexec ends with the signals of all ranks, bit by bit, and kills those that are left.
    perhaps = kind is not Kind.OPENMPI and status == signal.SIGBUS | signal.SIGKILL
    return f"; {WAS_FULL}" if bus or (short and (perhaps or not begun)) else ""


def network_missing(kind: Kind, begun: bool) -> str:
    """Return what to do where Open MPI's mpiexec finds no network interface; else nothing."""
    if begun or kind is not Kind.OPENMPI:
        return ""
    with socket.socket(type=socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("127.0.0.1", 9))  # sends nothing
        except OSError:
            return (
                "; no network interface of this host is up, with an address of IPv4, and without "
                "one Open MPI does not start: ip link set lo up"
            )
    return ""


def output_lost() -> str:
    """Return what to say if nobody takes standard output any more; else nothing.

    It is a pipe whose other end is closed, or a file where no room is left: MPICH's mpiexec ends.
    """
    poll = select.poll()
    poll.register(_STDOUT, 0)
    if any(event & select.POLLERR for _, event in poll.poll(0)):
        return "; whoever read its output is gone"
    if stat.S_ISREG(os.fstat(_STDOUT).st_mode):
        disk = os.fstatvfs(_STDOUT)
        if disk.f_blocks and not disk.f_bavail:  # some have no number of blocks
            return "; the file system that takes its output is full"
    return ""
