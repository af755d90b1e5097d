"""A map whose items, or chunks of a given size, are tasks of their own."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from itertools import islice
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
) -> Iterator[Any]:
    """Submit what may be, and return what yields the results in order, and submits the rest.

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
    """
    chunks = iter(lambda: tuple(islice(items, chunksize)), ())
    ahead = None if buffersize is None else -(-buffersize // chunksize)
    futures = deque(submit(chunk) for chunk in islice(chunks, ahead))
    more = map(submit, chunks if ahead is not None else ())
    return _in_order(callbacks, futures, more, chunksize == 1, deadline)


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
        try:
            result = futures[0].result(left)
        except BaseException as error:
            if single:
                of_item(given, error)
            raise
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
