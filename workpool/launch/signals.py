"""Signals that the launcher gets: what the driver is told, and how long it may take to end."""

from __future__ import annotations

import math
import os
import signal
import time
from collections import deque
from collections.abc import Callable
from types import FrameType
from typing import Any

from ..system.status import Watch

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

#: Signals that mean what the driver's program takes them for: Ctrl-\\ may show its stacks.
_PASSED = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGQUIT)


class Signals:
    """Collects the signals that end a program, in the order in which they arrive; passes on others.

    Parameters
    ----------
    watch : Watch
        Knows the driver.
    grace_s : float
        How long it may take to end at SIGTERM or SIGHUP.
    interactive : bool
        Whether Ctrl-C is for the program alone, however often it comes.

    Attributes
    ----------
    asked : int or None
        Which of them the job is ended for.
    overdue : bool
        Whether the last signal has given the driver a time to end in.
    """

    def __init__(self, watch: Watch, grace_s: float, interactive: bool = False) -> None:
        self.asked: int | None = None
        self.overdue = False
        self._watch = watch
        self._grace_s = grace_s
        self._interactive = interactive
        self._received: deque[int] = deque()  # and not passed on
        self._interrupted_s = -math.inf  # when the driver got a Ctrl-C, which it may catch
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Signals:
        handlers: dict[int, Callable[[int, FrameType | None], object]] = {
            **dict.fromkeys(map(int, _SIGNALS), self._note),
            **dict.fromkeys(map(int, _PASSED), self._tell),
        }
        self._before = {signum: signal.getsignal(signum) for signum in handlers}
        for ignored in (signal.SIGHUP, *_PASSED):
            if self._before[ignored] is signal.SIG_IGN:
                del self._before[ignored]  # nohup; the ranks inherit that
        for signum in self._before:
            signal.signal(signum, handlers[signum])
        return self

    def __exit__(self, *raised: object) -> None:
        for signum, handler in self._before.items():
            signal.signal(signum, signal.SIG_DFL if handler is None else handler)

    def pass_on(self) -> float:
        """Tell the driver what has come; return how many seconds it may take to end."""
        limit_s = math.inf
        while self._received:
            limit_s = min(limit_s, self._pass_on(self._received.popleft()))
        return limit_s

    def judge(self, driver_gone: bool) -> None:
        """See whether the job has ended because of a Ctrl-C, or of a signal that has just come.

        Parameters
        ----------
        driver_gone : bool
            Whether we end the job because the driver is gone.
        """
        if self.asked is None and self._received:
            self.asked = self._received[0]
        recent = time.monotonic() < self._interrupted_s + self._grace_s
        if self.asked is None and recent and not driver_gone:
            self.asked = signal.SIGINT

    def _pass_on(self, signum: int) -> float:
        now = time.monotonic()
        insists = signum == signal.SIGINT and now < self._interrupted_s + self._grace_s
        again = self.asked is not None or insists
        self.overdue = False
        if again or not self._tell(signum):
            self.asked = self.asked or signum
            return 0
        if signum == signal.SIGINT:  # a program may catch it, and go on
            if not self._interactive:
                self._interrupted_s = now
            return math.inf
        self.asked = signum
        self.overdue = True
        return self._grace_s + self._watch.patience_s * (signum == signal.SIGTERM)

    def _note(self, signum: int, frame: FrameType | None) -> None:
        self._received.append(signum)

    def _tell(self, signum: int, frame: FrameType | None = None) -> bool:
        """Send the driver a signal; return whether there is one."""
        if self._watch.driver is None:
            return False  # MPI is still starting
        try:
            os.kill(self._watch.driver, signum)
        except ProcessLookupError:
            return False
        return True
