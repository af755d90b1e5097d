"""A pool as a program uses it: submit, map, reduce, with options for the tasks."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from ..accumulator import Accumulator
from ..errors import FAILURES, SerializationError, TaskKilled, UsageError
from ..journal.ledger import Ledger
from ..reduction import OPERATIONS, Binary
from ..schedule import Schedule
from ..serializer import task_name
from ..tasks import CALL, CHUNK
from .core import Core, WorkerStats
from .future import PoolFuture
from .mapping import LEAST_BUFFERSIZE, Cutter, Mapping, Source, apart, arguments, few
from .options import TaskOptions

if TYPE_CHECKING:
    from mpi4py import MPI
    from numpy.typing import DTypeLike

T = TypeVar("T")


class View(Executor):
    """A pool, and options for the tasks that are submitted through it.

    Parameters
    ----------
    core : Core
    options : TaskOptions
    """

    def __init__(self, core: Core, options: TaskOptions) -> None:
        self._core = core
        self._options = options
        self._retry = options.retry
        self._tasks = core.context(options.limits)

    def __reduce__(self) -> NoReturn:
        raise UsageError(
            "a pool cannot be sent to a task, for tasks submit none: return what is to be done, "
            "and submit it from the driver"
        )

    def with_options(self, **options: Any) -> View:
        """Return a view of the same pool whose tasks are run otherwise.

        Options that are not given are those of this view.

        Parameters
        ----------
        timeout_s : float, optional
            Seconds that a task may run.  After that it is killed: its future has `TaskTimeout`,
            which shows where the task was, and the worker takes the next one.  Where it is the
            first of its child process, an initializer counts as a part of it.
        retries : int
            How often a task that has failed is tried again.
        retry_delay_s : float
            Seconds before it is.
        retry_on : exception type or tuple of them
            What counts as a failure; ``Exception`` by default.
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
        processes is not tried again.

        It is the same pool: what is shut down by ``shutdown``, or at the end of a ``with`` block,
        is all of it.
        """
        return View(self._core, self._options.changed(**options))

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
        task = future._task
        if future.cancel():
            return True
        if task is None or future.done():
            return False
        name = task_name(task.function)
        if not task.context.isolated:
            raise UsageError(
                f"kill of task {name}, which runs in the rank itself: submit it by "
                "with_options(isolate=True), then it runs in a process that can be killed"
            )
        self._core.driver.single_out(task)
        if future.cancel():
            return True
        return self._core.kill(task, TaskKilled(f"task {name} was killed while it ran"))

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
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
        RuntimeError
            After shutdown.

        Notes
        -----
        RMA cost: 5 calls for a task that is published at once, less in a batch.
        """
        core = self._core
        return core.send(fn, args, kwargs, self._tasks, self._retry, core.ledgers.default)

    @property
    def _plain(self) -> bool:
        """Whether tasks run in the ranks, once."""
        return not self._tasks.isolated and self._retry is None

    def map(
        self,
        fn: Callable[..., T],
        *iterables: Iterable[Any],
        timeout: float | None = None,
        chunksize: int | None = None,
        buffersize: int | None = None,
        schedule: str = "adaptive",
        journal: str | os.PathLike[str] | None = None,
    ) -> Iterator[T]:
        """Yield ``fn`` of each item, in order; see ``Executor.map``.

        Parameters
        ----------
        fn : callable
        *iterables : iterable
        timeout : float, optional
            Seconds from this call to the last result.
        chunksize : int, optional
            Items in one task; by default the workers take chunks as `schedule` says.  Each item is
            a task of its own where tasks have limits or are retried, and where a list, tuple or
            range has but a few for each worker (not with `max_pending`, nor for a function that has
            to be pickled with each).
        buffersize : int, optional
            Items taken from the iterables ahead of the results; all of them at once by default.
        schedule : {"adaptive", "static", "self", "guided", "factoring", "trapezoid"}
            How large the workers' chunks are: see ``workpool.schedule``.  A map that is closed, or
            whose time is over, leaves workers in their chunks, which may be long with all but
            ``adaptive`` and ``self``.
        journal : str or Path, optional
            Of this map; default: the pool's.

        Returns
        -------
        iterator
            Of the results.  Where an item has failed it raises that exception, and ends; where the
            time is over, ``TimeoutError``.

        Raises
        ------
        ValueError
            If `chunksize` or `buffersize` is less than 1, or there is no such schedule.
        TypeError
            If `chunksize` or `buffersize` is no integer.
        BrokenPool
            If the pool's initializer has failed.
        RuntimeError
            After shutdown.

        Notes
        -----
        RMA cost: for each chunk 1 or 2 fetch_add and 1 get, for each turn of a worker what a task
        costs.
        """
        return self._map(fn, iterables, False, timeout, chunksize, buffersize, schedule, journal)

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
    ) -> Iterator[T]:
        """Yield ``fn(*item)`` of each item, in order.

        Parameters
        ----------
        fn : callable
        iterable : iterable of iterable
            The positional arguments of each call.
        timeout, chunksize, buffersize, schedule, journal
            As for `map`, and so are the iterator that is returned, the errors and the cost.
        """
        return self._map(fn, (iterable,), True, timeout, chunksize, buffersize, schedule, journal)

    def _map(
        self,
        fn: Callable[..., T],
        iterables: tuple[Iterable[Any], ...],
        star: bool,
        timeout: float | None,
        chunksize: int | None,
        buffersize: int | None,
        schedule: str,
        journal: str | os.PathLike[str] | None,
    ) -> Iterator[T]:
        if chunksize is not None and not hasattr(chunksize, "__index__"):
            raise TypeError("chunksize must be an integer or None")
        if chunksize is not None and chunksize < 1:
            raise UsageError(f"chunksize={chunksize}: a task has at least one item")
        wanted = Schedule.named(schedule)
        if buffersize is not None and not isinstance(buffersize, int):
            raise TypeError("buffersize must be an integer or None")
        if buffersize is not None and buffersize < 1:
            raise UsageError(f"buffersize={buffersize}: at least one item must be in flight")
        deadline = None if timeout is None else time.monotonic() + timeout
        self._core.check_submits()
        ledgers = self._core.ledgers
        ledger = ledgers.default if journal is None else ledgers.open(journal)
        small = buffersize is not None and buffersize < LEAST_BUFFERSIZE
        alone = chunksize is not None or small or not self._plain
        if not alone and wanted is Schedule.ADAPTIVE and few(iterables, self._core.workers):
            alone = self._core.submits_at_once(fn)
        if alone:
            items = arguments(iterables, star)
            chunksize = chunksize or 1
        else:
            source = Source(iterables, star, buffersize)
            mapping = self._mapping(fn, wanted, source, ledger=ledger)
            rest = source.feed(mapping)
            if rest is None:
                results = mapping.results(lambda: source.feed(mapping), deadline)
                return results if ledger is None else ledger.reading(results)
            items, chunksize = rest, 1

        def submit(chunk: tuple[Any, ...]) -> Future[Any]:
            args, kind = (chunk[0], CALL) if chunksize == 1 else (chunk, CHUNK)
            return self._core.send(fn, args, {}, self._tasks, self._retry, ledger, kind)

        return apart.results(self._core, submit, items, chunksize, buffersize, deadline)

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
        timeout : float, optional
            Seconds.
        schedule : str
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
        Exception
            What `fn` or the operation has raised.

        Notes
        -----
        RMA cost: as for `map`; one value for each turn of a worker comes back.
        """
        from .. import rma

        if not self._plain:
            raise UsageError(
                "reduce runs in the ranks themselves, once: call it on the pool itself"
            )
        if self._core.ledgers.default is not None:
            raise UsageError(
                "reduce has no results of single items that a journal could keep: use map and fold "
                "what it yields, or a pool without journal="
            )
        deadline = None if timeout is None else time.monotonic() + timeout
        wanted = Schedule.named(schedule)
        if callable(op) and not rma.is_op(op):
            operation = op
        else:
            try:
                operation = OPERATIONS[rma.op_name(op)].function
            except UsageError as error:
                raise UsageError(f"{error}, or a function of two values") from None
        self._core.check_submits()
        source = Source(iterables, False, None)
        mapping = self._mapping(fn, wanted, source, operation)
        items = source.all()
        try:
            mapping.add(items, last=True, large=True)
        except FAILURES as error:
            raise SerializationError(f"cannot pickle the items of a reduce: {error}") from error
        values: list[T] = mapping.fold(deadline)
        if not values:
            raise UsageError("reduce of no items has no value")
        return values[0]

    def _mapping(
        self,
        fn: Callable[..., Any],
        schedule: Schedule,
        source: Source,
        operation: Binary | None = None,
        ledger: Ledger | None = None,
    ) -> Mapping:
        core, code = self._core, self._core.code(fn)
        several = source.several
        cutter = Cutter(core.number, core.workers, fn, code, schedule, several, operation, ledger)
        return Mapping(core, cutter)

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
            If MPI does not define `op` for `dtype`, or the arena has no room.

        Notes
        -----
        RMA cost: 1 put, 1 flush.
        """
        return self._core.accumulator(shape, dtype, op)

    def stats(self) -> list[WorkerStats]:
        """Return what each worker has done for this pool so far.

        Returns
        -------
        list of WorkerStats
            By rank.
        """
        return self._core.stats()

    @property
    def num_workers(self) -> int:
        """How many workers serve the pool; 0 after shutdown or when it is broken."""
        return self._core.workers if self._core.open else 0

    @property
    def _max_workers(self) -> int:
        """By this name dask and others ask an executor how many tasks they shall give it."""
        return self._core.workers

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Accept no more tasks; see ``Executor.shutdown``.

        Parameters
        ----------
        wait : bool
            Whether to return only when all tasks have ended and all callbacks were called.
        cancel_futures : bool
            Whether to cancel what no worker has claimed.
        """
        self._core.shutdown(wait, cancel_futures=cancel_futures)

    def __exit__(self, exc_type: Any, exc_value: Any, traceback: Any) -> None:
        self.shutdown(wait=exc_type is None)
