"""A flag that one thread waits for and others set: less than an Event, but safe in finalizers."""

from __future__ import annotations

import threading
from contextlib import suppress


class Flag:
    """A ``threading.Event`` that a finalizer may set, wherever the garbage collector runs it.

    An Event holds a lock while it runs Python.  A finalizer that runs just then, and sets it as
    well, waits for its own thread for ever.  Here each step is a single call into C.
    """

    def __init__(self) -> None:
        self._cleared = threading.Lock()  # held while it is not set
        self._cleared.acquire()

    def renew(self) -> None:
        """Clear it, if locks are others by now: gevent and eventlet replace them in a program.

        Their threads take turns, and one that waits for a lock from before has the turn for ever.
        """
        lock = threading.Lock()
        if type(lock) is not type(self._cleared):
            lock.acquire()
            self._cleared = lock

    def is_set(self) -> bool:
        """Return whether it is set."""
        return not self._cleared.locked()

    def set(self) -> None:
        """Set it, and end the wait for that."""
        if self._cleared.locked():
            with suppress(RuntimeError):  # another thread was quicker
                self._cleared.release()

    def clear(self) -> None:
        """Set it no longer."""
        self._cleared.acquire(blocking=False)

    def wait(self, seconds: float) -> None:
        """Wait until it is set, at most for some time.  For one thread only."""
        if self._cleared.acquire(timeout=seconds):
            self.set()
