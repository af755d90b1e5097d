"""The standard streams of a process, which somebody may have closed."""

from __future__ import annotations

import gc
import io
import os
import sys
import threading
import traceback
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TextIO


def open_streams() -> None:
    """See that 0, 1 and 2 are open, so that they are standard streams and nothing else."""
    for fd in range(3):
        try:
            os.fstat(fd)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # takes the lowest: fd


def flush() -> None:
    """Flush both streams, as far as they can be."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception, SystemExit):  # none, broken, closed, or a task's own
            stream.flush()


def write_files() -> None:
    """Write what files that are still open have in their buffers, as Python does when it ends.

    Raises nothing: Ctrl-C ends it.
    """
    kinds = io.TextIOWrapper, io.BufferedWriter, io.BufferedRandom
    with suppress(BaseException):
        for file in [it for it in gc.get_objects() if type(it) in kinds]:
            with suppress(Exception):  # closed, or the disk is full
                file.flush()


def flush_last() -> None:
    """Flush both streams; one that fails is dropped, so that Python does not try again at exit."""
    for name in ("stdout", "stderr"):
        try:
            getattr(sys, name).flush()
        except (Exception, SystemExit):
            setattr(sys, name, None)


def say(text: str) -> None:
    """Write a line on standard error, if anybody reads it: what comes next must not hang on that.

    Open MPI's mpiexec may be gone before the last ranks are, and with it the end of the pipe.
    """
    _write(sys.stderr, text)


def _write(stream: TextIO | None, text: str) -> None:
    with suppress(Exception, SystemExit):  # broken, closed, or a task's own
        if stream is not None:
            stream.write(f"workpool: {text}\n")  # the program may have silenced `print`
            stream.flush()


def report_failure(what: str, so: str = "the job ends here") -> None:
    """Say on standard error that the runtime itself has failed, and how.  Raises nothing."""
    try:
        how = traceback.format_exc().rstrip()
    except BaseException:  # the exception is the user's, and so are its methods
        how = "(it raised an exception that cannot be shown)"
    text = f"{what}, {so}\n{how}"
    say(text)
    if sys.stderr is not sys.__stderr__:  # a task's own, which may end with the process
        _write(sys.__stderr__, text)


class VitalThread(threading.Thread):
    """A thread of ours: if it fails, its process ends, for others would wait for ever.

    Parameters
    ----------
    name : str
    run : callable
    what : str
        What it is, for a message.
    """

    def __init__(self, name: str, run: Callable[[], object], what: str) -> None:
        super().__init__(**vital(name, run, what))


def vital(name: str, run: Callable[[], object], what: str) -> dict[str, Any]:
    """Return what a thread is made with to be a `VitalThread`, or as good as one."""
    return {
        "target": _run_or_exit,
        "args": (run, what),
        "name": f"workpool-{name}",
        "daemon": True,
    }


def _run_or_exit(run: Callable[[], object], what: str) -> None:
    try:
        run()
    except BaseException:
        report_failure(f"{what} failed")
        os._exit(1)
