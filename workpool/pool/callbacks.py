"""What a pool has its attendant do, rather than the thread that comes upon it."""

from __future__ import annotations

import sys
from collections.abc import Callable

from ..job.attendant import Attendant
from ..whole import within


class Callbacks:
    """Callbacks of one pool's futures, and what takes locks that the thread at hand may hold.

    Parameters
    ----------
    attendant : Attendant
    """

    def __init__(self, attendant: Attendant) -> None:
        self._attendant = attendant
        # One entry for each that is not over.  Not a number, which would want a lock: the garbage
        # collector may call one in the middle of another.
        self._calling: list[None] = []

    def call(self, callback: Callable[[], object]) -> None:
        """Have something called by the attendant, which holds none of the user's locks."""
        self._calling.append(None)

        def call() -> None:
            try:
                callback()
            finally:
                del self._calling[-1:]

        try:
            self._attendant.call(call)
        except BaseException:  # by a signal's handler: perhaps it will never be called
            del self._calling[-1:]
            raise

    def outside(self, action: Callable[[], object]) -> None:
        """Do something that takes locks of the pool: now, or by the attendant.

        A generator that nobody has any more is closed by the garbage collector, which may come
        while this very thread holds the lock.
        """
        if within(sys._getframe(1)):
            self._attendant.call(action)
        else:
            action()

    def join(self) -> None:
        """Wait until all callbacks were called."""
        self._attendant.join(lambda: not self._calling)
