"""Threads that wait for something of one driver: they make its progress meanwhile.

One of them looks again and again.  The others rest until some thread has found what they wait for;
now and then they look as well, because the first may be busy with restoring a result.
"""

from __future__ import annotations

import math
import sys
import threading
from collections.abc import Callable

from ..backoff import WAIT_S, Backoff
from ..clock import monotonic, sleep
from ..errors import TaskLost
from ..flag import Flag
from ..whole import held

#: What is waited for is lost when the driver has had no task at all for so long, neither in the
#: backlog nor in the table nor on its way to a future, and no thread is in the middle of a step.
LOST_S = 1.0

#: The same once a task was lost: mostly the step that was cut off has lost others, too.
LOST_AS_WELL_S = 20e-3

NOBODY = "neither a finalizer nor a task can wait: nobody would go on"


class Waits:
    """The waits of one driver.

    Parameters
    ----------
    progress : callable
        Makes progress; returns how many rows have ended.
    rest_s : callable
        Takes the seconds that a thread has waited, and returns those for which there will be
        nothing to do; None: look again at once.
    outstanding : callable
        Returns whether some tasks are not over, wherever they are.
    still : callable
        Returns whether a glance at the table shows that there is nothing to do.
    sleep : callable
        ``sleep(seconds)``, between two looks.
    """

    def __init__(
        self,
        progress: Callable[[], int],
        rest_s: Callable[[float], float | None],
        outstanding: Callable[[], bool],
        still: Callable[[], bool],
        sleep: Callable[[float], object] = sleep,
    ) -> None:
        self._progress = progress
        self._rest_s = rest_s
        self._outstanding = outstanding
        self._still = still
        self._sleep = sleep
        self._threads: set[int] = set()
        self._looker: int | None = None  # the one of them that looks
        #: By thread what the others wait for, and the flag that ends their rest.
        self._resting: dict[int, tuple[Callable[[], bool], Flag]] = {}
        self._patience_s = LOST_S

    @property
    def attended(self) -> bool:
        """Whether a thread waits, and makes progress by it."""
        return bool(self._threads)

    def wait(self, ended: Callable[[], bool], timeout: float | None) -> bool:
        """Make progress until `ended` says so, or for `timeout` seconds; return what it says.

        Other threads may ask `ended` as well.

        Raises
        ------
        RuntimeError
            If a finalizer wants to wait, in the middle of a step.
        TaskLost
            If nothing can come any more of what is waited for.
        """
        me = threading.get_ident()
        deadline = math.inf if timeout is None else monotonic() + timeout
        backoff: Backoff | None = None
        allowed = False
        lost_s = since_s = math.inf
        try:
            while not ended():
                self._threads.add(me)
                left = deadline - monotonic()
                if not left > 0:  # true of NaN as well
                    return False
                if self._progress():
                    backoff, lost_s = None, math.inf  # mostly it was what we wait for
                    continue
                if backoff is None:
                    backoff, since_s = Backoff(WAIT_S, sleep=self._sleep), monotonic()
                elif not allowed:
                    # A finalizer's thread may hold a pool's lock, for which whoever resolves the
                    # future would wait, or may have in hand the very outcome that the finalizer
                    # waits for.  Not looked at sooner, for it takes 8 us to go through the frames,
                    # and a short task is over by now.
                    if held(sys._getframe()):
                        raise RuntimeError(NOBODY)
                    allowed = True
                if self._looker is None:
                    self._looker = me
                if self._looker != me:
                    self._rest(me, ended, left)
                elif self.pause(backoff, left, monotonic() - since_s):
                    # A glance at one word takes a third of the time of a whole look.
                    while backoff.spins and self._still() and not ended():
                        if monotonic() >= deadline:
                            break
                        backoff.pause()
                    if backoff.spins:
                        continue  # nothing can be lost so soon: see the patience of `_lost_s`
                lost_s = self._lost_s(lost_s, ended)
            return True
        finally:
            self._threads.discard(me)
            if self._looker == me:
                self._looker = None
            # Even if it was not we who looked: we may have been woken to do so, and have found
            # that what we wait for has ended as well.
            if self._looker is None:
                for _, told in tuple(self._resting.values())[:1]:
                    told.set()  # it is the next one to look

    def _lost_s(self, lost_s: float, ended: Callable[[], bool]) -> float:
        """Return when what is waited for will count as lost; raise TaskLost if it is lost now."""
        if self._outstanding():
            return math.inf
        now = monotonic()
        if now < lost_s:
            return min(lost_s, now + self._patience_s)
        if not (_stepping() or self._outstanding() or ended()):
            self._patience_s = LOST_AS_WELL_S
            raise TaskLost(
                "a step of the pool was cut off, by what a signal's handler raised or by a call of "
                "MPI that failed, and has lost the task: submit it again"
            )
        return lost_s

    def _rest(self, me: int, ended: Callable[[], bool], at_most_s: float) -> None:
        """Rest until somebody finds that `ended` says so; at the longest until it is our turn."""
        told = Flag()
        self._resting[me] = ended, told
        try:
            if not ended():
                told.wait(min(WAIT_S * len(self._threads), at_most_s))
        finally:
            self._resting.pop(me, None)

    def tell(self) -> None:
        """End the rest of those who wait for something that has come."""
        for ended, told in tuple(self._resting.values()):
            if ended():
                told.set()

    def pause(self, backoff: Backoff, at_most_s: float = math.inf, waited_s: float = 0.0) -> bool:
        """Leave the core to others for a while; return whether a result is due."""
        rest_s = self._rest_s(waited_s)
        if rest_s is None:
            backoff.pause(at_most_s)
        else:
            self._sleep(min(rest_s, at_most_s))
        return rest_s is None


def _stepping() -> bool:
    """Return whether a thread is in the middle of a step: it may have a task in its hands."""
    return any(map(held, sys._current_frames().values()))
