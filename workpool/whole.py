"""Functions that neither a signal's handler nor the garbage collector may cut in two.

They hold a lock, or are about to write down what they have done to the window.  Python lets two
things come between any two of their steps: a signal's handler, whose exception would leave tasks
that nobody knows of, and the garbage collector, which may close a generator of ours that wants the
very lock.  Both can see from the stack where they are, so what they find there costs the functions
themselves nothing::

    @whole                      the function is one of them
    @collective                 the same, and other ranks wait for its end
    @uncut                      the same, but it holds no lock: a finalizer in its midst may go on
    within(frame)               one of them is under way
    delays(frame, late)         one for which Ctrl-C has to wait is under way
    held(frame)                 one that may hold a lock is under way
    inside(frame, modules)      any function of some modules is under way
    need_stack(frames)          raises now if the stack would be full in the middle of a step

What a signal's handler does about it: see ``interrupts``.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from types import CodeType, FrameType
from typing import TypeVar

F = TypeVar("F", bound=Callable[..., object])

_codes: set[CodeType] = set()
_holding: set[CodeType] = set()
_collective: set[CodeType] = set()


def whole(function: F) -> F:
    """Mark a function: it is not to be left in the middle."""
    _holding.add(function.__code__)
    return uncut(function)


def uncut(function: F) -> F:
    """Mark a function as `whole` does, but one that holds no lock: a finalizer may come in it."""
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


def delays(frame: FrameType | None, late: bool) -> bool:
    """Return whether Ctrl-C has to wait; `late`: it has waited long, so only for other ranks."""
    return within(frame, _collective if late else _codes)


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
    """Raise RecursionError if fewer frames are left of the stack: before a step, not within it."""
    if frames:
        need_stack(frames - 1)
