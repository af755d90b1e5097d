"""How a driver sleeps whose workers are on other hosts: it enters MPI meanwhile for them."""

from __future__ import annotations

import os
from collections.abc import Callable

from .. import verbs
from ..clock import monotonic, sleep

#: Longest sleep of a thread that expects a row to end: who sleeps longer has waited for long and in
#: vain, and need not be inside MPI.
LONGEST_S = 5e-3

#: How often a sleeper enters MPI: so often in a sleep, but not more often than this.
ENTRIES = 8
ENTER_S = 0.1e-3

#: A flush with nothing of our own to wait for that takes longer has done something for another
#: rank, which is likely to want more: the next part of a large put, or the step that follows.
SERVED_S = 8e-6
AGAIN_S = 0.1e-3


def sleeping(window: verbs.Window) -> Callable[[float], object]:
    """Return what sleeps for some seconds, and lets others use a window meanwhile.

    Notes
    -----
    RMA cost: none if all are on one host; else some flushes.
    """
    if window.shared:
        return sleep

    def serve(seconds: float) -> None:
        now = monotonic()
        end, served_s = now + seconds, 0.0
        pause_s = max(ENTER_S, seconds / ENTRIES) if seconds <= LONGEST_S else seconds
        while now < end:
            began = now
            window.flush()
            now = monotonic()
            if now - began > SERVED_S:
                served_s = now
            if now - served_s < AGAIN_S:
                os.sched_yield()
            elif now < end:
                sleep(min(pause_s, end - now))
                now = monotonic()

    return serve
