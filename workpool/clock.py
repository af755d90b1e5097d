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
