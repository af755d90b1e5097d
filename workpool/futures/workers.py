"""What runs on a worker: its communicator for tasks, and how an initializer sets it up."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import partial
from types import FunctionType
from typing import TYPE_CHECKING, Any

from ..job import entry

if TYPE_CHECKING:
    from mpi4py import MPI


def get_comm_workers() -> MPI.Intracomm:
    """Return the communicator of all workers of the pool; for tasks.  Not collective.

    Returns
    -------
    MPI.Intracomm
        The same one in all tasks of the pool.  It is not to be freed.

    Raises
    ------
    RuntimeError
        If this is no task, or one in a child process (``isolate=True``, or limits).

    Notes
    -----
    Tasks that call something collective on it wait for each other: submit one for each worker, and
    wait for all of these before you submit others, or make a pool.  Else a worker may take two of
    them, and those that meet be of two sets.  What is collective in an initializer wants a task on
    each worker as well, for it runs before the first one there.  Under ``--survive``, whoever waits
    for a worker that has died waits for ever.
    """
    comm = entry.workers_comm() if entry.in_task() else None
    if comm is None:
        raise RuntimeError("get_comm_workers() is for tasks that run in a rank of MPI")
    return comm


def prepare(
    path: list[str],
    wdir: str | os.PathLike[str] | None,
    env: dict[str, str],
    assign: Callable[[], object],
    initializer: Callable[[], object] | None,
) -> None:
    """Set a worker up, before the first task of a pool."""
    sys.path.extend(path)
    if wdir is not None:
        os.chdir(wdir)
    os.environ.update(env)
    assign()
    if initializer is not None:
        initializer()


def assignment(values: dict[str, Any]) -> Callable[[], object]:
    """Return what assigns to globals of the script: a function that has these for its own."""
    space = vars(sys.modules["__main__"])
    assign = FunctionType(_assign.__code__, space, _assign.__name__)
    assign.__module__ = "__main__"
    return partial(assign, values)


def _assign(values: dict[str, Any]) -> None:
    import __main__

    globals().update(values)
    vars(__main__).update(values)  # where a module may look for them
