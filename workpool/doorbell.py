"""Wakes workers that sleep because there was nothing to do, where they hear it: on the same host.

An idle worker looks at its tables from time to time, ever more seldom the longer nothing came, so
it costs next to nothing.  A task that comes after a pause would have to wait for the next look;
whoever publishes it rings instead.  A ring is a hint and no more: no word of a table depends on it,
and who does not hear it (on another host, in another container) looks again when its sleep is over.

A doorbell is a datagram socket in Linux's abstract namespace, so nothing is left of it when its
process ends.  What arrives there has no meaning but that it came: anybody may ring.
"""

from __future__ import annotations

import select
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING

from .lazy import socket
from .liveness import Process

if TYPE_CHECKING:
    from socket import socket as Socket

__all__ = ["Doorbell", "Doorbells", "Waker", "name"]

#: Shorter sleeps are nobody's to end.
SHORT_S = 1e-3

#: Who has ended a task so lately makes no longer ones.
AWAKE_S = 20e-3


def name(process: Process, job: int = 0) -> str:
    """Return the name of a process's doorbell, or of one in each job that consists of it alone."""
    return f"{process.space} {process.pid} {process.started} {job}"


def _address(name: str) -> bytes:
    return f"\0workpool {name}".encode()


def _datagrams() -> Socket:
    made = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    made.setblocking(False)
    return made


class Doorbell:
    """That of this process.

    Parameters
    ----------
    name : str
        By which others know it.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._socket: Socket | None = None
        self._heard: select.poll | None = None

    def sleep(self, seconds: float) -> bool:
        """Sleep for so long, or until somebody rings; return whether somebody has."""
        if seconds < SHORT_S:
            time.sleep(seconds)
            return False
        if self._heard is None:
            self._heard = select.poll()
            with suppress(OSError):  # without descriptors, say, nobody can wake us
                self._socket = _datagrams()
                self._socket.bind(_address(self._name))
                self._heard.register(self._socket, select.POLLIN)
        if self._heard.poll(1e3 * seconds) and self._socket is not None:
            try:
                while True:
                    self._socket.recv(1)
            except BlockingIOError:  # those were all
                return True
            except OSError:  # a task has closed what was not its own
                self._socket.detach()
                self._socket, self._heard = None, select.poll()
        return False

    def close(self) -> None:
        """Hear nothing any more."""
        if self._socket is not None:
            self._socket.close()
            self._socket, self._heard = None, select.poll()


class Doorbells:
    """Those of the workers that can be woken.

    Parameters
    ----------
    names : mapping of int to str
        By member.
    """

    def __init__(self, names: Mapping[int, str]) -> None:
        self._addresses = {member: _address(name) for member, name in names.items()}
        self.members: Sequence[int] = tuple(self._addresses)

    @cached_property
    def _socket(self) -> Socket:
        return _datagrams()

    def ring(self, member: int) -> None:
        """Wake a worker, if it sleeps."""
        with suppress(OSError):  # it is gone, or deaf; or the last rings have not been heard yet
            self._socket.sendto(b"!", self._addresses[member])

    def ring_all(self) -> None:
        """Wake all that sleep."""
        for member in self.members:
            self.ring(member)

    def close(self) -> None:
        """Ring for nobody any more."""
        self._socket.close()


class Waker:
    """Wakes as many workers of a table as there is work for.  Not thread-safe.

    Parameters
    ----------
    bells : Doorbells, optional
    workers : int
        Members that serve the table: 1 and so on.

    Attributes
    ----------
    heard_s : list of float
        When each member has ended its last task, at the earliest, by the monotonic clock.
    """

    def __init__(self, bells: Doorbells | None, workers: int) -> None:
        self._bells = bells
        self._members = [m for m in bells.members if m <= workers] if bells is not None else []
        self.heard_s = [time.monotonic()] * (workers + 1)

    def wake(self, rows: int, now: float) -> None:
        """Wake those who may sleep, if those who do not are fewer than the rows of the table.

        Who runs a long task counts as one that may sleep, for its row counts as well.

        Notes
        -----
        Cost: 1 us, and some 5 us for each that is rung for.
        """
        heard_s, long_ago = self.heard_s, now - AWAKE_S
        asleep = [member for member in self._members if heard_s[member] < long_ago]
        awake = len(self._members) - len(asleep)
        for member in asleep[: max(0, rows - awake)]:
            heard_s[member] = now
            assert self._bells is not None
            self._bells.ring(member)
