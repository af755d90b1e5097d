"""A map whose items, or chunks of a given size, are tasks of their own."""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from itertools import count, islice
from typing import Any

from ...clock import monotonic
from ...errors import of_item
from ...forgetting import forgetting
from ..callbacks import Callbacks


def results(
    callbacks: Callbacks,
    submit: Callable[[tuple[Any, ...]], Future[Any]],
    items: Iterator[tuple[Any, ...]],
    chunksize: int,
    buffersize: int | None,
    deadline: float | None,
    unordered: bool,
) -> Iterator[Any]:
    """Submit what may be, and return what yields the results, and submits the rest.

    Parameters
    ----------
    callbacks : Callbacks
        Of the pool.
    submit : callable
        ``submit(chunk)``: makes a task of some items.
    items : iterator
        The arguments of each call.
    chunksize : int
    buffersize : int, optional
        Items taken ahead of the results.
    deadline : float, optional
        By the monotonic clock.
    unordered : bool
        Whether the results come as their tasks end.
    """
    chunks = iter(lambda: tuple(islice(items, chunksize)), ())
    ahead = None if buffersize is None else -(-buffersize // chunksize)
    futures = deque(submit(chunk) for chunk in islice(chunks, ahead))
    more = map(submit, chunks if ahead is not None else ())
    found = _as_they_come if unordered else _in_order
    return found(callbacks, futures, more, chunksize == 1, deadline)


def _in_order(
    callbacks: Callbacks,
    futures: deque[Future[Any]],
    more: Iterator[Future[Any]],
    single: bool,
    deadline: float | None,
) -> Iterator[Any]:
    given = 0

    def first() -> Any:
        nonlocal given
        left = None if deadline is None else deadline - monotonic()
        result = _result(futures[0], left, given if single else None)
        given += 1
        futures.popleft()  # not before: whatever is left there is cancelled
        futures.extend(islice(more, 1))
        return result

    try:
        while futures:
            if single:
                yield first()  # in no variable of ours: it may be large, and needed no more
            else:
                yield from forgetting(first())
    finally:
        # The last one first: else each makes room for another, which then is published.  And none
        # is kept: of one that has failed, the traceback has this frame.
        while futures:
            callbacks.outside(futures.pop().cancel)


def _as_they_come(
    callbacks: Callbacks,
    futures: deque[Future[Any]],
    more: Iterator[Future[Any]],
    single: bool,
    deadline: float | None,
) -> Iterator[Any]:
    places: dict[Future[Any], int] = {}  # of those whose results were not given
    numbers = count()
    ended: queue.SimpleQueue[Future[Any]] = queue.SimpleQueue()  # gevent's own where it has threads

    def watch(several: Iterable[Future[Any]]) -> None:
        for future in several:
            places[future] = next(numbers)
            future.add_done_callback(ended.put)

    def next_one() -> Any:
        left = None
        if deadline is not None:
            left = min(max(0.0, deadline - monotonic()), threading.TIMEOUT_MAX)
        try:
            future = ended.get(timeout=left)
        except queue.Empty:
            raise FutureTimeout from None
        place = places.pop(future)
        try:
            result = _result(future, None, place if single else None)
        finally:
            del future  # the traceback has this frame
        watch(islice(more, 1))
        return result

    try:
        watch(futures)
        futures.clear()
        while places:
            if single:
                yield next_one()
            else:
                yield from forgetting(next_one())
    finally:
        while places:
            callbacks.outside(places.popitem()[0].cancel)


def _result(future: Future[Any], left: float | None, item: int | None) -> Any:
    """Return the result of a task; what it has raised says now of which item, if it is of one."""
    try:
        return future.result(left)
    except BaseException as error:
        if item is not None:
            of_item(item, error)
        raise
    finally:
        del future  # the traceback has this frame
