"""Functions that neither a signal's handler nor the garbage collector may cut in two.

They hold a lock, or are about to write down what they have done to the window.  Python lets two
things come between any two of their steps: a signal's handler, whose exception would leave tasks
that nobody knows of, and the garbage collector, which may close a generator of ours that wants the
very lock.  Both can see from the stack where they are, so what they find there costs the functions
themselves nothing::

    @whole                      the function is one of them
    @collective                 the same, and other ranks wait for its end
    @uncut                      the same, but it calls the user's functions, and then holds no lock
    within(frame)               one of them is under way
    held(frame)                 one that may hold a lock is
    inside(frame, modules)      any function of some modules is
    Deferring(act, harms)       a handler that raises when it does no harm
    defer_interrupts()          Ctrl-C waits until none of them is under way
    by_handler(error)           any signal's handler has raised it, and not the user's objects
    except interrupts():        such a one, or Ctrl-C
    except failures():          what the user's objects raise, and neither of these
    need_stack(frames)          it is not to end in the middle either
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import _thread
import signal
import sys
import threading
import time
from collections.abc import Callable, Container
from functools import partial
from traceback import walk_tb
from types import CodeType, FrameType
from typing import Final, TypeVar

from .clock import monotonic

__all__ = [
    "FAILURES",
    "Deferring",
    "by_handler",
    "collective",
    "defer_interrupts",
    "failures",
    "held",
    "inside",
    "interrupts",
    "need_stack",
    "uncut",
    "whole",
    "within",
]

#: How often an interrupt that waits tries again where it cannot see each step.
AGAIN_S = 5e-3

#: How long it waits: an object of the user's that hangs while it is restored can be interrupted.
MOST_S = 1.0

#: What objects of the user's may raise while they are pickled or copied: all but Ctrl-C.
FAILURES: Final = (Exception, SystemExit)

F = TypeVar("F", bound=Callable[..., object])

_codes: set[CodeType] = set()
_holding: set[CodeType] = set()
_collective: set[CodeType] = set()


def whole(function: F) -> F:
    """Mark a function: it is not to be left in the middle."""
    _holding.add(function.__code__)
    return uncut(function)


def uncut(function: F) -> F:
    """Mark a function as `whole` does; while it runs the user's code it holds no lock."""
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


def held(frame: FrameType | None) -> bool:
    """Return whether this thread may hold a lock of ours, in a frame or in those that called it.

    Then it runs a finalizer (``__del__``, a callback of ``weakref``), which the garbage collector
    has called in the middle of a step: what that wants done has to wait.
    """
    return within(frame, _holding)


def inside(frame: FrameType | None, modules: tuple[str, ...]) -> bool:
    """Return whether a function of some modules is under way in a frame or in its callers.

    Of those modules, and of packages, whose names begin with one of `modules`.
    """
    while frame is not None:
        if str(frame.f_globals.get("__name__")).startswith(modules):
            return True
        frame = frame.f_back
    return False


def need_stack(frames: int) -> None:
    """Raise RecursionError if there is less left of the stack: rather before a step than in it."""
    if frames:
        need_stack(frames - 1)


class Deferring:
    """A signal's handler that raises, but not where that would do harm: then just afterwards.

    It looks at each step of the main thread, by a profile function, from the first signal that
    waits until it has raised; where the program has one of its own, it tries again and again.

    Parameters
    ----------
    act : callable
        ``act(signum, frame)``: raises.
    harms : callable
        ``harms(frame, late)``: whether it would do harm in a frame; `late` when it has waited for
        ``MOST_S``.
    """

    def __init__(
        self,
        act: Callable[[int, FrameType | None], object],
        harms: Callable[[FrameType | None, bool], bool],
    ) -> None:
        self._act = act
        self._harms = harms
        self._since_s: float | None = None  # when the one that waits came
        self._nudged = False
        self._hook: Callable[..., object] | None = None

    def __call__(self, signum: int, frame: FrameType | None) -> None:
        nudged, self._nudged = self._nudged, False
        if nudged and self._since_s is None:
            return  # it was raised just before
        now = monotonic()
        first = self._since_s is None
        since_s = now if self._since_s is None else self._since_s
        if not self._harms(frame, now - since_s >= MOST_S):
            self._raise(signum, frame)
        if not (first or nudged):
            return  # one like it waits already
        self._since_s = since_s
        look = sys.getprofile() is None
        if look:
            self._hook = lambda frame, event, arg: self._look(signum, frame)
            sys.setprofile(self._hook)
        # Not a threading.Thread: to start one takes locks that this very thread may hold.
        again_s = MOST_S if look else AGAIN_S
        _thread.start_new_thread(self._nudge, (threading.get_ident(), signum, since_s, again_s))

    def _look(self, signum: int, frame: FrameType) -> None:
        if not self._harms(frame, False):
            self._raise(signum, frame)

    def _raise(self, signum: int, frame: FrameType | None) -> None:
        self._since_s = None
        if self._hook is not None and sys.getprofile() is self._hook:
            sys.setprofile(None)
        self._hook = None
        self._act(signum, frame)

    def _nudge(self, thread: int, signum: int, since_s: float, after_s: float) -> None:
        time.sleep(after_s)
        if self._since_s == since_s:
            self._nudged = True
            signal.pthread_kill(thread, signum)


def defer_interrupts() -> None:
    """Have Ctrl-C wait for the end of marked functions, unless the program has its own handler."""
    if (
        threading.current_thread() is threading.main_thread()
        and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    ):
        signal.signal(signal.SIGINT, Deferring(signal.default_int_handler, _interrupted_within))


def _interrupted_within(frame: FrameType | None, late: bool) -> bool:
    return within(frame, _collective if late else _codes)


def interrupts() -> type[BaseException]:
    """Return what an ``except`` lets pass where all else is the failure of the user's objects.

    That is ``KeyboardInterrupt``, and whatever a signal's handler has raised.
    """
    return BaseException if by_handler(sys.exc_info()[1]) else KeyboardInterrupt


def failures() -> tuple[type[BaseException], ...]:
    """Return what an ``except`` takes for the failure of the user's objects.

    That is `FAILURES`, and nothing if a signal's handler has raised.
    """
    return () if by_handler(sys.exc_info()[1]) else FAILURES


def by_handler(error: BaseException | None) -> bool:
    """Return whether a signal's handler has raised it: its frame is in the traceback."""
    traceback = None if error is None else error.__traceback__
    if traceback is None or traceback.tb_next is None:  # nothing of Python's was called
        return False
    # By the function of C: that of `signal` makes an enumeration's member of each number.
    handlers = map(_signal.getsignal, range(1, signal.NSIG))
    codes = {_code(handler) for handler in handlers if callable(handler)}
    return any(frame.f_code in codes for frame, _ in walk_tb(traceback))


def _code(handler: Callable[..., object]) -> CodeType | None:
    """Return the code of a handler, unless it is none of Python's."""
    while isinstance(handler, partial):
        handler = handler.func
    for function in (handler, type(handler).__call__):
        code = getattr(function, "__code__", None)
        if isinstance(code, CodeType):
            return code
    return None
