"""By which processes mpiexec reaches other hosts, mostly ssh, and which of them ended first.

When MPICH's mpiexec loses a host, it ends the job without a word of which host that was.
"""

from __future__ import annotations

import os
import select
from collections.abc import Collection, Iterable
from contextlib import suppress
from pathlib import Path


class Routes:
    """The processes that lead to other hosts.

    Attributes
    ----------
    fds : collection of int
        Ready to read as soon as one of them has ended.
    ended : set of str
        The hosts to which those led that ended first.
    """

    def __init__(self) -> None:
        self.ended: set[str] = set()
        self._hosts: dict[int, str] = {}  # by descriptor

    @property
    def fds(self) -> Collection[int]:
        return self._hosts.keys()

    def find(self, pids: Iterable[int], hosts: Collection[str]) -> None:
        """Look for them among processes: each has the name of its host on its command line.

        Unless one is found for each host, none is watched: we could not tell which ended first.
        """
        self.close()
        names = {host.partition(".")[0]: host for host in hosts}
        for pid in pids:
            # Gone, or this system has no such descriptors, or this Python knows of none.
            with suppress(OSError, AttributeError):
                text = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
                there = {word.rpartition("@")[2].partition(".")[0] for word in text.split("\0")}
                if len(found := names.keys() & there) == 1:  # mpiexec itself may name several
                    self._hosts[os.pidfd_open(pid)] = names[found.pop()]
        if set(self._hosts.values()) != set(hosts):
            self.close()

    def look(self) -> None:
        """Note which have ended; only the first ones count, for mpiexec then ends the others."""
        if self._hosts:
            self.ended = {self._hosts[fd] for fd in select.select(self.fds, [], [], 0)[0]}
            if self.ended:
                self.close()

    def close(self) -> None:
        """Look no more."""
        for fd in self._hosts:
            os.close(fd)
        self._hosts.clear()
