"""An attempt that was lost with the process that ran it, and the exception that it makes."""

from __future__ import annotations

import signal
from enum import Enum
from typing import NamedTuple

from .errors import (
    BrokenPool,
    RemoteTraceback,
    SerializationError,
    TaskLost,
    TaskTimeout,
    WorkerCrashed,
    WorkPoolError,
)
from .members.leases import Gone
from .serializer import join, split, task_name


class Why(Enum):
    """What ended the attempt."""

    TIMEOUT = "timeout"  #: its process was killed, because the task had run for too long
    CRASHED = "crashed"  #: its process ended by itself, or somebody killed it
    UNSTARTED = "unstarted"  #: there was no process to run it: none could be started
    DEAD = Gone.DEAD.value  #: the worker's own process is gone
    ADDING = "adding"  #: it is gone since the commit, and may have added to accumulators or not
    STOPPED = Gone.STOPPED.value  #: the worker does not run
    SILENT = Gone.SILENT.value  #: the worker's heart stands still
    NOBODY = "nobody"  #: every worker is gone


class Stage(Enum):
    """What a child process was at, as the subject of what became of it."""

    INITIALIZER = "the initializer before task"
    RESTORING = "the restoring of task"
    TASK = "task"


#: A task that has brought down this many processes is not tried again.
MOST_CRASHES = 3

#: Not the task's doing, as far as one can know: it is tried again.  With what is said of each.
OF_THE_WORKER = {
    Why.DEAD: "its process is gone",
    Why.STOPPED: "its process has been stopped for longer than the lease",
    Why.SILENT: "nothing was heard of it for longer than the lease",
}


class Loss(NamedTuple):
    """What is known of an attempt that was lost.

    Parameters
    ----------
    why : Why
    rank : int
        The worker's.
    host : str
        The name of its host; nothing where there was no worker.
    process : int
        The id of the process; 0 if there was none.
    text : str
        The stack, the last lines on standard error, or why no process was started.
    returncode : int or None
        Of the process: -n after signal n; 0 if it is not known; None if it had only closed its
        connection to the worker, which has killed it.
    limit_s : float or None
        The task's limit of time.
    stage : str
        The value of what a child process was at.
    """

    why: Why
    rank: int = 0
    host: str = ""
    process: int = 0
    text: str = ""
    returncode: int | None = 0
    limit_s: float | None = None
    stage: str = Stage.TASK.value

    def encoded(self) -> bytes:
        """Return it as bytes, for an outcome of kind ``Kind.LOST``."""
        return join((self.why.value, *self[1:]))

    @classmethod
    def decode(cls, content: bytes | memoryview) -> Loss:
        """Return what was encoded."""
        try:
            why, *others = split(content)
            return cls(Why(why), *others)
        except (TypeError, ValueError) as error:
            raise SerializationError(f"not what is said of a lost attempt: {error}") from error

    def error(self, task: object) -> BaseException:
        """Return the exception for the task's future."""
        name = task_name(task)
        error = self._error(name)
        process = f"process {self.process} of " if self.process else ""
        whose = f"{process}worker rank {self.rank} on {self.host}" if self.host else "run by nobody"
        where = f"### task {name}, {whose}"
        text = f"{self.text}\n{where}" if self.text else where
        error.__cause__ = RemoteTraceback(text, name, self.rank, self.host)
        return error

    def _error(self, name: str) -> WorkPoolError:
        if self.why is Why.TIMEOUT:
            timeout = TaskTimeout(
                f"{self.stage} {name} had not ended after {self.limit_s:g} s, its limit, and was "
                f"killed\n{self.text}".rstrip()
            )
            timeout.stack = self.text
            return timeout
        if self.why is Why.NOBODY:
            return BrokenPool(
                "every worker of the pool has died: start the job again; if a task brings them "
                "down, submit it by with_options(isolate=True)"
            )
        if self.why is Why.ADDING:
            return TaskLost(
                f"worker rank {self.rank} on {self.host} has died while what task {name} adds to "
                "accumulators was being added: nobody knows whether it was"
            )
        if self.why in OF_THE_WORKER:
            return WorkerCrashed(
                f"task {name} lost its worker, rank {self.rank} on {self.host}: "
                f"{OF_THE_WORKER[self.why]}"
            )
        if self.why is Why.UNSTARTED:
            return WorkerCrashed(
                f"task {name} was not run: worker rank {self.rank} on {self.host} could not start "
                f"a child process for it: {self.text}; see what is short there, memory, processes "
                "(ulimit -u) or open files (ulimit -n)"
            )
        crash = WorkerCrashed(f"{self.stage} {name} {self._how()}")
        crash.stderr = self.text
        if self.returncode is not None and self.returncode < 0:
            crash.signum = -self.returncode
        else:
            crash.exitcode = self.returncode
        return crash

    def _how(self) -> str:
        if self.returncode is None:
            how = "closed the connection of its process to the worker, which has killed that"
        elif self.returncode >= 0:
            how = f"ended its process with exit code {self.returncode}"
        else:
            try:
                name = signal.Signals(-self.returncode).name
            except ValueError:
                name = "no standard one"
            how = f"lost its process to signal {-self.returncode} ({name})"
            if -self.returncode == signal.SIGKILL:
                how += ", which is how the kernel ends processes when memory is short"
        return f"{how}; the last on its standard error:\n{self.text}" if self.text else how


def unstarted(why: Exception, rank: int, host: str) -> bytes:
    """Return the encoded loss of a task for which a worker could start no process."""
    return Loss(Why.UNSTARTED, rank, host, text=str(why) or "no memory").encoded()
