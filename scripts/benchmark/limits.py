"""What no pool can pass: the serial loop of pickle and call, and the bare claim loop over RMA.

The serial loop does for each task what any pool must do that moves tasks between processes: pickle
the call, restore it, call it, pickle the result, restore that.  In the claim loop, ranks do nothing
but take numbers from one counter: ``Fetch_and_op`` and ``Flush`` on a window.
"""

from __future__ import annotations

import json
import pickle
import statistics
import sys
import time
from array import array
from collections.abc import Callable
from typing import Any

from .measure import CHUNK, ITEMS, PAYLOADS, TASKS, array_of, echo, nothing
from .rates import rate
from .request import Request


def _there_and_back(fn: Callable[..., Any], *args: Any) -> Any:
    sent, taken, options = pickle.loads(pickle.dumps((fn, args, {}), pickle.HIGHEST_PROTOCOL))
    return pickle.loads(pickle.dumps(sent(*taken, **options), pickle.HIGHEST_PROTOCOL))


def _chunk(fn: Callable[..., Any], items: Any) -> list[Any]:
    return [fn(item) for item in items]


def submit(request: Request) -> dict[str, float]:
    """Return the tasks per second of the loop that the request names."""
    if request.peer == "claims":
        return claims(request.count(TASKS))

    def run(count: int) -> None:
        for _ in range(count):
            _there_and_back(nothing)

    return {"rate": rate(run, request.count(TASKS), request.seconds)}


def latency(request: Request) -> dict[str, float]:
    """Return the times of one task."""
    times = []
    for _ in range(2000):
        begun = time.perf_counter()
        _there_and_back(nothing)
        times.append((time.perf_counter() - begun) * 1e6)
    return {"median": statistics.median(times), "p99": statistics.quantiles(times, n=100)[98]}


def mapped(request: Request) -> dict[str, float]:
    """Return the items per second where a thousand travel together."""
    found = {}
    for name, kind in ("range", range), ("list", lambda *ends: [float(i) for i in range(*ends)]):

        def run(count: int, kind: Callable[..., Any] = kind) -> None:
            for at in range(0, count, CHUNK):
                _there_and_back(_chunk, nothing, kind(at, min(count, at + CHUNK)))

        found[name] = rate(run, request.count(ITEMS), request.seconds)
    return found


def payload(request: Request) -> dict[str, float]:
    """Return how often each array goes there and back in a second."""
    found = {}
    for name, (nbytes, most) in PAYLOADS.items():
        array = array_of(nbytes)

        def run(count: int, array: Any = array) -> None:
            for _ in range(count):
                _there_and_back(echo, array)

        found[name] = rate(run, request.count(most), request.seconds / 2)
    return found


def claims(count: int) -> dict[str, float]:
    """Return, on rank 0, the claims per second of all ranks together.  Collective."""
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    window = MPI.Win.Allocate(8 if comm.rank == 0 else 0, 8, comm=comm)
    if comm.rank == 0:
        window.tomemory()[:] = bytes(8)
    comm.Barrier()
    window.Lock_all(MPI.MODE_NOCHECK)
    one, found = array("q", [1]), array("q", [0])
    begun = time.perf_counter()
    while found[0] < count:
        window.Fetch_and_op(one, found, 0)
        window.Flush(0)
    comm.Barrier()
    elapsed_s = time.perf_counter() - begun
    window.Unlock_all()
    window.Free()
    return {"rate": count / elapsed_s} if comm.rank == 0 else {}


def main() -> None:
    """Measure what the command line asks for, and print a JSON line."""
    request = Request.decode(sys.argv[1])
    measured = {"submit": submit, "latency": latency, "map": mapped, "payload": payload}
    figures = measured[request.measure](request)
    if figures:
        print(json.dumps(figures), flush=True)


if __name__ == "__main__":
    main()
