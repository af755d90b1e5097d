"""Messages between two processes, either of which may stop reading, or end, at any moment.

No call waits for longer than it is told to: what the other end does not take at once is sent later,
while we wait for its answer, and what has not come is waited for in pieces.

    length, an unsigned integer of 8 bytes | so many bytes, at least one
"""

from __future__ import annotations

import select
import socket
import struct
from collections.abc import Sequence
from contextlib import suppress

from ..clock import monotonic
from .memory import empty

_LENGTH = struct.Struct("<Q")

#: What is received at once, of the beginning of a message: most are shorter.
_RECEIVED_NBYTES = 1 << 14

#: Pieces that are sent at once: the system takes no more.
_PIECES = 1024


class Channel:
    """One end of a connection.

    Parameters
    ----------
    end : socket.socket
        A stream, ours alone from now on.
    """

    def __init__(self, end: socket.socket) -> None:
        end.setblocking(False)
        self._socket = end
        # Not poll, which fails once a task has set its limit of open files to 0.
        self._epoll = select.epoll()
        self._epoll.register(end, select.EPOLLIN)
        self._unsent: list[memoryview] = []
        self._ahead = b""  # received of the messages after the one that has begun
        self._message: memoryview | None = None  # the one that has begun
        self._missing = memoryview(b"")  # the part of it that was not received

    def send(self, *messages: Sequence[bytes | memoryview]) -> None:
        """Send messages as far as the other end takes them now; `ready` and `flush` send the rest.

        Parameters
        ----------
        *messages : sequence of bytes or memoryview
            Each in pieces, which stay as they are until they are sent.

        Raises
        ------
        OSError
            The other end is closed.
        """
        for pieces in messages:
            self._unsent.append(memoryview(_LENGTH.pack(sum(map(len, pieces)))))
            self._unsent += map(memoryview, pieces)
        self._push()

    def flush(self) -> None:
        """Wait until the other end has taken everything: it reads, or it is gone.

        Raises
        ------
        OSError
            The other end is closed.
        """
        while self._unsent:
            self._epoll.modify(self._socket, select.EPOLLOUT)
            self._epoll.poll()
            self._push()

    def ready(self, within_s: float | None = None) -> bool:
        """Wait until a message is there, and send what is left to send; whether it is there.

        Parameters
        ----------
        within_s : float, optional
            The longest wait; default: no limit.

        Raises
        ------
        EOFError, OSError
            The other end is closed.
        """
        give_up = None if within_s is None else monotonic() + within_s
        left_s = None
        while not self._there():
            if give_up is not None:
                left_s = max(0.0, give_up - monotonic())
            wanted = select.EPOLLIN | select.EPOLLOUT if self._unsent else select.EPOLLIN
            self._epoll.modify(self._socket, wanted)
            pulled = False
            for _, event in self._epoll.poll(left_s):
                # Receive first, also if the other end is closed: what it has sent before still
                # counts, though nothing can be sent to it any more.
                if event & ~select.EPOLLOUT:
                    self._pull()
                    pulled = True
                else:
                    self._push()
            if left_s == 0 and not pulled:  # else look again: the message may be there by now
                return False
        return True

    def receive(self) -> memoryview:
        """Wait for a message, and return it.

        Raises
        ------
        EOFError, OSError
            The other end is closed.
        """
        self.ready()
        message, self._message, self._missing = self._message, None, memoryview(b"")
        assert message is not None
        return message

    def close(self) -> None:
        """Close the connection, whatever processes that were forked have of this end."""
        self._epoll.close()
        with suppress(OSError):  # it is closed already
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def _there(self) -> bool:
        """Return whether a message is there; begin the next one with what was received ahead."""
        ahead = self._ahead
        if self._message is None and len(ahead) >= _LENGTH.size:
            end = _LENGTH.size + _LENGTH.unpack_from(ahead)[0]
            message = empty(end - _LENGTH.size)  # at once: it may be as large as memory allows
            begun = ahead[_LENGTH.size : end]
            message[: len(begun)] = begun
            self._message, self._ahead = message, ahead[end:]
            self._missing = message[len(begun) :]
        return self._message is not None and not self._missing

    def _pull(self) -> None:
        if self._missing:
            nbytes = self._socket.recv_into(self._missing)
            self._missing = self._missing[nbytes:]
        else:
            received = self._socket.recv(_RECEIVED_NBYTES)
            nbytes = len(received)
            self._ahead += received
        if not nbytes:
            raise EOFError("the other end is closed")

    def _push(self) -> None:
        try:
            nbytes = self._socket.sendmsg(self._unsent[:_PIECES])
        except BlockingIOError:
            return
        while self._unsent and nbytes >= len(self._unsent[0]):
            nbytes -= len(self._unsent.pop(0))
        if self._unsent:
            self._unsent[0] = self._unsent[0][nbytes:]
