"""What a pool leaves to its attendant, because the thread that meets it may hold locks."""

from __future__ import annotations

import sys
from collections.abc import Callable

from ..backoff import WAIT_S, Backoff
from ..clock import monotonic
from ..job.attendant import Attendant
from ..whole import within

#: How much later a result may be returned because callbacks of its future are being called.
CALLED_S = 10e-3


class Callbacks:
    """Calls the callbacks of one pool's futures, and what takes locks that a thread may hold.

    Parameters
    ----------
    attendant : Attendant
    """

    def __init__(self, attendant: Attendant) -> None:
        self._attendant = attendant
        # One entry for each callback that is not over.  A number would need a lock, for the garbage
        # collector may run `call` in the middle of another `call`.
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
        except BaseException:  # a signal's handler has raised: perhaps it will never be called
            del self._calling[-1:]
            raise

    def give_time(self, called: Callable[[], bool], timeout: float | None) -> None:
        """Wait for short callbacks: who gets a result expects that they have been called.

        Where one thread resolves a future and then calls them, as in the standard library, they are
        mostly over when another one has noticed: a program's bar shows all that has ended.  Not for
        long: they may wait for this thread.
        """
        if self._attendant.is_current:  # it is one of them that asks
            return
        most_s = CALLED_S if timeout is None else min(timeout, CALLED_S)
        wait, end_s = Backoff(WAIT_S), monotonic() + most_s
        while not called() and monotonic() < end_s:
            wait.pause()

    def outside(self, action: Callable[[], object]) -> None:
        """Do something that takes locks of the pool: now, or by the attendant.

        By the attendant if this thread is in the middle of a step: a generator that nobody has any
        more is closed by the garbage collector, perhaps while its thread holds the lock.
        """
        if within(sys._getframe(1)):
            self._attendant.call(action)
        else:
            action()

    def join(self) -> None:
        """Wait until all callbacks were called."""
        self._attendant.join(lambda: not self._calling)
