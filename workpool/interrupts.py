"""Exceptions that signal handlers raise: when they may come, and how they differ from failures.

::

    Deferring(act, harms)       a handler that raises when it does no harm
    defer_interrupts()          Ctrl-C waits for the end of functions that are marked `whole`
    with defer_handlers():      every handler waits for the end of those marked `collective`
    by_handler(error)           whether a signal's handler has raised it, not the user's objects
    except interrupts():        takes Ctrl-C, and whatever a signal's handler has raised
    except failures():          takes what the user's objects have raised, and none of these
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import _thread
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from traceback import walk_tb
from types import CodeType, FrameType
from typing import Final

from .clock import monotonic, sleep
from .whole import delays

#: How often an interrupt that waits tries again where it cannot see each step.
AGAIN_S = 5e-3

#: How long it waits: an object of the user's that hangs while it is restored can be interrupted.
MOST_S = 1.0

#: What objects of the user's may raise while they are pickled or copied: all but Ctrl-C.
FAILURES: Final = (Exception, SystemExit)


class Deferring:
    """A signal's handler that acts, but not where that would do harm: then just afterwards.

    While a signal waits, a profile function looks at the steps of the main thread, and raises as
    soon as that does no harm: it looks at the stack when the outermost call in which it would has
    been left.  Where the program has one of its own, a thread sends the signal again every
    ``AGAIN_S``; else only from ``MOST_S`` on, for a step that hangs.

    Parameters
    ----------
    act : callable
        ``act(signum, frame)``: mostly raises.
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
        self._within: FrameType | None = None  # as long as it is under way, it does harm

    def __call__(self, signum: int, frame: FrameType | None) -> None:
        nudged, self._nudged = self._nudged, False
        if nudged and self._since_s is None:
            return  # it was raised just before
        now = monotonic()
        first = self._since_s is None
        since_s = now if self._since_s is None else self._since_s
        if not self._harms(frame, now - since_s >= MOST_S):
            self._act_now(signum, frame)
            return  # it has raised nothing
        if not (first or nudged):
            return  # one like it waits already
        self._since_s = since_s
        look = sys.getprofile() is None
        if look:
            self._hook = partial(self._look, signum)
            sys.setprofile(self._hook)
        # Not a threading.Thread: to start one takes locks that this very thread may hold.
        again_s = MOST_S if look else AGAIN_S
        _thread.start_new_thread(self._nudge, (threading.get_ident(), signum, since_s, again_s))

    def _look(self, signum: int, frame: FrameType, event: str, arg: object) -> None:
        if self._within is not None:
            if frame is self._within and event == "return":
                self._within = None
        elif self._harms(frame, False):
            while self._harms(frame.f_back, False):
                frame = frame.f_back  # type: ignore[assignment]
            self._within = frame
        else:
            self._act_now(signum, frame)

    def _act_now(self, signum: int, frame: FrameType | None) -> None:
        if self._hook is not None and sys.getprofile() is self._hook:
            sys.setprofile(None)
        self._hook = None
        self._since_s = self._within = None  # last: our profile function sees these steps, too
        self._act(signum, frame)

    def _nudge(self, thread: int, signum: int, since_s: float, after_s: float) -> None:
        sleep(after_s)
        if self._since_s == since_s:
            self._nudged = True
            signal.pthread_kill(thread, signum)


def defer_interrupts() -> None:
    """Have Ctrl-C wait for the end of marked functions, unless the program has its own handler."""
    if (
        threading.current_thread() is threading.main_thread()
        and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    ):
        signal.signal(signal.SIGINT, Deferring(signal.default_int_handler, delays))


@contextmanager
def defer_handlers() -> Iterator[None]:
    """Have what the program's own handlers do wait for the end of collective functions.

    Whoever leaves one in the middle leaves the other ranks there for ever.
    """
    put: dict[int, tuple[Deferring, Callable[..., object]]] = {}
    if threading.current_thread() is threading.main_thread():  # the only one that handlers run in
        for number in range(1, signal.NSIG):
            handler = _signal.getsignal(number)
            if callable(handler) and not isinstance(handler, Deferring):  # which waits as it is
                put[number] = Deferring(handler, lambda frame, late: delays(frame, True)), handler
    try:
        for number, (deferring, _) in put.items():
            signal.signal(number, deferring)
        yield
    finally:
        for number, (deferring, handler) in put.items():
            if _signal.getsignal(number) is deferring:  # else the program's has put another there
                signal.signal(number, handler)


def interrupts() -> type[BaseException]:
    """Return what to let pass, by ``except interrupts(): raise``: all else is taken for a failure.

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
    # `signal.getsignal` would also make an enumeration member of each of them, which takes longer.
    handlers = map(_signal.getsignal, range(1, signal.NSIG))
    codes = {_code(handler) for handler in handlers if callable(handler)}
    codes.add(Deferring._act_now.__code__)  # whose profile function may have raised it
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
