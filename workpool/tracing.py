"""Hooks at the points where a task changes hands; they cost a branch while nobody listens.

A *tracer* is any callable ``tracer(event, *, task_id, ticket, attempt)``.  ``event`` is one of
``EVENTS``; `ticket` is -1 where the task is in no row, `attempt` counts from 0.  Tracers run inside
the runtime, so they must be quick, must not raise, and must not call the pool.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Tracer = Callable[..., Any]

#: What is reported, and by whom.
EVENTS = {
    "published": "driver: a descriptor became visible",
    "claimed": "worker: a descriptor is mine to run",
    "completed": "worker: the outcome is in the window",
    "rejected": "worker: the attempt had been taken back, its outcome is dropped",
    "collected": "driver: the outcome is here, the row will be free",
    "cancelled": "driver: nobody will run it",
    "killed": "driver: it was taken back from the worker that ran it, for good",
    "reclaimed": "driver: an attempt was taken back from a worker that is gone",
    "retried": "driver: an attempt has failed, another one follows",
}
