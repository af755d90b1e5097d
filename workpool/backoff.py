"""How to wait: look again at once a few times, then sleep, each time longer."""

from __future__ import annotations

import ctypes
import math
import os
from collections.abc import Callable

from .clock import sleep

#: Looks before the first sleep.  ``sched_yield`` costs under 1 us, ``time.sleep(0)`` some 80 us.
SPINS = 20

#: How long each of them goes on, where it is a loop over memory.
SPIN_S = 12e-6

#: First and shortest sleep of a wait.  To fall asleep and to wake takes some 30 us more.
FIRST_S = 50e-6

#: Longest sleep of a wait for another process: the driver's for a result, a task's for the driver.
WAIT_S = 1e-3

#: Longest sleep of a worker that has nothing to do.
IDLE_S = 80e-3

#: By how much the system may prolong a sleep, to wake several threads at once; by default 50 us.
SLACK_NS = 1000

_PR_SET_TIMERSLACK = 29  # prctl(2)


def wake_on_time() -> None:
    """Have this thread wake when a sleep is over, and not later.

    Threads and processes that it starts from now on inherit that.
    """
    ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, SLACK_NS)


class Backoff:
    """One wait: ``pause`` between two looks, ``reset`` whenever something was found.

    Parameters
    ----------
    longest_s : float
        No sleep is longer: it bounds how late a change is noticed.
    growth : float
        By how much each sleep is longer than the one before.
    sleep : callable
        ``sleep(seconds)``: returns True if somebody has ended it.

    Attributes
    ----------
    spins : int
        Looks that are left before the next sleep.
    """

    def __init__(
        self,
        longest_s: float,
        growth: float = 2,
        sleep: Callable[[float], object] = sleep,
    ) -> None:
        self._longest_s = longest_s
        self._growth = growth
        self.spins = SPINS
        self._sleep_s = FIRST_S
        self._sleep = sleep

    def reset(self) -> None:
        """Look at once again."""
        self.spins = SPINS
        self._sleep_s = FIRST_S

    def pause(self, at_most_s: float = math.inf) -> bool:
        """Let others run for a while that grows from call to call; return whether we were woken."""
        if self.spins:
            self.spins -= 1
            os.sched_yield()
            return False
        seconds = min(self._sleep_s, at_most_s)
        self._sleep_s = min(self._growth * self._sleep_s, self._longest_s)
        return bool(self._sleep(seconds))
