"""The executors of ``mpi4py.futures``, which are pools."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from ..errors import UsageError
from ..job import entry
from ..job.drain import Terminated
from ..pool.executor import WorkPool, together
from .workers import assignment, prepare

if TYPE_CHECKING:
    from mpi4py import MPI

T = TypeVar("T")

#: Options for ranks that are still to be spawned, or for how messages are sent: here the ranks are
#: there, and there are no messages.
_WITHOUT_EFFECT = frozenset(
    {"backoff", "main", "mpi_info", "python_args", "python_exe", "use_pkl5"}
)


class MPIPoolExecutor(WorkPool):
    """A pool with the interface of ``mpi4py.futures.MPIPoolExecutor``.

    Parameters
    ----------
    max_workers : int, optional
        Use at most so many of the job's workers; default ``$MPI4PY_FUTURES_MAX_WORKERS`` or all.
    initializer : callable, optional
        Called as ``initializer(*initargs, **initkwargs)`` on each worker before its first task.
    initargs : tuple
    initkwargs : mapping
    path : sequence of str
        Appended to ``sys.path`` on each worker.
    wdir : str or Path, optional
        The working directory of each worker.
    env : mapping
        Put into ``os.environ`` on each worker.
    globals : mapping, optional
        Globals that functions of the script see on each worker, and what modules find in
        ``__main__`` there.
    **options
        Those of ``WorkPool``.  Those that say how mpi4py is to spawn ranks or to send messages
        (`python_exe`, `python_args`, `mpi_info`, `main`, `use_pkl5`, `backoff`) have no effect.

    Raises
    ------
    ValueError
        If `max_workers` is less than 1.
    TypeError
        If the initializer cannot be called, or if there is no such option.
    UsageError, ResourceError, SerializationError
        As for ``WorkPool``.

    Notes
    -----
    Other than there:

    * The workers are ranks that ``mpiexec`` has started: none is spawned.  A process by itself has
      one, a thread.
    * The pool is made at once, not with the first ``submit``; the initializer runs on a worker when
      that gets its first task.
    * A `chunksize` is not needed, and better not given.
    * A task has copies of the script's globals that it reads.  Nothing imports the script on a
      worker: there is no module ``__worker__``.
    * More than one short task may be on its way to a worker, and then counts as running.  So many
      tasks as workers are not one on each: what is to happen once on each is for an initializer.
    """

    def __init__(
        self,
        max_workers: int | None = None,
        initializer: Callable[..., object] | None = None,
        initargs: Iterable[Any] = (),
        *,
        initkwargs: Mapping[str, Any] | None = None,
        path: Sequence[str] = (),
        wdir: str | os.PathLike[str] | None = None,
        env: Mapping[str, str] | None = None,
        globals: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> None:
        set_outside = os.environ.get("MPI4PY_FUTURES_MAX_WORKERS")
        workers: int | str | None = set_outside if max_workers is None else max_workers
        if initializer is not None and not callable(initializer):
            raise TypeError("initializer must be a callable")
        initargs = tuple(initargs)
        if path or wdir is not None or env or globals or initkwargs:
            if initializer is not None:
                initializer = partial(initializer, *initargs, **(initkwargs or {}))
            setting = assignment(dict(globals or {}))
            initargs = list(path), wdir, dict(env or {}), setting, initializer
            initializer = prepare
        kept = {name: value for name, value in options.items() if name not in _WITHOUT_EFFECT}
        super().__init__(None if workers is None else int(workers), initializer, initargs, **kept)

    def map(
        self,
        fn: Callable[..., T],
        *iterables: Iterable[Any],
        buffersize: int | None = None,
        unordered: bool = False,
        **options: Any,
    ) -> Iterator[T]:
        """Yield ``fn`` of each item; see ``WorkPool.map``.

        Other than there, `buffersize` and `unordered` together are a ValueError.
        """
        _check_order(buffersize, unordered)
        return super().map(fn, *iterables, buffersize=buffersize, unordered=unordered, **options)

    def starmap(
        self,
        fn: Callable[..., T],
        iterable: Iterable[Iterable[Any]],
        timeout: float | None = None,
        chunksize: int | None = None,
        buffersize: int | None = None,
        unordered: bool = False,
        **options: Any,
    ) -> Iterator[T]:
        """Yield ``fn(*item)`` of each item; see ``WorkPool.starmap``, and `map`."""
        _check_order(buffersize, unordered)
        return super().starmap(
            fn,
            iterable,
            timeout=timeout,
            chunksize=chunksize,
            buffersize=buffersize,
            unordered=unordered,
            **options,
        )

    def bootup(self, wait: bool = True) -> MPIPoolExecutor:
        """Return the pool, which has been there since it was made.

        Raises
        ------
        RuntimeError
            After shutdown, or if the initializer has failed.
        """
        self._core.check_open()
        return self

    def __exit__(self, exc_type: Any, exc_value: Any, traceback: Any) -> None:
        # Whatever has ended the block, as there; but Ctrl-C and SIGTERM are to end the job.
        self.shutdown(wait=not isinstance(exc_value, (KeyboardInterrupt, Terminated)))


class MPICommExecutor:
    """A context that one rank of a communicator enters with a pool; the others are its workers.

    ::

        with MPICommExecutor(MPI.COMM_WORLD, root=0) as executor:
            if executor is not None:
                executor.submit(...)

    On the other ranks, to enter it is to serve until the root has left it; then their block is
    executed, with None.  Under ``python -m workpool.futures``, where only one rank runs the script,
    it is a pool like any other, and `comm` and `root` do not matter.

    Parameters
    ----------
    comm : MPI.Intracomm, optional
        Default: ``MPI.COMM_WORLD``.
    root : int
    **options
        Of ``MPIPoolExecutor``.

    Raises
    ------
    UsageError
        A ValueError: if `comm` is an inter-communicator, or `root` none of its ranks.
    RuntimeError
        If it is entered while it is entered.

    Notes
    -----
    An exception in the block of a rank that served is dropped, as in mpi4py, where programs rely on
    it: ``executor.map(...)`` without a look at `executor` is an AttributeError there.  Other than
    in mpi4py, whatever is not such a use of None is told by a RuntimeWarning, and SystemExit and
    KeyboardInterrupt are raised.

    To enter and to leave it are collective: see ``workpool.run``.
    """

    def __init__(self, comm: MPI.Intracomm | None = None, root: int = 0, **options: Any) -> None:
        from .. import rma

        rma.check_root(comm, root)
        self._comm = comm
        self._root = root
        self._options = options
        self._entered: AbstractContextManager[MPIPoolExecutor | None] | None = None
        self._serving = False

    def __enter__(self) -> MPIPoolExecutor | None:
        if self._entered is not None:
            raise RuntimeError("this MPICommExecutor is entered already")
        make = partial(MPIPoolExecutor, **self._options)
        entered: AbstractContextManager[MPIPoolExecutor | None]
        served = entry.served(self._comm)
        entered = make() if served else together(self._comm, self._root, make)
        executor = entered.__enter__()
        self._entered = entered
        self._serving = executor is None
        return executor

    def __exit__(self, exc_type: Any, exc_value: Any, traceback: Any) -> bool | None:
        entered, self._entered = self._entered, None
        assert entered is not None
        if not (self._serving and isinstance(exc_value, Exception)):
            return entered.__exit__(exc_type, exc_value, traceback)
        entered.__exit__(None, None, None)
        if not _is_use_of_none(exc_value):
            warnings.warn(
                f"a rank without an executor has dropped {exc_value!r}, as in mpi4py.futures: "
                "write `if executor is not None:` in the block of MPICommExecutor",
                RuntimeWarning,
                stacklevel=2,
            )
        return True


def _is_use_of_none(exception: Exception) -> bool:
    return isinstance(exception, AttributeError) and bool(exception.name) and exception.obj is None


def _check_order(buffersize: int | None, unordered: bool) -> None:
    if buffersize is not None and unordered:
        raise UsageError("buffersize must be None if unordered")
