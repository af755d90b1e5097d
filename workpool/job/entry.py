"""What this process is in its job: the driver, a worker, or all there is.

::

    python -m workpool script.py    launch     rank 0 runs the script; the others: ``service``
    workpool.run(main)              drive      one rank of an SPMD program; the others: ``service``
    python script.py                current    the first pool makes a job of one process
"""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from .. import contributions
from ..errors import RemoteTraceback, UsageError, WorkerUnreachable
from ..forked import FORKED
from ..system.ranks import room
from ..system.shared_memory import mpi_files, remove, too_little
from ..system.status import Reporter, exit_status
from ..system.streams import flush, open_streams, say, write_files
from . import service
from .drain import Terminated, finish, interrupted
from .runtime import IN_A_STEP, Runtime
from .survival import abort, exit_at_once, survives
from .uncaught import show, uncaught

if TYPE_CHECKING:
    from mpi4py import MPI

    from .. import rma

# One process has one MPI, hence at most one runtime.
_current: Runtime | None = None
_lock = threading.RLock()  # reentrant only so that `current` finds out that its thread has it
_over = ""  # why no pool can be made any more
_pid = 0  # of the process whose job it is: one with another id is a fork of it


def current() -> Runtime:
    """Return the runtime of this process, started if this is a process by itself.

    Raises
    ------
    UsageError
        If the process is one of several ranks, and not their driver; in a task.
    RuntimeError
        In a finalizer or a signal's handler that has come in the middle of a step of another pool.
    """
    if in_task():
        raise UsageError("a task cannot make a pool: submit from the script, or return the work")
    if _forked():
        raise UsageError(FORKED)
    if _lock._is_owned() or (_current is not None and _current.entered):  # type: ignore[attr-defined]
        raise RuntimeError(IN_A_STEP)
    with _lock:
        if _over:
            raise UsageError(f"{_over}: no pool can be made any more")
        if _current is not None:
            return _current
        if not threading.main_thread().is_alive():  # nobody would end the job
            raise UsageError("the program is at its end: no pool can be made any more")
        open_streams()  # else what MPI opens takes their places, and tasks write into that
        if text := too_little():  # said, not raised: Open MPI may do with less
            say(text)
        from .. import rma

        size = rma.world_size()  # not collective: the other ranks may be anywhere in their programs
        if size > 1:
            raise UsageError(
                f"this process is one of {size} ranks, and nothing serves it: start the script "
                f"by `workpool run -w {size - 1} script.py` or `mpiexec -n {size} python -m "
                "workpool script.py`, or call workpool.run(main) on every rank"
            )
        if (ranks := room() or 1) > 1:
            say(
                f"the batch job has room for {ranks} ranks, and this process is alone: its tasks "
                "run on one thread; start it by `workpool run`"
            )
        job = _begin(rma.Group())
        atexit.register(_close_at_exit)
        return job


def _begin(group: rma.Group, survive: bool = False, reporter: Reporter | None = None) -> Runtime:
    """Make this process the driver of a job; see ``Runtime``."""
    from .. import rma

    global _current, _pid
    _pid = os.getpid()
    _current = Runtime(group, survive, reporter)
    rma.at_finalize(_before_finalize, _refuse_finalize)
    return _current


def _close_at_exit() -> None:
    """End a job of one process at its exit, perhaps after an error that nobody has caught."""
    error = uncaught()
    if error is not None and (job := _ours()):
        if isinstance(error, KeyboardInterrupt):
            status, finished = 130, _finish_running("Ctrl-C")
        else:
            status, finished = 1, finish(job.tables.drivers, 0)
        if not finished:  # its thread cannot be ended, only all of the process
            exit_at_once(status)
        job.cancel()
    try:
        _close_current()
    except (KeyboardInterrupt, SystemExit) as end:  # by a signal: Python would end with status 0
        if isinstance(end, KeyboardInterrupt):
            _finish_running("Ctrl-C")
        status = show(end)
        write_files()
        exit_at_once(status)


def _close_current() -> None:
    global _current
    if job := _ours():
        alone = job.group.size == 1
        job.close()
        _current = None
        if alone:  # Open MPI leaves files behind, which no other process has
            remove(mpi_files(os.getpid()))


def _before_finalize() -> None:
    """End the job before MPI ends, for that waits for the workers."""
    global _over
    if _forked():
        return
    if job := _ours():
        if job.serves or job.survive:
            _refuse_finalize("a task" if job.serves else "a job that outlives its workers")
        job.close()
    _over = "MPI is finalized"  # first: as soon as the job is closed, a thread may ask for another
    _close_current()


def _refuse_finalize(where: str = "the middle of a job") -> None:
    """End the job with a message: MPI's end would wait for it for ever."""
    from .. import rma

    if job := _ours():
        say(rma.HANGS.format(where=where, what="job"))
        job.fail(1)


def _disown() -> None:
    """In a process that was forked: have everything of its parent's job refuse to work."""
    if _current is not None:
        for driver in _current.tables.drivers:
            driver.disown()
        for pool in _current.pools:
            pool.disown()
        _current.accumulators.disown()


os.register_at_fork(after_in_child=_disown)


def _forked() -> bool:
    """Return whether the program has forked this process: MPI and the job are its parent's."""
    return _pid not in (0, os.getpid())


def _ours() -> Runtime | None:
    """Return the job of this process, None if there is none, or if it is the parent's."""
    return None if _forked() else _current


def in_task() -> bool:
    """Return whether this is called by a task, or while something is restored for one."""
    return contributions.current.get() is not None


def driving() -> bool:
    """Return whether this process is the driver of a job by now."""
    return _current is not None


def served(comm: MPI.Intracomm | None = None) -> bool:
    """Return whether ranks that could serve this process for a communicator do so already.

    Where they are only some of all, others may wait to serve it: those of a given communicator.
    """
    from .. import rma

    size = rma.world_size()
    job = _current
    return job is not None and size > 1 and (comm is None or job.group.size == size)


def workers_comm() -> MPI.Intracomm | None:
    """Return the communicator of all who serve the pool whose task runs here; None if none does."""
    job = _ours()
    return service.workers_comm() if job is None else job.group.comm


@contextmanager
def drive(group: rma.Group) -> Iterator[None]:
    """Be the driver of a job in a block; at its end, everything of the job has ended."""
    global _current
    outer, runtime = _current, _begin(group)
    try:
        yield
    except BaseException as error:
        if not isinstance(error, SystemExit) or isinstance(error, Terminated):
            runtime.cancel()  # nobody waits any more for what has not begun
        raise
    finally:
        try:
            runtime.close()  # callbacks may make one more pool in it
        except BaseException as error:
            if not runtime.left and group.size > 1:  # ranks still serve: MPI_Finalize would hang
                runtime.fail(show(error))
            raise
        finally:
            _current = outer


def launch(group: rma.Group, program: Callable[[], object], reporter: Reporter) -> int:
    """Run `program` as the driver of a job that is nothing else.

    Parameters
    ----------
    group : rma.Group
    program : callable
    reporter : Reporter

    Returns
    -------
    int
        The exit status: that of ``sys.exit`` in the program, 130 after Ctrl-C, 0 otherwise.

    Notes
    -----
    An exception that the program does not catch ends the whole job with status 1 and its traceback.
    If a worker is not heard of at the end, the job ends without it, with the same status.
    """
    try:
        _begin(group, survives(), reporter)
    except BaseException as error:  # the others would wait for this rank, which waits in MPI's end
        status = show(error)
        reporter.failed(status)
        abort(group, status)
    try:
        return _run(program)
    except BaseException as error:  # one more signal, in the midst of what was done about another
        if job := _ours():
            job.fail(show(error))
        raise


def _run(program: Callable[[], object]) -> int:
    """Run the program of a job, and close that; return the exit status."""
    global _over
    status = 0
    step: Callable[[], object] = program
    while _current is not None:  # twice or more: a signal may interrupt `_close_current` as well
        try:
            step()
        except SystemExit as end:
            status = exit_status(end)
            if isinstance(end, Terminated):
                _give_up(end.signal, status)
            elif isinstance(remote := end.__cause__, RemoteTraceback):
                item = "" if remote.item is None else f", item {remote.item} of its map,"
                say(
                    f"task {remote.task}{item} has called sys.exit, which has ended the script "
                    f"where it took the task's result, with status {status}"
                )
        except BaseException as error:
            if isinstance(error, WorkerUnreachable) and step is _close_current:
                say(f"{error}: the job ends without it")
                _current.fail(status)
            if isinstance(error, KeyboardInterrupt):
                _finish_running("Ctrl-C")
            status = show(error)
            write_files()
            if job := _ours():  # else the program has finalized MPI, which has ended the job
                job.fail(status)
        if _forked():
            flush()
            os._exit(status)
        if job := _ours():
            job.status = status
        step = _close_current
    _over = _over or "the job has ended"
    return status


def _finish_running(what: str) -> bool:
    """Leave the tasks that run a while to end, after a signal; a second one ends the wait.

    Return whether all of them have ended.
    """
    with suppress(KeyboardInterrupt, SystemExit):
        return (job := _ours()) is None or interrupted(job.tables.drivers, what)
    return False


def _give_up(what: str, status: int) -> None:
    """Cancel what has not begun, after a signal; end the job if what runs does not end."""
    finished = _finish_running(what)
    if job := _ours():
        if not finished:
            write_files()
            job.fail(status)
        job.cancel()
