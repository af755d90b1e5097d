"""The time that goes on: a program's tests may freeze that of the module `time`.

A wait whose end was set by a frozen clock would never come to it, or a thread never do what is due.
Nor are our sleeps among those that tests count, cut short or forbid.
"""

from __future__ import annotations

import select
import time
from collections.abc import Callable
from functools import partial
from types import BuiltinFunctionType
from typing import Final

#: Seconds, from some moment on.
monotonic: Final[Callable[[], float]] = partial(time.clock_gettime, time.CLOCK_MONOTONIC)

#: The same in nanoseconds.
monotonic_ns: Final[Callable[[], int]] = partial(time.clock_gettime_ns, time.CLOCK_MONOTONIC)

#: ``sleep(seconds)``.
sleep: Final[Callable[[float], object]] = (
    time.sleep  # 2 us less than the other, which is for who imports us when it is replaced already
    if isinstance(time.sleep, BuiltinFunctionType)
    else partial(select.select, (), (), ())
)

#: What takes longer than a look does: this process was stopped, and most likely all of its job.
PAUSE_S = 1.0


class Stopwatch:
    """How long something was waited for: of the time between two looks at most so much counts.

    A batch system may stop a whole job for hours: that is no time for which anybody has waited.

    Parameters
    ----------
    most_s : float
        Of the time between two looks.
    clock : callable
        Seconds.
    """

    def __init__(self, most_s: float = PAUSE_S, clock: Callable[[], float] = monotonic) -> None:
        self._most_s = most_s
        self._clock = clock
        self._looked_s = clock()
        self._seconds = 0.0

    def look(self) -> float:
        """Return the seconds that count so far."""
        now = self._clock()
        self._seconds += min(now - self._looked_s, self._most_s)
        self._looked_s = now
        return self._seconds
