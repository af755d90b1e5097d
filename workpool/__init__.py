"""workpool: a task queue in one MPI window; run Python callables on MPI ranks.

>>> from workpool import WorkPool
>>> with WorkPool() as pool:
...     future = pool.submit(pow, 2, 10)
...     future.result(), list(pool.map(str.upper, ["a", "b"]))
(1024, ['A', 'B'])

Importing this package does not start MPI; making a pool does.
"""

from __future__ import annotations

from .accumulator import Accumulator
from .core import WorkerStats
from .errors import TaskKilled, TaskTimeout, WorkerCrashed
from .executor import WorkPool, run
from .future import PoolFuture
from .view import View

__all__ = [
    "Accumulator",
    "PoolFuture",
    "TaskKilled",
    "TaskTimeout",
    "View",
    "WorkPool",
    "WorkerCrashed",
    "WorkerStats",
    "run",
]
