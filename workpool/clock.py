"""Clocks and a sleep that are still the system's when a program's tests replace those of `time`.

Tests may freeze ``time.monotonic``: by such a clock a wait of ours would never end, and a thread
never do what is due.  They may also count, shorten or forbid calls of ``time.sleep``.
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
    time.sleep  # 2 us quicker than `select`, which serves where it was replaced before our import
    if isinstance(time.sleep, BuiltinFunctionType)
    else partial(select.select, (), (), ())
)

#: Two looks at a stopwatch are closer together than this, unless the process was stopped meanwhile,
#: and with it most likely all of its job.
PAUSE_S = 1.0


class Stopwatch:
    """How long somebody has waited: of the time between two looks no more than a limit counts.

    A batch system may stop a whole job for hours: nobody has waited for that long.

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
