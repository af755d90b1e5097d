"""What the driver says of its tasks to who listens: see ``tracing``."""

from __future__ import annotations

from ..layout import Geometry
from ..tasks import Task
from ..tracing import Tracer


class Trace:
    """The hooks of one driver.

    Parameters
    ----------
    geometry : Geometry
    tracer : Tracer or None
        Who listens.
    """

    def __init__(self, geometry: Geometry, tracer: Tracer | None) -> None:
        self.tracer = tracer
        self._geometry = geometry

    def __call__(self, event: str, task: Task) -> None:
        """Say what has happened to a task, if somebody listens."""
        if self.tracer is not None:
            row = None if task.batch is None else task.batch.row
            ticket = -1 if row is None else self._geometry.ticket(row.number, row.word)
            self.tracer(event, task_id=task.task_id, ticket=ticket, attempt=task.attempt)
