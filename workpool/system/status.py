"""The line between the launcher and the driver: terminal one way, process id and status back.

No ``mpiexec`` can be trusted with the driver's exit status or its standard streams: MPICH's returns
9 for a rank that leaves with 3 and without ``MPI_Finalize``, and may lose what a rank wrote before
it aborted; Open MPI's returns 0 after ``Abort(0)``, prints a notice at any other status, and never
passes on the end of standard input.  So the two talk past it, over a Unix socket::

    launcher                                          driver (rank 0)
    Watch(place)            -- WORKPOOL_STATUS ---->  Reporter()
    watch.driver            <- process id ----------  begin()
                            -- fds 0, 1, 2 -------->
    watch.elsewhere         <- hosts -------------  hosts(names)      of the ranks
    watch.patience_s        <- patience ----------  patience(s)       SIGTERM will take so long
    watch.ending            <- status --------------  ended(status)   told last of all
                            <- status --------------  failed(status)  the launcher ends the job

Under a launcher every rank leaves with 0, so that MPI has nothing to remark.  A driver on another
host cannot reach the socket: there mpiexec's own means have to do.
"""

from __future__ import annotations

import atexit
import contextlib
import io
import os
import select
import signal
import sys
import threading
from collections.abc import Collection, Sequence
from typing import NamedTuple

from ..clock import sleep
from ..lazy import socket
from ..whole import uncut
from .streams import flush, say

#: Names the directory of the socket to the ranks, and marks every process of the job.
VARIABLE = "WORKPOOL_STATUS"

#: How long a driver may take to end at SIGTERM, and where its launcher says otherwise.
GRACE_S = 5.0
GRACE = "WORKPOOL_GRACE_S"

#: Of a driver that was asked to end, and has stored what is done: start it again to go on.
UNFINISHED = os.EX_TEMPFAIL

#: How long a driver that failed waits for the launcher to end the job.
PATIENCE_S = 10.0

_SOCKET = "driver"


class Ending(NamedTuple):
    """How the driver ended."""

    status: int
    #: Whether it leaves ranks behind that somebody must end.
    failed: bool


class Reporter:
    """The driver's half; on the other ranks, and without a launcher, it stays silent.

    Make it before anything else registers functions for the exit: then the end is told last.
    """

    def __init__(self) -> None:
        self._process = os.getpid()
        self._line: int | None = None  # never closed: it ends when the process does
        self._ending: Ending | None = None
        self._early = False  # the program has called the exit functions itself
        atexit.register(self._tell)
        os.register_at_fork(after_in_child=self._let_go)

    @property
    def heard(self) -> bool:
        """Whether there is a launcher that listens to this very process."""
        return self._line is not None and os.getpid() == self._process

    def begin(self) -> None:
        """Say where the driver runs, and take over the launcher's standard streams."""
        place = os.environ.get(VARIABLE)
        if not place:
            return
        line = socket.socket(socket.AF_UNIX)
        try:
            line.connect(os.path.join(place, _SOCKET))
            line.sendall(f"{os.getpid()}\n".encode())
            fds = socket.recv_fds(line, 1, 3)[1]
        except OSError:
            line.close()  # on another host, or a job started by a driver's program
            return
        self._line = line.detach()
        flush()
        for own, theirs in enumerate(fds):
            os.dup2(theirs, own)
            os.close(theirs)
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(line_buffering=os.isatty(1))  # as python decides at its start

    def hosts(self, names: Sequence[str]) -> None:
        """Tell which hosts the ranks are on, rank 0 first: the driver may die with one of them."""
        for host in dict.fromkeys(name for name in names if name != names[0]):
            ranks = [str(rank) for rank, name in enumerate(names) if name == host]
            self._say(f"host {host} {','.join(ranks)}")

    def patience(self, seconds: float) -> None:
        """Tell how long the driver may take besides, from now on, to end at SIGTERM."""
        self._say(f"patience {seconds}")

    def ended(self, status: int) -> None:
        """Tell `status` when this process has run everything else that it runs at its exit."""
        if self._ending is None:
            self._ending = Ending(status, failed=False)
            if self._early:
                self._tell()

    def failed(self, status: int) -> None:
        """Tell `status` now, and wait for the launcher to end the job, this process included.

        Better than ``MPI_Abort``, which prints notices and may lose what the workers wrote.
        Without a launcher it returns at once.
        """
        if not self.heard:
            return
        flush()
        self._ending = Ending(status, failed=True)
        self._tell()
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, signal.SIG_DFL)  # Open MPI ends its ranks with it
        sleep(PATIENCE_S)

    def _let_go(self) -> None:
        """Be silent: this process was forked, and its end is not the driver's."""
        line, self._line = self._line, None
        if line is not None:
            os.close(line)

    @uncut
    def _tell(self) -> None:
        self._early = self._ending is None
        if self.heard and self._ending is not None:
            self._say(f"{self._ending.status} {self._ending.failed:d}")

    def _say(self, line: str) -> None:
        if self._line is not None:
            with contextlib.suppress(OSError):  # the launcher was killed
                os.write(self._line, f"{line}\n".encode())


class Watch:
    """The launcher's half.

    Parameters
    ----------
    place : str
        A directory of this job's own.
    """

    def __init__(self, place: str) -> None:
        self.place = place
        #: Carried by every process of the job, and by no other.
        self.mark = f"{VARIABLE}={place}"
        #: The driver's process id; None before it has begun.
        self.driver: int | None = None
        #: How the driver ended; None before it has said so.
        self.ending: Ending | None = None
        #: The other hosts of the job, each with its ranks.
        self.elsewhere: dict[str, str] = {}
        #: How long it may take to end at SIGTERM, besides the usual grace.
        self.patience_s = 0.0
        #: Whether it has fallen silent: after its ending, or because it has died.
        self.silent = False
        self._text = b""
        self._connected = False
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.bind(os.path.join(place, _SOCKET))
        self._socket.listen(1)

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, *raised: object) -> None:
        self._socket.close()

    def look(self, timeout_s: float, others: Collection[int] = ()) -> bool:
        """Wait for news from the driver, at most `timeout_s`; take in some, if there are any.

        Parameters
        ----------
        timeout_s : float
        others : collection of int
            Descriptors; as soon as there is something to read from one, nothing is waited for.
        """
        own = self._socket.fileno()
        fds = [*others, own] if own >= 0 else others
        found = own in select.select(fds, [], [], timeout_s)[0]
        if found:
            if self._connected:
                self._read()
            else:
                line, _ = self._socket.accept()
                self._socket.close()  # one driver: nobody else gets through
                self._socket = line
                self._connected = True
        return found

    def _read(self) -> None:
        news = b""
        with contextlib.suppress(ConnectionResetError):  # it was killed
            news = self._socket.recv(1024)
        if not news:
            self.silent = True
            self._socket.close()
            return
        *lines, self._text = (self._text + news).split(b"\n")
        for line in lines:
            words = line.split()
            if self.driver is None:
                self.driver = int(words[0])
                with contextlib.suppress(OSError):  # the driver is gone
                    self._give_streams()
            elif words[0] == b"host":
                self.elsewhere[words[1].decode()] = words[2].decode()
            elif words[0] == b"patience":
                self.patience_s = float(words[1])
            else:
                self.ending = Ending(int(words[0]), bool(int(words[1])))

    def _give_streams(self) -> None:
        try:
            socket.send_fds(self._socket, [b"."], [0, 1, 2])
        except OSError as error:  # the user's jobs have too many of them on their way
            self._socket.sendall(b".")  # or it would wait for ever
            say(
                f"the program cannot have these standard streams ({error.strerror}): it has none "
                "to read from, and writes by way of mpiexec"
            )


def launched() -> bool:
    """Return whether a launcher has started this process, and tells what there is to tell."""
    return VARIABLE in os.environ


def grace_s() -> float:
    """Return how long the driver may take to end at SIGTERM."""
    return float(os.environ.get(GRACE, GRACE_S)) if launched() else GRACE_S


def exit_status(end: SystemExit) -> int:
    """Return the status that the interpreter makes of a SystemExit, with its message printed.

    Raises nothing: the message may be an object of the user's, and standard error full or closed.
    """
    with contextlib.suppress(BaseException):
        if end.code is None:
            return 0
        if isinstance(end.code, int):
            # The interpreter takes -1 for a number that is too large, and the system keeps the
            # lowest eight bits.  True is a number as well: `&` makes it 1.
            return (end.code if -(1 << 63) <= end.code < 1 << 63 else -1) & 0xFF
        print(end.code, file=sys.stderr, flush=True)
    return 1
