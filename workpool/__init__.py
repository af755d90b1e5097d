"""workpool: a task queue in one MPI window; run Python callables on MPI ranks.

>>> from workpool import WorkPool
>>> with WorkPool() as pool:
...     future = pool.submit(pow, 2, 10)
...     future.result(), list(pool.map(str.upper, ["a", "b"]))
(1024, ['A', 'B'])

Importing this package does not start MPI; making a pool does.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .accumulator import Accumulator
    from .errors import (
        BrokenPool,
        RemoteTraceback,
        ResourceError,
        SerializationError,
        TaskError,
        TaskKilled,
        TaskLost,
        TaskTimeout,
        UsageError,
        WorkerCrashed,
        WorkerUnreachable,
        WorkPoolError,
    )
    from .pool.executor import WorkPool, run
    from .pool.future import PoolFuture
    from .pool.stats import WorkerStats
    from .pool.view import View

__all__ = [
    "Accumulator",
    "BrokenPool",
    "PoolFuture",
    "RemoteTraceback",
    "ResourceError",
    "SerializationError",
    "TaskError",
    "TaskKilled",
    "TaskLost",
    "TaskTimeout",
    "UsageError",
    "View",
    "WorkPool",
    "WorkPoolError",
    "WorkerCrashed",
    "WorkerStats",
    "WorkerUnreachable",
    "run",
]

_HOMES = {
    "Accumulator": "accumulator",
    "BrokenPool": "errors",
    "PoolFuture": "pool.future",
    "RemoteTraceback": "errors",
    "ResourceError": "errors",
    "SerializationError": "errors",
    "TaskError": "errors",
    "TaskKilled": "errors",
    "TaskLost": "errors",
    "TaskTimeout": "errors",
    "UsageError": "errors",
    "View": "pool.view",
    "WorkPool": "pool.executor",
    "WorkPoolError": "errors",
    "WorkerCrashed": "errors",
    "WorkerStats": "pool.stats",
    "WorkerUnreachable": "errors",
    "run": "pool.executor",
}


def __getattr__(name: str) -> Any:
    """Import what is asked for: a worker starts sooner without the driver's half."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f".{_HOMES[name]}", __name__), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
