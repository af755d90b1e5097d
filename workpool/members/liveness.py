"""Who is dead: asked of the system that runs the processes, not of MPI.

A process is named by where it runs, its id and the time when it started, so that another one that
gets its id later is not taken for it.  All ranks tell each other who they are when the job starts;
from then on each can look at those of its own host, with no call into MPI.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from contextlib import suppress
from io import FileIO  # a program's tests, or a task, may replace `open`
from typing import Literal, NamedTuple

from ..errors import ResourceError

State = Literal["running", "stopped", "dead", "elsewhere"]


class Process(NamedTuple):
    """One process, told apart from every other."""

    host: str
    space: str  # of process ids: each boot of a machine has its own, and so has each container
    pid: int
    started: int  # clock ticks after the boot
    rank: int = 0  # by which the program knows it


class Liveness:
    """The members of a job as processes.  Thread-safe.

    Parameters
    ----------
    members : sequence of Process
        By member.
    here : Process
        This process.
    """

    def __init__(self, members: Sequence[Process], here: Process) -> None:
        self.members = tuple(members)
        self._here = (here.host, here.space)
        self._lock = threading.Lock()  # else one who just says good-bye may be noted as dead
        self._left: set[int] = set()  # who have said good-bye
        self._dead: dict[int, None] = {}  # in the order in which it was noticed

    def state(self, member: int) -> State:
        """Return what a member is doing.

        Returns
        -------
        str
            ``"running"``; ``"stopped"``, by a signal or a debugger; ``"dead"``, which is for ever;
            ``"elsewhere"``, on another host, where we cannot look, and nobody says that it is dead.

        Notes
        -----
        Cost: reading one file of /proc, some 20 us; nothing for the dead.
        """
        if member in self._dead:
            return "dead"
        if not self.near(member):
            return "elsewhere"
        process = self.members[member]
        letter, started = _look(process.pid)
        if letter == "?":
            return "running"
        if letter in "ZX" or started != process.started:
            with self._lock:
                if member not in self._left:
                    self._dead[member] = None
            return "dead"
        return "stopped" if letter in "Tt" else "running"

    def near(self, member: int) -> bool:
        """Return whether a member is where we can look."""
        process = self.members[member]
        return (process.host, process.space) == self._here

    def learn(self, members: Sequence[int]) -> None:
        """Note who has died where others could look."""
        with self._lock:
            self._dead.update(
                dict.fromkeys(member for member in members if member not in self._left)
            )

    def dead(self) -> list[int]:
        """Return the members that have died, in the order in which it was noticed."""
        for member in range(len(self.members)):
            if member not in self._left:
                self.state(member)
        return list(self._dead)

    def excuse(self, members: Sequence[int]) -> None:
        """Note who has said good-bye: to leave is not to die."""
        with self._lock:
            self._left.update(members)
            for member in members:
                self._dead.pop(member, None)  # its end was seen before its good-bye was heard


def check_proc() -> None:
    """See that there is a /proc, and that it is of our space of process ids.

    In another one's, as that of a host in a container, there are others by the numbers of ranks.

    Raises
    ------
    ResourceError
        If not.
    """
    seen = ""
    with suppress(OSError):
        seen = os.readlink("/proc/self")
    if seen != str(os.getpid()):
        raise ResourceError(
            "a job looks in /proc which of its processes live, and here that is not mounted, or is "
            "that of another PID namespace: mount -t proc proc /proc (unshare has --mount-proc, "
            "bwrap --proc /proc)"
        )


def this_process() -> Process:
    """Return the process that calls."""
    space = ""
    with suppress(OSError):  # no /proc, or not all of it
        with FileIO("/proc/sys/kernel/random/boot_id") as file:
            # Two machines may have the same name: clones, localhost.
            space = file.read().decode().strip()
        space += os.readlink("/proc/self/ns/pid")
    return Process(os.uname().nodename, space, os.getpid(), _look(os.getpid())[1])


def _look(pid: int) -> tuple[str, int]:
    """Return the state letter of a process, and when it started.

    ``("X", -1)`` if there is none, ``("?", -1)`` if one cannot look, but it may be there: a task,
    or the program, may have taken all descriptors.
    """
    try:
        with FileIO(f"/proc/{pid}/stat") as file:
            # The second field is the name in parentheses, and may hold anything.
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        try:
            if os.path.lexists("/proc/self"):
                os.readlink(f"/proc/{pid}/exe")  # needs no descriptor; a zombie has none either
            else:
                os.kill(pid, 0)  # the program has gone where there is no /proc, by chroot
        except (FileNotFoundError, ProcessLookupError):
            return "X", -1
        except OSError:
            pass
        return "?", -1
    return fields[0].decode(), int(fields[19])
