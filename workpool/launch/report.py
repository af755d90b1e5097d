"""What ``workpool info`` and ``workpool bench`` run as ranks.

``python -m workpool.launch.report info``
    On two ranks: rank 0 measures the verbs of ``rma`` on a window that lies on rank 1.
``python -m workpool -m workpool.launch.report bench``
    A driver like any other: what a user's program gets from ``WorkPool``.
"""

from __future__ import annotations

import statistics
import sys
import time
import traceback
from collections.abc import Callable
from concurrent.futures import Executor
from typing import TYPE_CHECKING

import numpy as np

from ..system.status import Reporter

if TYPE_CHECKING:
    from .. import rma

# Where it is measured: each on a cache line of its own.
_CAS, _COUNTER, _BYTES, _NUMBERS, _NBYTES = 0, 64, 128, 192, 256
_ROUNDS, _CALLS = 7, 2_000

_TASKS = 50_000
_ONE_BY_ONE = 5_000


def nothing() -> None:
    """Do nothing: the task of the benchmark."""


def info() -> None:
    """Print what the MPI is and what one-sided calls cost.  Collective."""
    from .. import rma

    reporter = Reporter()
    group = rma.Group()
    window = group.allocate(_NBYTES, group.size - 1, _NBYTES)
    try:
        if group.rank == 0:
            reporter.begin()
            for name, value in rma.info(group, window).items():
                print(f"{name:<22}{value}")
            print(f"\neach verb, completed: median of {_ROUNDS} rounds of {_CALLS:,}")
            for name, call in _verbs(window, group).items():
                print(f"{name:<26}{_cost_us(call):6.2f} us", flush=True)
    except BaseException as error:
        if not isinstance(error, BrokenPipeError):  # nobody reads on: ``workpool info | head``
            traceback.print_exc()
        reporter.failed(1)
        group.abort(1)
    group.agree(True)  # the other ranks wait here, inside MPI
    window.close()
    group.close()
    reporter.ended(0)


def bench() -> None:
    """Print how many tasks run in a second, and how long one takes from submit to result."""
    from .. import rma
    from ..pool.executor import WorkPool

    print(rma.library_version())
    with WorkPool(max_workers=2) as pool:
        _submit_all(pool, 2_000)  # the workers have the code now
        rates = [_TASKS / _submit_all(pool, _TASKS) for _ in range(3)]
    print(f"{'throughput, 2 workers':<26}{statistics.median(rates):10,.0f} no-op tasks/s")
    with WorkPool(max_workers=1) as pool:
        _latencies_us(pool, 500)
        times = _latencies_us(pool, _ONE_BY_ONE)
    p99 = statistics.quantiles(times, n=100)[98]
    print(f"{'submit to result, 1 worker':<26}{statistics.median(times):10,.1f} us median")
    print(f"{'':<26}{p99:10,.1f} us for 99 of 100")


def _verbs(window: rma.Window, group: rma.Group) -> dict[str, Callable[[], object]]:
    """Return one completed call of each verb."""
    buffer, numbers = bytearray(64), np.zeros(8)
    stored = " (in memory)" if group.one_host else ""

    def put() -> None:
        window.put(_BYTES, buffer)
        window.flush()

    def get() -> None:
        window.get(_BYTES, buffer)
        window.flush()

    def accumulate() -> None:
        window.accumulate(_NUMBERS, numbers, "sum")
        window.flush()

    def get_numbers() -> None:
        window.get_numbers(_NUMBERS, numbers)
        window.flush()

    return {
        "load": lambda: window.load(_CAS),
        "compare_and_swap": lambda: window.compare_and_swap(_CAS, 0, 0),
        "fetch_add": lambda: window.fetch_add(_COUNTER, 1),
        f"put, 64 bytes{stored}": put,
        f"get, 64 bytes{stored}": get,
        "accumulate, 8 doubles": accumulate,
        "get_numbers, 8 doubles": get_numbers,
    }


def _cost_us(call: Callable[[], object]) -> float:
    """Return the microseconds of one call: the median of several rounds, after a warm-up."""
    rounds = []
    for _ in range(_ROUNDS + 1):
        begun = time.perf_counter()
        for _ in range(_CALLS):
            call()
        rounds.append((time.perf_counter() - begun) / _CALLS * 1e6)
    return statistics.median(rounds[1:])


def _submit_all(pool: Executor, tasks: int) -> float:
    """Return the seconds from the first submit to the last result."""
    begun = time.perf_counter()
    futures = [pool.submit(nothing) for _ in range(tasks)]
    for future in futures:
        future.result()
    return time.perf_counter() - begun


def _latencies_us(pool: Executor, tasks: int) -> list[float]:
    """Return the microseconds from submit to result of each of several tasks, one at a time."""
    times = []
    for _ in range(tasks):
        begun = time.perf_counter()
        pool.submit(nothing).result()
        times.append((time.perf_counter() - begun) * 1e6)
    return times


if __name__ == "__main__":
    {"info": info, "bench": bench}[sys.argv[1]]()
