"""What the tasks of a pool have in common, for each set of limits that it was asked for."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable

from ..context import Limits
from ..tasks import PoolContext
from ..whole import whole

#: Sets of limits that are remembered.  A program that gives each task what is left of some time
#: makes more of them.
MOST = 32


class Contexts:
    """The contexts of one pool, by limits.  Thread-safe.

    Parameters
    ----------
    make : callable
        ``make(limits)``: returns a new one.
    drop : callable
        ``drop(context)``: told of one that no more tasks will be made with.

    Attributes
    ----------
    lock : threading.RLock
        Reentrant for finalizers alone: see ``whole.held``.
    """

    def __init__(
        self,
        make: Callable[[Limits | None], PoolContext],
        drop: Callable[[PoolContext], object],
    ) -> None:
        self.lock = threading.RLock()
        self._make = make
        self._drop = drop
        self._known: OrderedDict[Limits | None, PoolContext] = OrderedDict()  # latest used last

    @whole
    def of(self, limits: Limits | None) -> PoolContext:
        """Return the context of tasks with these limits; None: they run in the ranks."""
        late = None
        with self.lock:
            found = self._known.get(limits)
            if found is None:
                found = self._known[limits] = self._make(limits)
            self._known.move_to_end(limits)
            if len(self._known) > MOST:  # not that without limits: its initializer would run again
                late = self._known.pop(next(filter(None, self._known)))
        if late is not None:
            self._drop(late)  # rows in the table keep it; for tasks that wait it is put there anew
        return found

    @whole
    def drop(self) -> None:
        """Drop all: the pool is over."""
        for context in tuple(self._known.values()):
            self._drop(context)
