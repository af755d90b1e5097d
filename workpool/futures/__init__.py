"""The names of ``mpi4py.futures``: a program written for it changes its import, and runs here.

::

    from workpool.futures import MPIPoolExecutor  # in place of mpi4py.futures

    mpiexec -n 5 python -m workpool.futures script.py args

The modules::

    executor    MPIPoolExecutor, MPICommExecutor
    workers     get_comm_workers, and what else is called on a worker
    chains      collect, compose
    aplus       then, catch

``MPIPoolExecutor`` is a ``WorkPool``: whatever that has, it has as well.  The other names are those
of ``concurrent.futures``; ``ThreadPoolExecutor`` and ``ProcessPoolExecutor`` are mpi4py's own, one
of which spawns ranks.

Importing this package does not start MPI.  Importing names that are made of mpi4py's own does:
those two, ``collect``, ``compose``, and what is in ``aplus``.
"""

from __future__ import annotations

import sys
from concurrent.futures import (
    ALL_COMPLETED,
    FIRST_COMPLETED,
    FIRST_EXCEPTION,
    BrokenExecutor,
    CancelledError,
    Executor,
    Future,
    InvalidStateError,
    TimeoutError,
    as_completed,
    wait,
)
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mpi4py.futures import ProcessPoolExecutor, ThreadPoolExecutor

    from .chains import collect, compose
    from .executor import MPICommExecutor, MPIPoolExecutor
    from .workers import get_comm_workers

__all__ = [
    "ALL_COMPLETED",
    "FIRST_COMPLETED",
    "FIRST_EXCEPTION",
    "BrokenExecutor",
    "CancelledError",
    "Executor",
    "Future",
    "InvalidStateError",
    "MPICommExecutor",
    "MPIPoolExecutor",
    "ProcessPoolExecutor",
    "ThreadPoolExecutor",
    "TimeoutError",
    "as_completed",
    "collect",
    "compose",
    "get_comm_workers",
    "wait",
]

#: Where the names are that are not defined yet.
_HOMES = {
    "MPICommExecutor": ".executor",
    "MPIPoolExecutor": ".executor",
    "ProcessPoolExecutor": "mpi4py.futures",
    "ThreadPoolExecutor": "mpi4py.futures",
    "collect": ".chains",
    "compose": ".chains",
    "get_comm_workers": ".workers",
}


def __getattr__(name: str) -> Any:
    """Import what is asked for: the ranks that only serve do without it."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    theirs = _HOMES[name] == "mpi4py.futures"
    home = mpi4py_own(_HOMES[name]) if theirs else import_module(_HOMES[name], __name__)
    value = globals()[name] = getattr(home, name)
    return value


def mpi4py_own(name: str) -> Any:
    """Import a module of mpi4py.futures, even if a program has put this package in its place."""
    import_module("workpool.rma")  # first: it says how MPI is to be loaded
    ours = sys.modules[__name__]
    if sys.modules.get("mpi4py.futures") is not ours:
        return import_module(name)
    del sys.modules["mpi4py.futures"]
    try:
        return import_module(name)
    finally:
        sys.modules["mpi4py.futures"] = ours
        sys.modules["mpi4py"].futures = ours  # type: ignore[attr-defined]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
