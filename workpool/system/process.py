"""A child process that runs Python and may end at any moment, and what is known of its end.

It is started anew, not forked: a fork of a process that uses MPI shares what must not be shared.
"""

from __future__ import annotations

import _thread
import contextlib
import errno
import mmap
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from io import FileIO  # a task may have replaced `open`
from typing import IO

from ..clock import Stopwatch, monotonic, sleep
from .channel import Channel
from .inherited import here
from .python import python
from .ranks import without_line
from .streams import open_streams

#: Bytes of standard error that are remembered.
TAIL_NBYTES = 4096

#: How long a process may take to write its stack, and to be gone after it was killed; the same for
#: what then removes its shared memory, which may just be starting.
STACK_S = 1.0
GONE_S = 5.0

#: How long the thread may take to begin that reads its standard error.
BEGIN_S = 10.0

#: How long a process may take to stop when it is told to.
STOP_S = 20e-3

#: Numbers of 8 bytes in memory that both processes have mapped.
NUMBERS = 3

#: What the process runs.  It reads this from standard input, where tasks then find the end of file:
#: a word of a command line has 128 KiB at the most, and the program's own arguments may be longer.
_START = """\
sys.path[:] = {path!a}; sys.argv[:] = {argv!a}
from {module} import main; main({arguments})
"""


class ChildProcess:
    """A process that answers messages.

    Parameters
    ----------
    module : str
        Whose ``main(fd, stack_fd, numbers_fd, parent, *arguments)`` it runs.
    *arguments : object
        More of them; their ``ascii`` is their Python text.

    Attributes
    ----------
    pid : int
    channel : Channel
        Our end of the connection.
    numbers : memoryview
        Shared with it: ``NUMBERS`` of them, 0 at first.

    Raises
    ------
    OSError, RuntimeError
        The machine has no room for a process, for its descriptors, or for the thread that reads
        its standard error: nothing of them is left.  Or there is no Python, but a frozen program.
    """

    def __init__(self, module: str, *arguments: object) -> None:
        if hasattr(sys, "frozen"):  # PyInstaller, cx_Freeze: that would run the program again
            raise RuntimeError(f"{sys.executable} is a frozen program, and runs no other code")
        open_streams()  # a task may have closed them, and nothing of ours must take their places
        with contextlib.ExitStack() as held, contextlib.ExitStack() as passed:
            ours, theirs = socket.socketpair()
            held.enter_context(ours)
            passed.enter_context(theirs)
            self.channel = Channel(ours)
            held.callback(self.channel.close)
            start_fd = _unnamed_file("workpool-start")
            passed.callback(os.close, start_fd)
            self._stack_fd = _unnamed_file("workpool-stacks")
            held.callback(os.close, self._stack_fd)
            numbers_fd = _unnamed_file("workpool-numbers")
            passed.callback(os.close, numbers_fd)
            os.ftruncate(numbers_fd, 8 * NUMBERS)
            self.numbers = map_numbers(numbers_fd)
            fds = [theirs.fileno(), self._stack_fd, numbers_fd]
            os.pwrite(start_fd, _start(module, *fds, os.getpid(), *arguments), 0)
            self._process = subprocess.Popen(
                [*python(), "-c", "import sys; exec(sys.stdin.buffer.read())"],
                stdin=start_fd,
                stderr=subprocess.PIPE,
                pass_fds=fds,
                env=without_line(),
                start_new_session=True,  # it is killed with whatever it has started
            )
            assert self._process.stderr is not None
            held.enter_context(self._process.stderr)
            self.pid = self._process.pid
            held.callback(self._end)
            self._tail = _Tail(self._process.stderr)
            held.pop_all()  # nothing has failed: all of that stays open

    def stack(self, signum: int) -> str:
        """Have the process write its stack at a signal, which then ends it, and return that."""
        self._send(signum)
        self._wait(STACK_S)
        return os.pread(self._stack_fd, 1 << 16, 0).decode(errors="replace").strip()

    @contextlib.contextmanager
    def stopped(self) -> Iterator[bool]:
        """Stop the process for as long as the context; give whether it lives and stands still."""
        self._send(signal.SIGSTOP)
        try:
            still = None
            give_up = monotonic() + STOP_S
            with contextlib.suppress(ChildProcessError):  # it has ended
                while not still and monotonic() < give_up:
                    sleep(50e-6)
                    still = os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WNOHANG)
            yield still is not None
        finally:
            self._send(signal.SIGCONT)

    def ended(self) -> bool:
        """Return whether the process has ended.

        It stays a zombie, so that nobody else gets its number before its group is ended.
        """
        flags = os.WEXITED | os.WNOHANG | os.WNOWAIT
        try:
            return os.waitid(os.P_PID, self.pid, flags) is not None
        except ChildProcessError:  # somebody else has waited for it: a handler of the user's
            return True

    def died(self) -> tuple[int | None, str]:
        """Return the status and the last words of a process that has closed its connection.

        Returns
        -------
        returncode : int or None
            As ``subprocess.Popen`` has it: -n after signal n.  None if it went on, and was killed.
        stderr : str
        """
        self._wait(GONE_S)
        ended = self.ended()
        self.kill()
        return self._process.returncode if ended else None, self._tail.text()

    def kill(self) -> None:
        """End the process and all that it has started."""
        self._end()
        self._tail.ended.wait(STACK_S)
        self.channel.close()
        os.close(self._stack_fd)

    def leave(self) -> None:
        """Let the process end by itself, as it does when nobody asks it any more."""
        self.channel.close()
        self.died()

    def _send(self, signum: int) -> None:
        # Not by subprocess, which would reap a process that has ended, so that its number is free.
        # As long as it is a zombie, nobody else gets that number, and ``died`` can wait for it.
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signum)

    def _end(self) -> None:
        with contextlib.suppress(OSError):  # no descriptors: then its shared memory stays
            self._end_before_trackers()
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        self._wait(GONE_S)
        if self._process.poll() is None:
            self._process.returncode = -signal.SIGKILL  # as it will be

    def _end_before_trackers(self) -> None:
        """If it has had shared memory tracked, end all others first, and let that be removed.

        A resource tracker of multiprocessing, or of loky, does so when its pipe is closed.
        """
        group = _group(self.pid)
        trackers = [pid for pid in group if _tracks(pid)]
        if trackers:
            for pid in set(group) - set(trackers):
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
            watch = Stopwatch()
            while any(map(_tracks, trackers)) and watch.look() < GONE_S:
                sleep(1e-3)

    def _wait(self, limit_s: float) -> None:
        """Wait for the process to end: a frozen one, or one whose disk is gone, may never do so."""
        watch = Stopwatch()
        while not self.ended() and watch.look() < limit_s:
            sleep(1e-3)


def _group(number: int) -> list[int]:
    """Return the processes of a group."""
    found = []
    for name in filter(str.isdecimal, os.listdir("/proc")):
        with contextlib.suppress(ProcessLookupError):  # ended meanwhile
            if os.getpgid(int(name)) == number:
                found.append(int(name))
    return found


def _tracks(pid: int) -> bool:
    """Return whether a process lives and is a resource tracker, or just begins and may be one."""
    try:
        os.readlink(f"/proc/{pid}/exe")  # a zombie has none
        with FileIO(f"/proc/{pid}/cmdline") as file:
            line = file.read()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return not line or b"resource_tracker import main" in line


def _start(module: str, *arguments: object) -> bytes:
    """Return what a process runs to call ``main`` of a module."""
    place = here()
    path = [entry or place for entry in sys.path if isinstance(entry, str)]
    argv = [word for word in sys.argv if isinstance(word, str)]
    text = ", ".join(map(ascii, arguments))
    return _START.format(path=path, argv=argv, module=module, arguments=text).encode()


def _unnamed_file(name: str) -> int:
    """Return the descriptor of a new file that goes with the last one who has it open.

    In memory where that can be.  A Python that was built for an old C library, as that of conda is
    and uv's have long been, does not know how, whatever the system that it runs on.
    """
    if hasattr(os, "memfd_create"):
        try:
            return os.memfd_create(name)
        except OSError as error:
            if error.errno not in (errno.ENOSYS, errno.EPERM):  # a sandbox that refuses it
                raise
    from tempfile import TemporaryFile  # 5 ms, which most programs can do without

    with TemporaryFile(buffering=0) as file:
        return os.dup(file.fileno())


def map_numbers(fd: int) -> memoryview:
    """Return the numbers that two processes have in one file."""
    return memoryview(mmap.mmap(fd, 8 * NUMBERS)).cast("Q")


class _Tail:
    """Passes on what a process writes to standard error, and remembers the end of it."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream  # ours to close: what the process has started may hold the other end
        self._last = b""
        self._begun, self.ended = threading.Event(), threading.Event()
        # Not a threading.Thread, whose start waits for ever if there is no memory to begin with.
        _thread.start_new_thread(self._run, ())
        if not self._begun.wait(BEGIN_S):
            raise RuntimeError("the thread that reads its standard error did not begin")

    def _run(self) -> None:
        self._begun.set()
        try:
            with self._stream:
                while news := os.read(self._stream.fileno(), 1 << 16):
                    self._last = (self._last + news)[-TAIL_NBYTES:]
                    with contextlib.suppress(OSError):
                        os.write(2, news)
        finally:
            self.ended.set()

    def text(self) -> str:
        return self._last.decode(errors="replace").strip()
