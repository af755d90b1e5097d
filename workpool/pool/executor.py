"""``WorkPool``: a ``concurrent.futures.Executor`` whose workers are MPI ranks."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from ..context import encode_setup
from ..errors import UsageError
from ..job import entry
from ..job.service import serve
from ..journal.ledger import Ledgers
from ..whole import inside
from .core import Core
from .hold import Hold
from .options import TaskOptions, checked, choose, unknown
from .view import View, leave_out

if TYPE_CHECKING:
    from mpi4py import MPI

T = TypeVar("T")
Pool = TypeVar("Pool", bound="WorkPool")


class WorkPool(View):
    """Runs callables on the workers of this MPI job.

    Parameters
    ----------
    max_workers : int, optional
        Use at most so many of the job's workers; all of them by default.
    initializer : callable, optional
        Called as ``initializer(*initargs)`` on each worker before its first task of this pool.
    initargs : tuple
    claim : {"pointer", "counter"}, optional
        How workers take descriptors; default ``$WORKPOOL_CLAIM`` or ``"pointer"``.
    rows : int, optional
        Work descriptors in the table; default ``$WORKPOOL_ROWS`` or 1024.
    arena_nbytes : int, optional
        Bytes in the window for arguments and results; default ``$WORKPOOL_ARENA_NBYTES``, or 1 GiB
        for several ranks of one host with 8 GiB of free shared memory, else 256 MiB, less where
        shared memory or addresses are short.  Larger ones go through in pieces.
    repository : int, optional
        The rank that holds the window; default ``$WORKPOOL_REPOSITORY`` or the driver's.
    max_pending : int, optional
        ``submit`` waits while so many tasks are pending; by default it never waits.
    lease_s : float, optional
        Seconds that a worker may be stopped until others run its task; default
        ``$WORKPOOL_LEASE_S`` or 10.  One whose process runs is left alone, however long its task
        takes.
    journal : str or Path, optional
        A file in which results are stored as they arrive: what is in it when the same script is
        started again is not run again.
    drain_s : float, optional
        How long tasks that run may go on at SIGTERM while a journal is open.

    Raises
    ------
    UsageError
        If an option cannot be honoured, if the ranks were not started to serve a pool, if the job
        is ending, or if the journal is in use or no journal.
    ResourceError
        If there is too little shared memory, if a worker is not heard of any more, if a new table
        is wanted after a worker has died, or if the journal cannot be opened.
    SerializationError
        If the initializer or its arguments cannot be pickled.
    TypeError
        If the initializer cannot be called, its arguments cannot be iterated over, or there is no
        such option.
    RuntimeError
        In a finalizer or a signal's handler that has come in the middle of a step of another pool.

    Notes
    -----
    Pools with the same table (`max_workers`, `claim`, `rows`, `arena_nbytes`, `repository`,
    `lease_s`) share it, and then one more costs no RMA.  A new table is opened collectively, when
    every worker is between two tasks: this waits for them.

    A pool to which nothing refers any more is shut down as by ``shutdown(wait=False)``.  Its views,
    and iterators of its maps that take more items, do; its futures do not.

    Other than in the standard library, leaving a ``with`` block by an exception does not wait for
    the tasks, so that an error that nobody catches ends the job at once; they run all the same.
    """

    def __init__(
        self,
        max_workers: int | None = None,
        initializer: Callable[..., object] | None = None,
        initargs: tuple[Any, ...] = (),
        *,
        claim: str | None = None,
        rows: int | None = None,
        arena_nbytes: int | None = None,
        repository: int | None = None,
        max_pending: int | None = None,
        lease_s: float | None = None,
        journal: str | os.PathLike[str] | None = None,
        drain_s: float = 30.0,
        **others: NoReturn,
    ) -> None:
        if others:
            raise unknown(next(iter(others)), WorkPool.__init__.__kwdefaults__ or ())
        if max_workers is not None and checked("max_workers", max_workers, int) < 1:
            raise UsageError(f"max_workers must be greater than 0, not {max_workers}")
        if max_pending is not None and checked("max_pending", max_pending, int) < 1:
            raise UsageError(f"max_pending={max_pending}: at least one task must be allowed")
        if not checked("drain_s", drain_s, float) >= 0:
            raise UsageError(f"drain_s={drain_s}: give a number of seconds")
        if initializer is not None and not callable(initializer):
            raise TypeError("initializer must be a callable")
        if isinstance(initargs, (str, bytes)) or not isinstance(initargs, Iterable):
            raise TypeError(f"initargs={initargs!r}: give a tuple, of one argument (x,)")
        initargs = tuple(initargs)
        imported = inside(sys._getframe(1), ("importlib._bootstrap",))
        if imported and entry.in_task() and not entry.driving():
            leave_out(self)  # the task wants something else of the module that has a pool
            return
        job = entry.current()
        content = encode_setup(job.inherited(), initializer, initargs)
        choice = choose(
            job,
            max_workers,
            claim=claim,
            rows=rows,
            arena_nbytes=arena_nbytes,
            repository=repository,
            lease_s=lease_s,
        )
        ledgers = Ledgers(
            (initializer, initargs),
            lambda: job.journal_opened(drain_s),
            job.journal_closed,
            journal,
        )
        core = Core(job, choice, content, max_pending, ledgers)
        super().__init__(core, TaskOptions(), Hold(core))
        if initializer is not None:  # last: if its warning is an error, nobody has the pool
            core.checks.prepared(initializer)


def run(
    main: Callable[[WorkPool], T],
    comm: MPI.Intracomm | None = None,
    root: int = 0,
    **options: Any,
) -> T | None:
    """Run ``main(pool)`` on one rank of an SPMD program, served by all others.  Collective.

    In a script that was started by ``workpool run`` or ``python -m workpool``, whose other ranks
    serve already, it is a pool for `main` and nothing else.

    Parameters
    ----------
    main : callable
    comm : MPI.Intracomm, optional
        Default: ``MPI.COMM_WORLD``.
    root : int
        The rank that runs `main`.
    **options
        Of ``WorkPool``.

    Returns
    -------
    object
        What `main` returned on the root; None elsewhere, when the root has finished.

    Raises
    ------
    UsageError
        If the others serve already, and `comm` or `root` asks for something else; if `comm` is an
        inter-communicator, or `root` none of its ranks.
    Exception
        On the root: what `main` or ``WorkPool`` has raised.

    Notes
    -----
    It splits `comm` and allocates a small window on the root, both collectively, and frees them at
    the end.  The other ranks serve until then.
    """
    make = partial(WorkPool, **options)
    if entry.served(comm):
        if comm is not None or root:
            raise UsageError(
                "workpool.run with comm= or root= where all other ranks serve this one already: "
                "leave them out, or start the script by `mpiexec -n N python -m mpi4py script.py`"
            )
        with make() as pool:
            return main(pool)
    with together(comm, root, make) as served:
        return None if served is None else main(served)


@contextmanager
def together(
    comm: MPI.Intracomm | None, root: int, make: Callable[[], Pool]
) -> Iterator[Pool | None]:
    """Have one rank be in a block with a pool that all others serve.  Collective.

    The others are in the block, with None, when it has ended there.  Costs and errors are those of
    `run`.
    """
    from .. import rma

    group = rma.Group(comm, root, spmd=True)
    if group.rank == 0:
        with entry.drive(group), make() as pool:
            yield pool
        return
    before = signal.getsignal(signal.SIGTERM)
    serve(group)
    if signal.getsignal(signal.SIGTERM) is not before:  # a pool had a journal
        signal.signal(signal.SIGTERM, before)
    yield None
