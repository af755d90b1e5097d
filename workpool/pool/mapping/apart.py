"""A map whose items, or chunks of a given size, are tasks of their own."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import TimeoutError as FutureTimeout
from itertools import count, islice
from typing import Any

from ...clock import monotonic
from ...errors import TaskLost, of_item
from ...forgetting import forgetting
from ..future import Pool, PoolFuture


class Ended(deque[PoolFuture[Any]]):
    """Futures that have ended: what the standard library tells, of those that have it for a waiter.

    At once, in the thread that ends them: who iterates may be the one that calls callbacks.
    """

    add_result = add_exception = add_cancelled = deque.append

    def watch(self, future: PoolFuture[Any]) -> None:
        """Have a future when it has ended."""
        with future._condition:
            if future.done():
                self.append(future)
            else:
                future._waiters.append(self)


def results(
    pool: Pool,
    submit: Callable[[tuple[Any, ...]], PoolFuture[Any]],
    items: Iterator[tuple[Any, ...]],
    chunksize: int,
    buffersize: int | None,
    deadline: float | None,
    unordered: bool,
) -> Iterator[Any]:
    """Submit what may be, and return what yields the results, and submits the rest.

    Parameters
    ----------
    pool : Pool
    submit : callable
        ``submit(chunk)``: makes a task of some items.
    items : iterator
        The arguments of each call.
    chunksize : int
    buffersize : int or None
        Items taken ahead of the results; None: all at once.
    deadline : float or None
        By the monotonic clock.
    unordered : bool
        Whether the results come as their tasks end.
    """
    chunks = iter(lambda: tuple(islice(items, chunksize)), ())
    ahead = None if buffersize is None else -(-buffersize // chunksize)
    futures = deque(submit(chunk) for chunk in islice(chunks, ahead))
    more = map(submit, chunks if ahead is not None else ())
    found = _as_they_come if unordered else _in_order
    return found(pool, futures, more, chunksize == 1, deadline)


def _in_order(
    pool: Pool,
    futures: deque[PoolFuture[Any]],
    more: Iterator[PoolFuture[Any]],
    single: bool,
    deadline: float | None,
) -> Iterator[Any]:
    given = 0

    def first() -> list[Any]:
        nonlocal given
        left = None if deadline is None else deadline - monotonic()
        found = _results(futures[0], left, given if single else None)
        given += 1
        futures.popleft()  # not before: whatever is left there is cancelled
        futures.extend(islice(more, 1))
        return found

    try:
        while futures:
            yield from forgetting(first())
    finally:
        # The last one first: else each makes room for another, which then is published.  And none
        # is kept: of one that has failed, the traceback has this frame.
        while futures:
            pool.callbacks.outside(futures.pop().cancel)


def _as_they_come(
    pool: Pool,
    futures: deque[PoolFuture[Any]],
    more: Iterator[PoolFuture[Any]],
    single: bool,
    deadline: float | None,
) -> Iterator[Any]:
    places: dict[PoolFuture[Any], int] = {}  # of those whose results were not given
    numbers = count()
    ended = Ended()

    def watch(several: Iterable[PoolFuture[Any]]) -> None:
        for future in several:
            places[future] = next(numbers)
            ended.watch(future)

    def next_one() -> list[Any]:
        left = None if deadline is None else deadline - monotonic()
        try:
            if not pool.driver.wait(lambda: bool(ended), left):
                raise FutureTimeout
        except TaskLost as error:
            for future in list(places):
                pool.lose(future, error)
            if not ended:  # another thread is just giving them that error
                raise
        future = ended.popleft()
        place = places.pop(future)
        try:
            found = _results(future, None, place if single else None)
        finally:
            del future  # the traceback has this frame
        watch(islice(more, 1))
        return found

    try:
        watch(futures)
        futures.clear()
        while places:
            yield from forgetting(next_one())
    finally:
        while places:
            pool.callbacks.outside(places.popitem()[0].cancel)


def _results(future: PoolFuture[Any], left: float | None, item: int | None) -> list[Any]:
    """Return the results of a task: of a chunk, or of one item, of which then its error tells."""
    try:
        return future.result(left) if item is None else [future.result(left)]
    except BaseException as error:
        if item is not None:
            of_item(item, error)
        raise
    finally:
        del future  # the traceback has this frame
