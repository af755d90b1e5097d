"""How many tasks in a second: of a pool or a loop, as many as show it in the time that is given."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from .peers import Pool
from .request import Request

CHUNKSIZES = (1, 10, 100, 1000, 10_000)


def rate(run: Callable[[int], object], count: int, seconds: float, least: int = 100) -> float:
    """Return the tasks per second of `count` tasks, or of as many as take about `seconds`.

    As many have run before, by which memory is touched that these use again.
    """
    first = tasks = min(count, least)
    run(tasks)
    while (elapsed_s := seconds_of(run, tasks)) < seconds / 2 and tasks < count:
        tasks = min(count, 10 * tasks, max(2 * tasks, int(tasks * seconds / elapsed_s)))
    if tasks > first:
        elapsed_s = seconds_of(run, tasks)
    return tasks / elapsed_s


def seconds_of(run: Callable[[int], object], tasks: int) -> float:
    """Return the seconds that some tasks take."""
    begun = time.perf_counter()
    run(tasks)
    return time.perf_counter() - begun


def finish(pool: Pool, fn: Callable[..., Any], tasks: Iterable[tuple[Any, ...]]) -> None:
    """Submit all tasks, and then wait for each."""
    for future in pool.run(fn, tasks):
        pool.result(future)


def consume(results: Iterable[Any]) -> None:
    """Take all results."""
    deque(results, maxlen=0)


def fastest(
    pool: Pool,
    request: Request,
    name: str,
    fn: Callable[..., Any],
    items: Callable[[int], Iterable[Any]],
    most: int,
    **bound: int,
) -> dict[str, float]:
    """Return the items per second of a map, with the best chunk size where a pool wants one."""

    def run(count: int, chunksize: int | None) -> None:
        options = dict(bound)
        if chunksize is not None:
            options = {key: max(1, value // chunksize) for key, value in bound.items()}
            options["chunksize"] = chunksize
        consume(pool.map(fn, items(count), **options))

    def attempt(chunksize: int | None, seconds: float) -> float:
        least = 200 if chunksize is None else 4 * request.workers * chunksize
        count = request.count(most)
        return rate(partial(run, chunksize=chunksize), count, seconds, min(count, least))

    if not pool.chunked:
        return {name: attempt(None, request.seconds)}
    trials = {size: attempt(size, request.seconds / 10) for size in CHUNKSIZES}
    best = max(trials, key=lambda size: trials[size])
    return {name: attempt(best, request.seconds), f"{name} chunksize": best}
