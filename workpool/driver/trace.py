"""Hooks where a task changes hands; while nobody listens, each costs a branch, a rare one a call.

A *tracer* is any callable ``tracer(event, *, task_id, ticket, attempt)``; `ticket` is -1 where the
task is in no row, `attempt` counts from 0.  It runs inside the driver, so it must be quick, must
not raise, and must not call the pool.  The events::

    published   a descriptor became visible
    collected   the outcome is here, the row will be free
    cancelled   nobody will run it
    killed      it was taken back from the worker that ran it, for good
    reclaimed   an attempt was taken back from a worker that is gone
    retried     an attempt has failed, another one follows
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..layout import Geometry
from ..tasks import Task


class Trace:
    """Tells the tracer of one driver what happens, if there is one.

    Parameters
    ----------
    geometry : Geometry

    Attributes
    ----------
    tracer : callable or None
    """

    def __init__(self, geometry: Geometry) -> None:
        self.tracer: Callable[..., Any] | None = None
        self._geometry = geometry

    def __call__(self, event: str, task: Task) -> None:
        """Say what has happened to a task, if somebody listens."""
        if self.tracer is not None:
            row = None if task.batch is None else task.batch.row
            ticket = -1 if row is None else self._geometry.ticket(row.number, row.word)
            self.tracer(event, task_id=task.task_id, ticket=ticket, attempt=task.attempt)
