"""Every exception that workpool raises on purpose: the type says whose fault it was.

``UsageError``
    The caller asked for something that cannot be: a bad option, a closed pool.
``ResourceError``, ``WorkerUnreachable``
    The machine lacks something: shared memory, ranks, an ``mpiexec``, a host that answers.
``SerializationError``
    A function, an argument or a result cannot travel between processes.
``TaskError``
    The task failed, and its own exception could not travel.
``TaskTimeout``, ``TaskKilled``, ``WorkerCrashed``
    The task was ended before it came to an outcome, with the process that ran it.
``TaskLost``
    The script's own signal handler, or a call of MPI that failed, has cut off a step of the pool.
``BrokenPool``
    The pool can run nothing more: its initializer failed, or all of its workers have died.
``WindowError``, ``LayoutError``, ``ProtocolError``
    The outside broke (MPI), or this package did; never the caller's mistake.

Each message says what was attempted, where, the value against its limit, and what to do.
"""

from __future__ import annotations

import pickle
from concurrent.futures import BrokenExecutor

#: What the standard library says to a submit that comes too late.
SHUT = "cannot schedule new futures after shutdown"

#: What a task is told that is given what only the driver can wait for.
FUTURE = "a future cannot be sent to a task: wait for it, and pass its result()"


class WorkPoolError(Exception):
    """Base of every exception raised on purpose by workpool."""


class UsageError(WorkPoolError, ValueError):
    """An option or a call that cannot be honoured."""


class ResourceError(WorkPoolError, RuntimeError):
    """The machine or the job lacks what was asked for."""


class WorkerUnreachable(ResourceError):
    """A worker on another host is not heard of, where all are needed."""


class SerializationError(WorkPoolError, pickle.PicklingError):
    """A function, an argument or a result cannot be pickled or unpickled."""


class TaskError(WorkPoolError):
    """Stands in for a task's exception that could not be carried to the driver."""


class TaskTimeout(WorkPoolError, TimeoutError):
    """The task ran for longer than its ``timeout_s``, and its process was killed.

    Attributes
    ----------
    stack : str
        Where it was: the Python stack of its main thread.
    """

    stack: str = ""


class TaskKilled(WorkPoolError):
    """The task was killed while it ran, by ``WorkPool.kill``."""


class TaskLost(WorkPoolError, RuntimeError):
    """A step was cut off, by a signal's handler, MPI or a worker's death, and has lost the task."""


class WorkerCrashed(WorkPoolError):
    """The process that ran the task has ended under it, or none could be started to run it.

    Attributes
    ----------
    signum : int or None
        The signal that ended the process.
    exitcode : int or None
        Its exit code, if it left by itself.
    stderr : str
        The last that it wrote to standard error.
    """

    signum: int | None = None
    exitcode: int | None = None
    stderr: str = ""


class BrokenPool(WorkPoolError, BrokenExecutor):
    """None of the pool's tasks can run: its initializer failed, or all workers have died."""


class WindowError(WorkPoolError, RuntimeError):
    """MPI refused a one-sided call, or the call would leave the window."""


class LayoutError(WorkPoolError, RuntimeError):
    """The window does not hold the table that this version of workpool writes."""


class ProtocolError(WorkPoolError, RuntimeError):
    """A control word made a step that the state machine does not have."""


class RemoteTraceback(Exception):
    """The traceback of a task as text; the ``__cause__`` of the exception on its future.

    Parameters
    ----------
    text : str
        The formatted traceback, followed by the line that names task, rank and host.
    task : str
        Name of the task's function.
    rank : int or None
        The rank that ran it; None if the driver had no memory for what came of it.
    host : str
        Where that is.

    Attributes
    ----------
    attempts : int
        How often the task was tried, this attempt included.
    item : int or None
        Which item of a `map` it was, from 0; None elsewhere, and with a ``chunksize``.
    """

    attempts = 1
    item: int | None = None

    def __init__(self, text: str, task: str, rank: int | None, host: str) -> None:
        super().__init__(text, task, rank, host)
        self.text = text
        self.task = task
        self.rank = rank
        self.host = host

    def __str__(self) -> str:
        tries = f", attempt {self.attempts}" if self.attempts > 1 else ""
        item = f", item {self.item} of its map" if self.item is not None else ""
        return f"\n{self.text}{tries}{item}"


def of_item(at: int, error: BaseException) -> BaseException:
    """Return what a task has raised, which says now for which item of a map, from 0."""
    if isinstance(error.__cause__, RemoteTraceback):
        error.__cause__.item = at
    return error
