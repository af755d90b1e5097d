"""Hooks at the points where a task changes hands; they cost a branch while nobody listens.

A *tracer* is any callable ``tracer(event, **details)``.  ``event`` is one of ``EVENTS``, the
details are plain numbers and strings.  Tracers run inside the runtime, so they must be quick, must
not raise, and must not call the pool.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Tracer = Callable[..., Any]

#: What is reported, and by whom.
EVENTS = {
    "published": "driver: a descriptor became visible (task_id, ticket)",
    "claimed": "worker: a descriptor is mine to run (task_id, ticket)",
    "completed": "worker: the outcome is in the window (task_id, ticket, elapsed_ns)",
    "rejected": "worker: the attempt had been taken back, its outcome is dropped (task_id, ticket)",
    "collected": "driver: the future is resolved, the row is free again (task_id, ticket)",
    "cancelled": "driver: a published descriptor was withdrawn (task_id, ticket)",
    "reclaimed": "driver: an attempt was taken back (task_id, ticket)",
}
