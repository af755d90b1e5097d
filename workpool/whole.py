"""Functions that run to their end, or not at all.

They hold a lock, or are about to write down what they have done to the window.  Python lets two
things come between any two of their steps: a signal's handler, whose exception would leave tasks
that nobody knows of, and the garbage collector, which may close a generator of ours that wants the
very lock.  Both can see from the stack where they are, so what they find there costs the functions
themselves nothing::

    @whole                      the function is one of them
    @collective                 the same, and other ranks wait for its end
    within(frame)               one of them is under way
    defer_interrupts()          Ctrl-C waits until none is
"""

from __future__ import annotations

import _thread
import signal
import threading
import time
from collections.abc import Callable, Container
from types import CodeType, FrameType
from typing import TypeVar

__all__ = ["collective", "defer_interrupts", "whole", "within"]

#: How often an interrupt that waits tries again.
AGAIN_S = 5e-3

#: How long it waits: an object of the user's that hangs while it is restored can be interrupted.
MOST_S = 1.0

F = TypeVar("F", bound=Callable[..., object])

_codes: set[CodeType] = set()
_collective: set[CodeType] = set()


def whole(function: F) -> F:
    """Mark a function: it is not to be left in the middle."""
    _codes.add(function.__code__)
    return function


def collective(function: F) -> F:
    """Mark a function: other ranks take part in it, so an interrupt waits however long it takes."""
    _collective.add(function.__code__)
    return whole(function)


def within(frame: FrameType | None, codes: Container[CodeType] = _codes) -> bool:
    """Return whether a marked function is under way in a frame or in those that called it."""
    while frame is not None:
        if frame.f_code in codes:
            return True
        frame = frame.f_back
    return False


def defer_interrupts() -> None:
    """Have Ctrl-C wait for the end of marked functions, unless the program has its own handler."""
    if (
        threading.current_thread() is threading.main_thread()
        and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    ):
        signal.signal(signal.SIGINT, _Deferring())


class _Deferring:
    """A handler that raises KeyboardInterrupt, as Python's own does, but not within."""

    def __init__(self) -> None:
        self._since_s: float | None = None  # when the one that waits came

    def __call__(self, signum: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        since_s = now if self._since_s is None else self._since_s
        if within(frame, _codes if now - since_s < MOST_S else _collective):
            self._since_s = since_s
            # Not a threading.Thread: to start one takes locks that this very thread may hold.
            _thread.start_new_thread(_again, (threading.get_ident(), signum))
            return
        self._since_s = None
        signal.default_int_handler(signum, frame)


def _again(thread: int, signum: int) -> None:
    time.sleep(AGAIN_S)
    signal.pthread_kill(thread, signum)
