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

#: Where names are defined; the others are errors.
_HOMES = {
    "Accumulator": "accumulator",
    "PoolFuture": "pool.future",
    "View": "pool.view",
    "WorkPool": "pool.executor",
    "WorkerStats": "pool.stats",
    "run": "pool.executor",
}


def __getattr__(name: str) -> Any:
    """Import what is asked for: a worker starts sooner without the driver's half."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = import_module(f".{_HOMES.get(name, 'errors')}", __name__)
    value = globals()[name] = getattr(home, name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
