"""Wakes workers of the same host that sleep because there was nothing to do.

An idle worker looks at its tables from time to time, ever more seldom the longer nothing came, so
it costs next to nothing.  A task that comes after a pause would have to wait for the next look;
whoever publishes it rings instead.  A ring is a hint and no more: no word of a table depends on it,
and a worker that does not hear it (on another host, in another container) looks again when its
sleep is over.

A doorbell is a datagram socket in Linux's abstract namespace, so nothing is left of it when its
process ends.  What arrives there has no meaning but that it came: anybody may ring.
"""

from __future__ import annotations

import _socket as socket  # its wrapper takes 3 ms to import, before the first task of every rank
import select
from collections.abc import Mapping, Sized
from contextlib import suppress

from ..clock import monotonic, sleep
from .liveness import Process

#: Sleeps that are shorter than this cannot be interrupted.
LEAST_S = 1e-3

#: A worker that has ended a task within this time still sleeps too briefly to be worth a ring.
AWAKE_S = 20e-3


def name(process: Process, job: int = 0) -> str:
    """Return the name of a process's doorbell.

    One that is alone may have several jobs: `job` tells their bells apart.
    """
    return f"{process.space} {process.pid} {process.started} {job}"


def _address(name: str) -> bytes:
    return f"\0workpool {name}".encode()


def _datagrams() -> socket.socket:
    return socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)


class Doorbell:
    """The doorbell of this process.

    Parameters
    ----------
    name : str
        By which others know it.
    """

    def __init__(self, name: str) -> None:
        self._address = _address(name)
        self._socket: socket.socket | None = None

    def sleep(self, seconds: float) -> bool:
        """Sleep for so long, or until somebody rings; return whether somebody has."""
        if seconds >= LEAST_S:
            try:
                bell = self._listen()
                if not select.select([bell], [], [], seconds)[0]:
                    return False
                with suppress(BlockingIOError):  # those were all
                    while True:
                        bell.recv(1, socket.MSG_DONTWAIT)
                return True
            except (OSError, ValueError):
                pass  # no descriptors are left, or a child that a task has forked keeps the name
        sleep(seconds)
        return False

    def _listen(self) -> socket.socket:
        """Return the bell, made when it is first wanted, and anew where a task has closed it."""
        if self._socket is not None and not self._is_ours(self._socket):
            self.close()
        if self._socket is None:
            bell = _datagrams()
            try:
                bell.bind(self._address)
            except OSError:
                bell.close()
                raise
            self._socket = bell
        return self._socket

    def _is_ours(self, bell: socket.socket) -> bool:
        """Return whether its descriptor has not become somebody else's."""
        try:
            return bool(bell.getsockname() == self._address)
        except OSError:
            return False

    def close(self) -> None:
        """Let the name go."""
        if self._socket is not None:
            if self._is_ours(self._socket):
                self._socket.close()
            else:
                self._socket.detach()
            self._socket = None


class Doorbells:
    """Those of the workers of a job that can be woken, and which of them may sleep.

    Parameters
    ----------
    names : mapping of int to str
        By member.

    Attributes
    ----------
    heard_s : dict of int to float
        When each member has ended its last task, at the earliest, by the monotonic clock.
    tables : dict of object to collection
        The rows of each open table, by its driver.
    """

    def __init__(self, names: Mapping[int, str]) -> None:
        self._addresses = {m: _address(name) for m, name in names.items()}
        self.heard_s = dict.fromkeys(self._addresses, monotonic())
        self.tables: dict[object, Sized] = {}

    def wake(self, workers: int, now: float, coming: int = 0) -> None:
        """Wake workers that may sleep, if those that do not are fewer than the rows of all tables.

        One that runs a long task counts as one that may sleep, for its row counts as well.

        Parameters
        ----------
        workers : int
            Members beyond are not wanted.
        now : float
        coming : int
            Rows that will be there when a worker that is rung for looks: it takes some 100 us.

        Notes
        -----
        Cost: 0.1 us for each worker, and some 5 us for each that is rung for.
        """
        long_ago = now - AWAKE_S
        near = [member for member in self._addresses if member <= workers]
        asleep = [member for member in near if self.heard_s[member] < long_ago]
        wanted = sum(map(len, self.tables.values())) + coming - (len(near) - len(asleep))
        for member in asleep:
            if wanted <= 0:
                break
            if self.ring(member):
                self.heard_s[member] = now
                wanted -= 1

    def ring(self, member: int) -> bool:
        """Wake a worker, if it sleeps; return whether it hears us."""
        try:
            # A socket for each ring: what is not heard yet would fill a common one.
            sender = _datagrams()
            try:
                sender.sendto(b"!", socket.MSG_DONTWAIT, self._addresses[member])
            finally:
                sender.close()
        except BlockingIOError:  # it has not heard the last ones yet
            return True
        except OSError:  # it is gone, or has never slept
            return False
        return True

    def ring_all(self) -> None:
        """Wake all that sleep."""
        for member in self._addresses:
            self.ring(member)
