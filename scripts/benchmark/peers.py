"""The pools that are compared: how each is started, and one way to use them all."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor
from contextlib import AbstractContextManager, contextmanager
from operator import methodcaller
from typing import Any, NamedTuple


class Pool(NamedTuple):
    """A pool, as the measures use it."""

    native: Any
    map: Callable[..., Iterable[Any]]
    submit: Callable[..., Any] | None = None
    #: Returns the result of what `submit` returned.
    result: Callable[[Any], Any] = methodcaller("result")
    #: Whether `map` takes a chunk size, and is the faster for one.
    chunked: bool = True

    def run(self, fn: Callable[..., Any], tasks: Iterable[tuple[Any, ...]]) -> list[Any]:
        """Return what `submit` returns for each task."""
        assert self.submit is not None
        return [self.submit(fn, *task) for task in tasks]


class Peer(NamedTuple):
    """A pool that is measured, or a limit.

    Parameters
    ----------
    name : str
    title : str
        What heads its column; each ``|`` begins a line.
    open : callable, optional
        Returns a context manager of its `Pool` with so many workers; a limit has none.
    runner : tuple of str
        Words between ``python`` and the measuring program.
    ranks : int, optional
        That it needs besides the workers; without, it is not started by mpiexec.
    """

    name: str
    title: str
    open: Callable[[int], AbstractContextManager[Pool]] | None
    runner: tuple[str, ...] = ()
    ranks: int | None = None

    @property
    def program(self) -> str:
        """Return the module that measures it."""
        return "benchmark.measure" if self.open else "benchmark.limits"


@contextmanager
def _executor(executor: Executor, chunked: bool = True) -> Iterator[Pool]:
    with executor:
        yield Pool(executor, executor.map, executor.submit, chunked=chunked)


def _workpool(workers: int) -> AbstractContextManager[Pool]:
    from workpool import WorkPool

    return _executor(WorkPool(workers), chunked=False)


def _futures(workers: int) -> AbstractContextManager[Pool]:
    from mpi4py.futures import MPIPoolExecutor

    return _executor(MPIPoolExecutor(workers))


@contextmanager
def _schwimmbad(workers: int) -> Iterator[Pool]:
    from schwimmbad import MPIPool

    pool = MPIPool()  # does not return on the ranks that serve
    yield Pool(pool, lambda fn, items: pool.map(fn, list(items)), chunked=False)
    # It closes itself at exit; to close it here as well would send to ranks that have gone.


def _processes(workers: int) -> AbstractContextManager[Pool]:
    from concurrent.futures import ProcessPoolExecutor

    return _executor(ProcessPoolExecutor(workers))


@contextmanager
def _multiprocessing(workers: int) -> Iterator[Pool]:
    import multiprocessing

    with multiprocessing.Pool(workers) as pool:
        yield Pool(
            pool, pool.map, lambda fn, *args: pool.apply_async(fn, args), methodcaller("get")
        )


def _threads(workers: int) -> AbstractContextManager[Pool]:
    from concurrent.futures import ThreadPoolExecutor

    return _executor(ThreadPoolExecutor(workers), chunked=False)


#: In the order of the table's columns.
PEERS = {
    "workpool": Peer("workpool", "workpool", _workpool, ("-m", "workpool"), 1),
    "futures": Peer("mpi4py.futures", "mpi4py|.futures", _futures, ("-m", "mpi4py.futures"), 1),
    "control": Peer("its control", "its|control", _futures, ("-m", "benchmark.control"), 1),
    "schwimmbad": Peer("schwimmbad", "schwimm-|bad", _schwimmbad, (), 1),
    "processes": Peer("ProcessPoolExecutor", "Process|Pool|Executor", _processes),
    "multiprocessing": Peer("multiprocessing.Pool", "multi-|processing|.Pool", _multiprocessing),
    "threads": Peer("ThreadPoolExecutor", "Thread|Pool|Executor", _threads),
    "serial": Peer("serial loop", "serial|loop", None),
    "claims": Peer("claim loop", "claim|loop", None, (), 0),
}

MPI_POOLS = ("workpool", "futures", "control", "schwimmbad")
EXECUTORS = ("workpool", "futures", "control", "processes", "multiprocessing", "threads")
POOLS = (*MPI_POOLS, "processes", "multiprocessing", "threads")

#: Those whose map can be told how far to run ahead of its results.
BOUNDED = ("workpool", "futures", "control")
if sys.version_info >= (3, 14):
    BOUNDED += ("processes", "threads")
