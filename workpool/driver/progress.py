"""How a driver goes on: publish what waits, collect what has ended, have futures resolved.

Whoever waits for a future makes the progress: two threads that hand work to each other through the
interpreter lock would cost milliseconds.  What comes back is sorted out by ``collector``.  Futures
are resolved without holding the driver's lock, because their callbacks may do anything.
"""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Callable, Collection
from typing import Any

from .. import verbs
from ..backoff import FIRST_S, WAIT_S, Backoff
from ..clock import Stopwatch, monotonic
from ..forked import Forked
from ..layout import Geometry
from ..members.doorbell import Doorbells
from ..members.leases import Leases
from ..repository import Publisher
from ..whole import whole
from .backlog import Backlog
from .collector import SHORT_S, Collector
from .dispatcher import ROWS_EACH, Dispatcher
from .recovery import Recovery
from .segments import Segments
from .serving import LONGEST_S, sleeping
from .store import Store
from .waits import NOBODY, Waits

#: Who has waited for long, and in vain, sleeps for this part of that time between two looks, and
#: never longer than this: a driver that only waits is idle.
LAX_PART = 1 / 200
LAX_S = 10e-3

#: For how long after a piece of a stream the worker's request for the next one is expected.
NEXT_S = 5e-3


class Progress:
    """What is under way in one table, and the lock that every step of its driver holds.

    Parameters
    ----------
    window : verbs.Window
    geometry : Geometry
    leases : Leases or None
        Of the workers; without, none is ever taken for gone.
    bells : Doorbells
        Of the workers that can be woken.

    Attributes
    ----------
    recovery : Recovery
        Knows what was lost.
    waits : Waits
        Threads that make progress because they wait.
    beats : int
        Grows with each progress, and with each submit unless there are futures to be resolved: a
        submit resolves none.  The attendant makes progress itself as long as this stands still.
    drained : bool
        Whether nothing more will come of the tasks that are left.
    task_thread : int or None
        The thread of this process that runs tasks, in a job of one rank.
    """

    def __init__(
        self,
        window: verbs.Window,
        geometry: Geometry,
        leases: Leases | None,
        bells: Doorbells,
    ) -> None:
        self.geometry = geometry
        self.beats = 0
        # Reentrant only so that a finalizer can find out that its thread has one: see `entered`.
        self._lock: Any = threading.RLock()
        self._looking: Any = threading.RLock()  # of `_still`, which watches a row without `_lock`
        self.window = window
        self._segments = Segments(window, geometry)
        publisher = Publisher(window, geometry, 0)
        self._store = store = Store(window, geometry.region(0))
        self._backlog = backlog = Backlog(self._segments.lend, store.place, store.most_nbytes)
        self._bells = bells
        self._collector = collector = Collector(publisher, store, backlog, bells.heard_s)
        self._published = collector.published
        self._rows = self._published.rows
        bells.tables[self] = self._rows
        self._unresolved = collector.unresolved
        self._dispatcher = Dispatcher(publisher, store, backlog, collector, bells)
        self.recovery = Recovery(leases, geometry.members - 1, collector, store, backlog)
        self._closed = self.drained = False
        self.task_thread: int | None = None
        self._looked_s = 0.0  # just before rows were looked at last
        self._advanced_s = 0.0  # when progress was made last
        self._asked_s = 0.0  # when a row has last asked for something, or the first was published
        self.waits = Waits(
            self.progress,
            self._rest_s,
            lambda: self.outstanding,
            self._still,
            sleeping(window),
        )

    @property
    def entered(self) -> bool:
        """Whether this thread has a lock of ours, or that on MPI."""
        owned: bool = self._lock._is_owned() or self._looking._is_owned()
        return owned or self.window.entered()

    @property
    @whole
    def outstanding(self) -> bool:
        """Whether some tasks are not over; False for a moment while the last are being fetched."""
        if self._rows or self._unresolved:
            return True
        with self._lock:
            return self._backlog.outstanding or self.busy

    @property
    @whole
    def busy(self) -> bool:
        """Whether there is something in the table, or on its way to its future."""
        with self._lock:  # else a row that is just being withdrawn, or put back, could be missed
            return bool(self._rows or self._unresolved or self._unresolved.hands)

    @whole
    def progress(self) -> int:
        """Publish and collect what can be; return how many rows, or parts of batches, ended.

        Notes
        -----
        RMA cost: 1 look, at one row if there is only that; with outcomes 1 get for each run of
        rows, 1 flush, sooner or later 1 compare_and_swap for each row and 1 flush for several; then
        as ``Publisher.publish``, or as ``Reserver.prepare``.
        """
        if not self._unresolved.much:  # else take that in first: workers may be faster than we are
            with self._lock:  # an interrupt after a call of acquire would leave it locked
                self._advance()
        self.beats += 1
        if not self._unresolved:
            return 0
        count = self._unresolved.resolve()
        self.waits.tell()
        return count

    def _advance(self) -> None:
        if self._closed:
            return
        # Where ranks share cores, another rank may wait for ours: let it have the core now rather
        # than in the middle of what follows.
        os.sched_yield()
        since_s, self._looked_s = self._looked_s, monotonic()
        asked = bool(self._rows) and self._collector.look_after_rows(since_s)
        # Not if the last row has just been collected: first somebody gets the result that it waits
        # for, and nothing else is under way.
        if not asked or self._rows or self._backlog.outstanding or self._collector.retires_many:
            self._backlog.wake()
            self.recovery.look()
            self._dispatcher.advance(asked)
        self._advanced_s = monotonic()
        if asked:
            self._asked_s = self._advanced_s

    @whole
    def count(self) -> None:
        """See that the tally of each pool has all that was collected."""
        with self._lock:
            self._collector.count()

    @whole
    def close(self) -> None:
        """Make no progress any more: the window is about to be freed."""
        with self._looking, self._lock:
            self._collector.retire()
            self._closed = True
            self._bells.tables.pop(self, None)

    def disown(self) -> None:
        """Refuse everything from now on: this process was forked from the driver's."""
        self._lock = self._looking = Forked()

    # --- waiting ------------------------------------------------------------------------------

    def wait(self, ended: Callable[[], bool], timeout: float | None = None) -> bool:
        """Make progress until `ended` says so, or for `timeout` seconds; return what it says.

        Raises
        ------
        RuntimeError
            If a finalizer wants to wait, in the middle of a step, or the thread that runs tasks.
        TaskLost
            If nothing can come any more of what is waited for.
        """
        me = threading.get_ident()
        # Who resolves futures may hold locks that the next ones want, of a journal for one.
        if self.entered or me == self.task_thread or me in self._unresolved.hands:
            raise RuntimeError(NOBODY)
        return self.waits.wait(ended, timeout)

    @whole
    def _still(self) -> bool:
        with self._looking:
            return not self._closed and self._collector.still()

    def _rest_s(self, waited_s: float) -> float | None:
        """Return the seconds that a thread may sleep which has waited for so long; None: do not.

        Then a result is due.
        """
        rows, workers, row_s = len(self._rows), self.geometry.members - 1, self._collector.row_s
        late_s = self._advanced_s - self._asked_s
        lax_s = min(LAX_S, LAX_PART * min(late_s, waited_s))
        if not rows or (row_s <= SHORT_S and lax_s <= WAIT_S):
            return None
        if monotonic() < self._collector.streams.passed_s + NEXT_S:
            return FIRST_S
        if lax_s > WAIT_S:
            return lax_s
        if rows <= workers:  # a worker that ends its row has no other, and waits for us
            return max(FIRST_S, min(WAIT_S, max(row_s / rows / 8, late_s / 16)))
        if rows <= ROWS_EACH * workers:
            return min(WAIT_S, row_s / workers / 2)
        return min(LONGEST_S, row_s * rows / workers / 4)


def progress_until(
    drivers: Collection[Progress], ended: Callable[[], bool], limit_s: float = math.inf
) -> bool:
    """Make progress in several tables until `ended`, at most for so long; return what it says."""
    watch = Stopwatch()
    wait = Backoff(WAIT_S)
    while not (over := ended()) and watch.look() < limit_s:
        if sum(driver.progress() for driver in drivers):
            wait.reset()
        else:
            wait.pause()
    return over
