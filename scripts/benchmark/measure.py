"""The measuring program: one pool, one measure, a JSON line.

It is the script of every pool that is measured, so its tasks are what a user's are: functions that
the script defines.  ``python -m benchmark`` starts it, in a process or job of its own for each
measurement.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
import time
from array import array
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial
from typing import Any

from . import uneven
from .peers import PEERS, Pool
from .rates import consume, fastest, finish, rate
from .request import Request
from .usage import peak_nbytes, reset_peak, resident_nbytes, used_s

TASKS = 100_000
ITEMS = 1_000_000
FUTURES, FEWER_FUTURES = 1_000_000, 100_000
BUFFERSIZE = 50_000
CHUNK = 1000
STATIC_CHUNKSIZES = (1, 2, 4, 8, 16, 64, 256)

#: Bytes of an array, and how many of them go there and back.
PAYLOADS = {
    "1 KiB": (1 << 10, 20_000),
    "64 KiB": (1 << 16, 4000),
    "1 MiB": (1 << 20, 500),
    "64 MiB": (1 << 26, 8),
}
BIG_NBYTES, BIG_ARENA_NBYTES = 2_300_000_000, 256 << 20

#: A sleep ends late by some 0.1 ms: the end of a task's time is waited for awake.
AWAKE_S = 0.12e-3


# The tasks. They run on the workers.


def nothing(*_: Any) -> None:
    """Do nothing."""


def echo(value: Any) -> Any:
    """Return the argument."""
    return value


@dataclass
class Point:
    """What a script defines to pass around."""

    x: float
    y: float = 0.0


def moved(point: Point) -> Point:
    """Return another point."""
    return Point(point.x + 1, point.y)


SAMPLES = array("d", range(8192))


def sample(i: int) -> float:
    """Return one of the script's numbers."""
    return SAMPLES[i % len(SAMPLES)]


def applied(fn: Callable[..., Any], *args: Any) -> Any:
    """Call what is passed."""
    return fn(*args)


def compute(seconds: float) -> None:
    """Use so much processor time."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def sleep(seconds: float) -> None:
    """Take so much time, and hardly any of the processor's."""
    end = time.perf_counter() + seconds
    time.sleep(max(0, seconds - AWAKE_S))
    while time.perf_counter() < end:
        pass


def contribute(numbers: Any) -> None:
    """Add to an accumulator."""
    numbers.add([1.0] * 8)


def nbytes_of(array: Any) -> int:
    """Return the size of an array."""
    return int(array.nbytes)


def array_of(nbytes: int) -> Any:
    """Return an array of float64."""
    import numpy as np

    return np.ones(nbytes // 8)


def process_of(seconds: float) -> int:
    """Return the process that this runs in, after some time."""
    time.sleep(seconds)
    return os.getpid()


def wait_for(path: str) -> None:
    """Keep a worker busy until a file is gone."""
    while os.path.exists(path):
        time.sleep(0.01)


# The measures. They run on the driver.


def processes_of(pool: Pool, workers: int) -> set[int]:
    """Return the processes that run a pool's tasks, when each has run some."""
    found: set[int] = set()
    while len(found) < workers:
        found.update(pool.map(process_of, [0.01] * 8 * workers))
    return found


def submit(pool: Pool, request: Request) -> dict[str, float]:
    """Return the tasks per second, submitted all and then waited for."""

    def run(count: int) -> None:
        finish(pool, nothing, [()] * count)

    return {"rate": rate(run, request.count(TASKS), request.seconds)}


def objects(pool: Pool, request: Request) -> dict[str, float]:
    """Return the tasks, and the items of a map, per second with objects of the script's classes."""
    points = [Point(float(i)) for i in range(request.count(TASKS))]

    def run(count: int) -> None:
        finish(pool, moved, zip(points[:count], strict=True))

    return {
        "rate": rate(run, len(points), request.seconds),
        **fastest(pool, request, "map", moved, lambda items: points[:items], TASKS),
    }


def reads(pool: Pool, request: Request) -> dict[str, float]:
    """Return the tasks per second of functions that read an array, and of those passed on."""

    def run(fn: Callable[..., Any], count: int, *first: Any) -> None:
        finish(pool, fn, [(*first, i) for i in range(count)])

    count = request.count(TASKS)
    return {
        "array": rate(partial(run, sample), count, request.seconds),
        "argument": rate(lambda tasks: run(applied, tasks, nothing), count, request.seconds),
    }


def latency(pool: Pool, request: Request) -> dict[str, float]:
    """Return the times from submit to result of one task at a time."""
    assert pool.submit is not None
    times: list[float] = []
    enough = time.perf_counter() + request.seconds
    while len(times) < 1200 or (time.perf_counter() < enough and len(times) < 5200):
        begun = time.perf_counter()
        pool.result(pool.submit(nothing))
        times.append((time.perf_counter() - begun) * 1e6)
    del times[:200]
    return {"median": statistics.median(times), "p99": statistics.quantiles(times, n=100)[98]}


def pause(pool: Pool, request: Request) -> dict[str, float]:
    """Return the time from submit to result of a task that comes after a second of nothing."""
    assert pool.submit is not None
    pool.result(pool.submit(nothing))
    times = []
    for _ in range(5):
        time.sleep(1)
        begun = time.perf_counter()
        pool.result(pool.submit(nothing))
        times.append((time.perf_counter() - begun) * 1e3)
    return {"median": statistics.median(times)}


def mapped(pool: Pool, request: Request) -> dict[str, float]:
    """Return the items per second of maps over a range and over a list."""
    count = request.count(ITEMS)
    floats = [float(i) for i in range(count)]
    return {
        **fastest(pool, request, "range", nothing, range, ITEMS),
        **fastest(pool, request, "list", nothing, lambda items: floats[:items], ITEMS),
    }


def generator(pool: Pool, request: Request) -> dict[str, float]:
    """Return the items per second of a bounded map over a generator, and how memory grows."""
    start = grown = resident_nbytes()

    def watched(count: int) -> Iterator[int]:
        nonlocal grown
        for i in range(count):
            if i % 10_000 == 0:
                grown = max(grown, resident_nbytes())
            yield i

    found = fastest(pool, request, "rate", nothing, watched, ITEMS, buffersize=BUFFERSIZE)
    return {**found, "growth": (grown - start) / 1e6}


def uneven_tasks(pool: Pool, request: Request) -> dict[str, float]:
    """Return the parallel efficiency, in per cent, of tasks that take very different times."""
    ranks, cores = request.workers + 1, len(os.sched_getaffinity(0))
    work = compute if ranks <= cores else sleep
    workers = request.workers
    times = {
        "lognormal": uneven.lognormal(workers, request.turn),
        "mandelbrot": uneven.mandelbrot(workers),
        "giants": uneven.giants(workers),
    }

    def elapsed_s(times_s: list[float], **options: int) -> float:
        begun = time.perf_counter()
        consume(pool.map(work, times_s, **options))
        return time.perf_counter() - begun

    elapsed_s([1e-3] * (20 * workers))  # the workers have the function
    found = {name: 100 * sum(some) / (workers * elapsed_s(some)) for name, some in times.items()}
    if request.peer == "workpool":
        some = times["giants"]
        static = min(elapsed_s(some, chunksize=size) for size in STATIC_CHUNKSIZES)
        here = sum(some) / workers * 100 / found["giants"]
        found["of the best"] = 100 * here / static
    return found


def payload(pool: Pool, request: Request) -> dict[str, float]:
    """Return how often each array goes there and back in a second."""
    found = {}
    consume(pool.map(echo, [array_of(8)] * (20 * request.workers)))  # the workers have NumPy
    for name, (nbytes, most) in PAYLOADS.items():
        array = array_of(nbytes)

        def run(count: int, array: Any = array) -> None:
            if pool.submit is None:
                consume(pool.map(echo, [array] * count))
                return
            futures = deque(pool.run(echo, _changing(array, count)))
            while futures:
                pool.result(futures.popleft())

        found[name] = rate(run, request.count(most), request.seconds / 2, least=2)
    return found


def _changing(array: Any, count: int) -> Iterator[tuple[Any]]:
    """Yield the arguments of so many tasks: no two of them get the same numbers."""
    for i in range(count):
        array[0] = i
        yield (array,)


def big(pool: Pool, request: Request) -> dict[str, float]:
    """Return the seconds that one large argument and one large result take, and their memory."""
    assert pool.submit is not None
    pool.submit(nothing).result()
    found = {}
    for name, fn, argument in (
        ("argument", nbytes_of, array_of(BIG_NBYTES)),
        ("result", array_of, BIG_NBYTES),
    ):
        pool.submit(reset_peak).result()
        before = pool.submit(peak_nbytes).result()
        reset_peak()
        start = peak_nbytes() - (BIG_NBYTES if name == "argument" else 0)
        begun = time.perf_counter()
        result = pool.submit(fn, argument).result()
        found[f"{name} s"] = time.perf_counter() - begun
        here, there = peak_nbytes() - start, pool.submit(peak_nbytes).result() - before
        found[f"{name} copies"] = max(here, there) / BIG_NBYTES
        del result, argument
    return found


def accumulator(pool: Pool, request: Request) -> dict[str, float]:
    """Return the tasks per second with and without a contribution to an accumulator."""
    numbers = pool.native.accumulator(8)

    def run(fn: Callable[..., Any], count: int) -> None:
        finish(pool, fn, [(numbers,)] * count)

    rates: dict[Any, list[float]] = {contribute: [], nothing: []}
    for _ in range(2):
        for fn, found in rates.items():
            found.append(rate(partial(run, fn), request.count(TASKS), request.seconds))
    added, without = (statistics.median(found) for found in rates.values())
    return {"rate": added, "share": 100 * added / without}


def isolated(pool: Pool, request: Request) -> dict[str, float]:
    """Return how much longer one isolated task at a time takes, and tasks per second of many."""
    view = pool.native.with_options(isolate=True)
    apart = Pool(view, view.map, view.submit)
    processes_of(apart, request.workers)  # each worker has its child
    alone, here = (latency(some, request)["median"] for some in (apart, pool))
    return {"alone": alone - here, **submit(apart, request)}


def idle(pool: Pool, request: Request) -> dict[str, float]:
    """Return the share of a core, in per cent, that driver and workers use when idle for 1 s."""
    watched = [os.getpid(), *processes_of(pool, request.workers)]
    time.sleep(1)
    before, begun = [used_s(process) for process in watched], time.perf_counter()
    time.sleep(2)
    after, elapsed_s = [used_s(process) for process in watched], time.perf_counter() - begun
    shares = [100 * (b - a) / elapsed_s for a, b in zip(before, after, strict=True)]
    return {"driver": shares[0], "worker": max(shares[1:])}


def start(pool: Pool, request: Request) -> dict[str, float]:
    """Return the seconds from the launch to the first result."""
    if pool.submit is None:
        consume(pool.map(nothing, [0]))
    else:
        pool.result(pool.submit(nothing))
    return {"time": time.monotonic() - request.launched_s}


def queued(pool: Pool, request: Request) -> dict[str, float]:
    """Return the bytes of the driver's memory for each future, and whether submitting is linear."""
    count = request.count(FUTURES if request.peer == "workpool" else FEWER_FUTURES)
    with tempfile.NamedTemporaryFile() as busy:
        futures = pool.run(wait_for, [(busy.name,)] * request.workers)
        futures += pool.run(nothing, [()] * 1000)
        time.sleep(0.5)
        before, halves_s = resident_nbytes(), []
        for _ in range(2):
            begun = time.perf_counter()
            futures += pool.run(nothing, [()] * (count // 2))
            halves_s.append(time.perf_counter() - begun)
        found = {"bytes": (resident_nbytes() - before) / count, "linear": halves_s[1] / halves_s[0]}
    # The file is gone, and the workers are free.
    if isinstance(pool.native, Executor):
        pool.native.shutdown(cancel_futures=True)
    return found


MEASURES = {
    "submit": submit,
    "objects": objects,
    "reads": reads,
    "latency": latency,
    "pause": pause,
    "map": mapped,
    "generator": generator,
    "uneven": uneven_tasks,
    "payload": payload,
    "big": big,
    "accumulator": accumulator,
    "isolated": isolated,
    "idle": idle,
    "start": start,
    "queued": queued,
}


def main() -> None:
    """Measure what the command line asks for, and print a JSON line."""
    request = Request.decode(sys.argv[1])
    if request.measure == "big":
        os.environ["WORKPOOL_ARENA_NBYTES"] = str(BIG_ARENA_NBYTES)
    opened = PEERS[request.peer].open
    assert opened is not None
    with opened(request.workers) as pool:
        if request.measure != "start":
            consume(pool.map(nothing, range(100 * request.workers)))  # the workers are there
        print(json.dumps(MEASURES[request.measure](pool, request)), flush=True)


if __name__ == "__main__":
    main()
