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
    if _HOMES[name] == "mpi4py.futures":
        import_module("workpool.rma")  # first: it says how MPI is to be loaded
    value = globals()[name] = getattr(import_module(_HOMES[name], __name__), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
