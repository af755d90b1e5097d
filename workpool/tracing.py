"""Hooks where a task changes hands; while nobody listens, each costs a branch, a rare one a call.

A *tracer* is any callable ``tracer(event, *, task_id, ticket, attempt)``; `ticket` is -1 where the
task is in no row, `attempt` counts from 0.  It runs inside the runtime, so it must be quick, must
not raise, and must not call the pool.  The events, all of them the driver's::

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

Tracer = Callable[..., Any]
