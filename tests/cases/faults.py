"""What may go wrong at each place that a task passes, in the worker or in its child process."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from typing import Any

from workpool import TaskTimeout, WorkerCrashed, WorkPool
from workpool.errors import BrokenPool, SerializationError

PLACES = ("unpickle arguments", "initializer", "running", "pickle result", "unpickle result")
FAULTS = ("crash", "exit", "raise", "hang")


class Fault(Exception):
    """Raised on purpose."""


def happen(fault: str) -> None:
    """Do what goes wrong."""
    if fault == "crash":
        os.kill(os.getpid(), signal.SIGSEGV)
        ctypes.string_at(0)
    elif fault == "exit":
        os._exit(7)
    elif fault == "raise":
        raise Fault("on purpose")
    while True:
        time.sleep(0.05)


class OnRestore:
    """Makes it happen where it is unpickled."""

    def __init__(self, fault: str) -> None:
        self.fault = fault

    def __reduce__(self) -> tuple[Any, ...]:
        return happen, (self.fault,)


class OnSave:
    """Makes it happen where it is pickled."""

    def __init__(self, fault: str) -> None:
        self.fault = fault

    def __reduce__(self) -> Any:
        happen(self.fault)


def ignore(value: object) -> None:
    """Take an argument."""


def run(place: str, fault: str, **options: Any) -> object:
    """Have it happen in a task, and return the type of what its future says."""
    setup = {"initializer": happen, "initargs": (fault,)} if place == "initializer" else {}
    pool = WorkPool(**setup)
    view = pool.with_options(**options) if options else pool
    if place == "unpickle arguments":
        future = view.submit(ignore, OnRestore(fault))
    elif place == "running":
        future = view.submit(happen, fault)
    elif place == "pickle result":
        future = view.submit(OnSave, fault)
    elif place == "unpickle result":
        future = view.submit(OnRestore, fault)
    else:
        future = view.submit(ignore, None)
    error = future.exception(30)
    pool.shutdown()
    return type(error)


RAISED = {
    "unpickle arguments": SerializationError,
    "initializer": BrokenPool,
    "running": Fault,
    "pickle result": SerializationError,
    "unpickle result": SerializationError,
}
ISOLATED = {"crash": WorkerCrashed, "exit": WorkerCrashed, "hang": TaskTimeout}

if __name__ == "__main__":
    if sys.argv[1:] == ["raise"]:
        for place in PLACES:
            found = run(place, "raise")
            assert found is RAISED[place], (place, found)
            print(f"{place}: raise: {found.__name__}", flush=True)
    elif sys.argv[1:] == ["isolated"]:
        for place in PLACES:
            # A result is restored in the driver: what happens there is the driver's.
            for fault in FAULTS if place != "unpickle result" else ("raise",):
                found = run(place, fault, timeout_s=1.0 if fault == "hang" else 20.0)
                expected = RAISED[place] if fault == "raise" else ISOLATED[fault]
                assert found is expected, (place, fault, found)
                print(f"{place}: {fault}: {expected.__name__}", flush=True)
        with WorkPool() as pool:
            assert list(pool.map(abs, range(-100, 0))) == list(range(100, 0, -1))
    else:
        print("begins", flush=True)
        print("ends as", run(*sys.argv[1:]), flush=True)
