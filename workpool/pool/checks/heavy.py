"""A warning for programs whose functions take much data along with each task, or each map.

A function of the script that reads a large array is sent with it each time, because the array may
have changed.  Pools that fork, or import the script on each worker, do not do that: who is used to
these would only see that this one is slow.  Samplers call ``map`` for each of their steps.
"""

from __future__ import annotations

from collections.abc import Callable
from types import MethodType
from typing import Any

from ...caches import WeakLruCache
from ...serializer import pack_call, task_name
from ...serializer.blame import heaviest
from .warned import warn

#: Less takes about as long as what else is done for a task of some milliseconds.
HEAVY_NBYTES = 1 << 20

#: After so many heavy ones of one function, or of methods of one object, the warning comes.
OFTEN = 10

#: Functions of which something is remembered.
_MOST = 256


class HeavyCheck:
    """Counts the tasks and maps of a pool that are heavy because of what is called."""

    def __init__(self) -> None:
        self._counts: WeakLruCache[int] = WeakLruCache(_MOST)

    def note(self, fn: Callable[..., Any], nbytes: int, what: str = "task") -> None:
        """Take in how heavy a task or a map is; warn once if its function is, and often so."""
        if nbytes <= HEAVY_NBYTES:
            return
        # A method is another object each time.
        holder = fn.__self__ if isinstance(fn, MethodType) else fn
        count = (self._counts.get(holder) or 0) + 1
        if not self._counts.keep(holder, count) or count != OFTEN:
            return
        nbytes = len(pack_call(fn, (), {}))  # without the arguments
        if nbytes > HEAVY_NBYTES:
            warn(
                f"each {what} of {task_name(fn)} takes {nbytes / 1e6:,.1f} MB along{heaviest(fn)}: "
                "make that in the pool's initializer, or in a module that tasks import: then each "
                "worker has it once"
            )
