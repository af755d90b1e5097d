"""A pool as a program uses it: submit, map, reduce, with options for the tasks."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from ..accumulator import Accumulator, spec_of
from ..errors import UsageError
from .absent import Absent
from .core import Core
from .elsewhere import Elsewhere
from .future import PoolFuture
from .hold import Hold
from .maps import Maps
from .options import TaskOptions
from .stats import WorkerStats

if TYPE_CHECKING:
    from mpi4py import MPI
    from numpy.typing import DTypeLike
    from typing_extensions import Unpack  # in `typing` from Python 3.11 on

    from .options import Changes

P = ParamSpec("P")
T = TypeVar("T")


def absent() -> View:
    """Return what a task finds in place of a pool: whatever it is used for is refused."""
    view = object.__new__(View)
    leave_out(view)
    return view


def leave_out(view: View) -> None:
    """Have a view be what a task finds in place of a pool."""
    behind: Any = Absent()
    view._core = view._hold = view._context = view._maps = behind
    view._options, view._retry = TaskOptions(), None


class View(Elsewhere, Executor):
    """A pool, and options for the tasks that are submitted through it.

    Parameters
    ----------
    core : Core
    options : TaskOptions
    hold : Hold
        That of all views of the pool.
    """

    def __init__(self, core: Core, options: TaskOptions, hold: Hold) -> None:
        self._core = core
        self._hold = hold
        self._options = options
        self._retry = options.retry
        self._context = core.contexts.of(options.limits)
        self._maps = Maps(core, self._context, options.retry, hold)

    def __reduce__(self) -> tuple[Any, ...]:
        # What a task needs may refer to the pool and not use it there: a method whose neighbour
        # submits, DEAP's toolbox with its map, whoever keeps the names of the script.
        return absent, ()

    def __deepcopy__(self, memo: object = None) -> View:
        return self  # a copy of what has a pool has the same one

    __copy__ = __deepcopy__

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self._core}>"

    def with_options(self, **options: Unpack[Changes]) -> View:
        """Return a view of the same pool whose tasks are run otherwise.

        Options that are not given are those of this view.

        Parameters
        ----------
        timeout_s : float, optional
            Seconds that a task may run.  After that it is killed: its future has `TaskTimeout`,
            which shows where the task was, and the worker takes the next one.  What a new child
            process does before the call, run the initializer and import what the function needs,
            does not count: each may take 20 s, or as long as the task.
        retries : int
            How often a task that has failed is tried again.
        retry_delay_s : float
            Seconds before it is.
        retry_on : exception type or tuple of them
            What counts as a failure; ``Exception`` by default.  `TaskTimeout` is an OSError, too.
        isolate : bool
            Run the tasks in a child process of the worker, so that a segmentation fault,
            ``os._exit`` or a kill costs one attempt: `WorkerCrashed`.  Implied by each limit.
        memory_limit_nbytes : int, optional
            What a task may allocate; beyond that it gets MemoryError.
        max_tasks_per_child : int, optional
            Tasks that a child process runs before another takes its place.

        Returns
        -------
        View

        Raises
        ------
        UsageError
            If a value cannot be honoured.
        TypeError
            If there is no such option.

        Notes
        -----
        A child process is kept between tasks, and has no MPI.  A task that has brought down three
        processes, other than by its `timeout_s`, is not tried again.

        It is the same pool: what is shut down by ``shutdown``, or at the end of a ``with`` block,
        is all of it.  RMA cost: none.
        """
        return View(self._core, self._options.changed(**options), self._hold)

    def kill(self, future: Future[Any]) -> bool:
        """End a task, queued or running; its future is cancelled, or has `TaskKilled`.

        Parameters
        ----------
        future : Future
            Of a task of this pool, submitted through any of its views.

        Returns
        -------
        bool
            False if it had ended before.

        Raises
        ------
        UsageError
            If the future is not of this pool, or its task runs in the rank itself, which cannot be
            killed.

        Notes
        -----
        RMA cost: 1 compare_and_swap for a task that is queued; else 2, and that of ``Driver.kill``;
        more for a task of a batch.
        """
        if not isinstance(future, PoolFuture) or future._pool is not self._core:
            raise UsageError("kill of a future that is not of this pool")
        return self._core.kill(future)

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Have ``fn(*args, **kwargs)`` run by a worker; see ``Executor.submit``.

        The call is pickled before this returns; what cannot be pickled is the future's exception.

        Parameters
        ----------
        fn : callable
            Anything that can be imported, or is the script's own: lambdas and closures, too.
        *args, **kwargs : object
            Whatever pickle or cloudpickle takes, as it is now: later changes are not seen.

        Returns
        -------
        PoolFuture
            Of what `fn` returns or raises.

        Raises
        ------
        BrokenPool
            If the pool's initializer has failed.
        UsageError
            If the pool has a journal, and the call holds an accumulator.
        RuntimeError
            After shutdown; in a finalizer or a signal's handler, in the middle of a pool's step.

        Notes
        -----
        RMA cost: 5 calls for a task that is published at once, less in a batch.
        """
        core = self._core
        return core.send(fn, args, kwargs, self._context, self._retry, core.ledgers.default)

    def map(
        self,
        fn: Callable[..., T],
        *iterables: Iterable[Any],
        timeout: float | None = None,
        chunksize: int | None = None,
        buffersize: int | None = None,
        schedule: str = "adaptive",
        journal: str | os.PathLike[str] | None = None,
        unordered: bool = False,
    ) -> Iterator[T]:
        """Yield ``fn`` of each item; see ``Executor.map``.

        Parameters
        ----------
        fn : callable
        *iterables : iterable
        timeout : float, optional
            Seconds from this call to the last result.
        chunksize : int, optional
            Items in one task, which yields none if one fails; by default the workers take chunks
            as `schedule` says.  Each item is a task of its own where tasks have limits or are
            retried, and where a list, tuple or range has but a few for each worker (not with
            `max_pending`, nor for a function that has to be pickled with each).
        buffersize : int, optional
            Items taken from the iterables ahead of the results; all of them at once by default.
            Even then those of a long map (more than some 4,000 items, or 1 MB) are pickled only
            as workers come near them, and large arrays of a list, or of an array, are read where
            they are: do not change them before their results are there.
        schedule : {"adaptive", "static", "self", "guided", "factoring", "trapezoid"}
            How large the workers' chunks are: see ``workpool.schedule``.  A map that is closed, or
            whose time is over, leaves workers in their chunks, which may be long with all but
            ``adaptive`` and ``self``.
        journal : str or Path, optional
            Of this map; default: the pool's.
        unordered : bool
            Whether the results come as they are there, first those that a journal has, rather than
            in the order of the items.

        Returns
        -------
        iterator
            Of the results.  Where an item has failed it raises that exception, and ends; where the
            time is over, ``TimeoutError``.

        Raises
        ------
        ValueError
            If `chunksize` or `buffersize` is less than 1, `timeout` no number, `unordered` neither
            True nor False, or there is no such schedule.
        TypeError
            If `chunksize` or `buffersize` is no integer.
        BrokenPool, RuntimeError
            As for `submit`.
        UsageError, ResourceError
            If the journal cannot be used: see ``WorkPool``.

        Notes
        -----
        RMA cost: for each chunk 1 or 2 fetch_add and 1 get, for each turn of a worker what a task
        costs.
        """
        return self._maps.map(
            fn, iterables, timeout, chunksize, buffersize, schedule, journal, unordered
        )

    def starmap(
        self,
        fn: Callable[..., T],
        iterable: Iterable[Iterable[Any]],
        *,
        timeout: float | None = None,
        chunksize: int | None = None,
        buffersize: int | None = None,
        schedule: str = "adaptive",
        journal: str | os.PathLike[str] | None = None,
        unordered: bool = False,
    ) -> Iterator[T]:
        """Yield ``fn(*item)`` of each item.

        Parameters
        ----------
        fn : callable
        iterable : iterable of iterable
            The positional arguments of each call.
        timeout, chunksize, buffersize, schedule, journal, unordered
            As for `map`, and so are the iterator that is returned, the errors and the cost.
        """
        return self._maps.map(
            fn, (iterable,), timeout, chunksize, buffersize, schedule, journal, unordered, star=True
        )

    def reduce(
        self,
        fn: Callable[..., T],
        *iterables: Iterable[Any],
        op: str | MPI.Op | Callable[[T, T], T] = "sum",
        timeout: float | None = None,
        schedule: str = "adaptive",
    ) -> T:
        """Return ``fn`` of all items, folded by an operation: results never travel one by one.

        Parameters
        ----------
        fn : callable
        *iterables : iterable
        op : str, MPI.Op or callable
            ``sum``, ``prod``, ``min``, ``max``, ``band``, ``bor``, ``bxor``, ``land``, ``lor``,
            ``lxor``, or a function of two values.  It is applied in any order and grouping.
        timeout, schedule
            As for `map`.

        Returns
        -------
        object
            Each item counts exactly once.

        Raises
        ------
        UsageError
            If there are no items, no such operation or no such schedule, or if tasks have limits,
            are retried or have a journal.
        SerializationError
            If the items cannot be pickled.
        TimeoutError
            If the time is over.
        BrokenPool, RuntimeError
            As for `map`.
        Exception
            What `fn` or the operation has raised.

        Notes
        -----
        RMA cost: as for `map`; one value for each turn of a worker comes back.
        """
        return self._maps.reduce(fn, iterables, op, timeout, schedule)

    # --- the pool behind it -------------------------------------------------------------------

    def accumulator(
        self,
        shape: int | tuple[int, ...] = (),
        dtype: DTypeLike = float,
        op: str | MPI.Op = "sum",
    ) -> Accumulator:
        """Return numbers in the repository's window that tasks can add to.

        Those of this pool do so in the window itself.  Tasks of another pool may add, too, as long
        as this one is not shut down; what they add, their outcomes carry to the driver.

        Parameters
        ----------
        shape : int or tuple of int
        dtype : dtype
            An integer, float or complex type, or bool.
        op : str or MPI.Op
            ``sum``, ``prod``, ``min``, ``max``, ``band``, ``bor``, ``bxor``, ``land``, ``lor`` or
            ``lxor``.

        Returns
        -------
        Accumulator
            An argument for tasks; its ``value()`` is for the driver.

        Raises
        ------
        UsageError
            If MPI does not define `op` for `dtype`, or the arena has no room: each accumulator
            keeps its own until the pool is shut down.
        BrokenPool, RuntimeError
            As for `submit`.

        Notes
        -----
        RMA cost: 1 put, 1 flush.
        """
        self._core.check_submits()  # first: MPI is not for every process that has a view
        from .. import rma

        return self._core.place(spec_of(shape, dtype, rma.op_name(op)))

    def stats(self) -> list[WorkerStats]:
        """Return what each worker has done for this pool so far, by rank.  RMA cost: none."""
        return self._core.stats()

    @property
    def num_workers(self) -> int:
        """How many living workers serve the pool; 0 after shutdown or when it is broken."""
        return self._core.living if self._core.open else 0

    @property
    def _max_workers(self) -> int:
        """Where dask and others look how many tasks to give an executor."""
        return self._core.workers

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Accept no more tasks; see ``Executor.shutdown``.

        Parameters
        ----------
        wait : bool
            Whether to return only when all tasks have ended and all callbacks were called.
        cancel_futures : bool
            Whether to cancel what no worker has claimed.

        Notes
        -----
        In a finalizer, and in a task of a job of one process, it never waits.  RMA cost: that of
        the progress for which it waits; 1 compare_and_swap for each task that is cancelled.
        """
        self._core.shutdown(wait, cancel_futures=cancel_futures)

    def __exit__(self, exc_type: Any, exc_value: Any, traceback: Any) -> None:
        self.shutdown(wait=exc_type is None)
