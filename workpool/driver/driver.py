"""The driver's half: prepare, publish, collect, resolve.  ``worker`` is the other half.

The same steps face each other in both: see the picture in ``worker``.

``submit`` prepares and publishes in the thread that calls it, and whoever waits for a future makes
the progress: two threads that hand work to each other through the interpreter lock would cost
milliseconds.  What finds no room in the table or the arena waits here, in order, and is published
as room appears: see ``dispatcher``.  What comes back is sorted out by ``collector``.  Futures are
resolved outside of the lock, because their callbacks may do anything.

Short tasks share a row: see ``backlog``.  If one of them is long after all, those behind it are
taken back and go elsewhere.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from typing import Any

from .. import verbs
from ..clock import monotonic
from ..forked import Forked
from ..layout import Extent, Geometry
from ..members.doorbell import Doorbells
from ..members.leases import Leases
from ..repository import Publisher
from ..serializer import Code, Packed
from ..tasks import PoolContext, Segment, Task
from ..whole import held, whole
from .backlog import Backlog
from .collector import Collector
from .dispatcher import TOGETHER, Dispatcher
from .recovery import Recovery
from .segments import Segments
from .store import Store
from .trace import Trace
from .waits import Waits

#: How long tasks may wait for each other to be published.
TOGETHER_S = 2e-3

#: How long a worker may take to say which of several tasks it runs: mostly some 10 ms.
SINGLE_S = 0.5

_MAIN = threading.main_thread().ident


class Driver:
    """One table, as the rank that submits to it sees it.  Thread-safe.

    Parameters
    ----------
    window : verbs.Window
    geometry : Geometry
    leases : Leases, optional
        Of the workers; without, none is ever taken for gone.
    bells : Doorbells, optional
        Of the workers that can be woken.

    Attributes
    ----------
    trace : Trace
    recovery : Recovery
        Knows what was lost.
    waits : Waits
        Threads that make progress because they wait.
    beats : int
        Grows whenever somebody makes progress, or submits and leaves nothing to be done.
    drained : bool
        Whether nothing more will come of the tasks that are left.
    runs_tasks : int or None
        The thread of this process that does, in a job of one rank.
    """

    def __init__(
        self,
        window: verbs.Window,
        geometry: Geometry,
        leases: Leases | None = None,
        bells: Doorbells | None = None,
    ) -> None:
        self.geometry = geometry
        self.trace = trace = Trace(geometry)
        self.beats = 0
        # Reentrant only so that a finalizer finds out: see `held`.
        self._lock: Any = threading.RLock()
        self._looking: Any = threading.RLock()  # while a row is watched, for which `_lock` is free
        self._window = window
        self._segments = Segments(window, geometry)
        publisher = Publisher(window, geometry, 0)
        self._store = store = Store(window, geometry.region(0))
        self._backlog = backlog = Backlog(self._segments.lend, store.place)
        self._bells = bells = bells or Doorbells()
        self._collector = collector = Collector(publisher, store, backlog, bells.heard_s, trace)
        self._published = collector.published
        self._rows = self._published.rows
        bells.tables[self] = self._rows
        self._finished = collector.finished
        self._dispatcher = Dispatcher(publisher, store, backlog, collector, bells, trace)
        self.recovery = Recovery(leases, geometry.members - 1, collector, store, backlog)
        self._closed = self.drained = False
        self.runs_tasks: int | None = None
        self._looked_s = 0.0  # just before rows were looked at last
        self._advanced_s = 0.0  # when progress was made last
        self._asked_s = 0.0  # when a row has last asked for something, or the first was published
        self.waits = Waits(
            self.progress, self._rest_s, self._rows, lambda: self.outstanding, self._still
        )

    @property
    def entered(self) -> bool:
        """Whether this thread has a lock of ours, or that on MPI."""
        owned: bool = self._lock._is_owned() or self._looking._is_owned()
        return owned or self._window.busy()

    @property
    def held(self) -> bool:
        """Whether this thread runs a finalizer, in the middle of a step: see ``whole.held``."""
        # Threads of ours hold other locks as well.  Of those that a submit takes, the main thread
        # can hold only MPI's; to look through its frames would cost each task a microsecond.
        return self.entered or (threading.get_ident() != _MAIN and held(sys._getframe(1)))

    @property
    @whole
    def outstanding(self) -> bool:
        """Whether some tasks are not over; False, too, while the last are being fetched."""
        if self._rows or self._finished:
            return True
        with self._lock:
            return self._backlog.outstanding or self.busy

    # --- prepare ------------------------------------------------------------------------------

    @whole
    def submit(self, task: Task, code: Code | None) -> None:
        """Take a task on; publish it now, or with others while the workers are busy.

        Parameters
        ----------
        task : Task
        code : Code, optional
            Of its function, unless that is part of the payload.

        Notes
        -----
        RMA cost: as ``Publisher.publish``, divided by the size of the batch; while large arguments
        wait for room, as ``progress``.
        """
        if not self._finished:  # else somebody must make progress, to resolve it: we do not
            self.beats += 1
        apart = type(task.payload) is Packed
        with self._lock:
            waiting = self._backlog.tasks
            try:
                if code is not None:
                    task.code = self._store.code(code)
                if apart:
                    self._make_room(task)
                now = monotonic()
                if now - self._advanced_s < TOGETHER_S and (len(waiting) + 1) % TOGETHER:
                    self._dispatcher.take(task, now)
                else:
                    if not (self._rows or waiting):
                        self.recovery.put_off()  # a look takes longer than a short task
                        self._asked_s = now  # a pause before it does not count
                        self._dispatcher.rouse(now)
                    waiting.append(task)
                    self._advance()
                if apart and task.extent is None:
                    self._dispatcher.keep(task)
            except BaseException:  # wherever it was then: our caller has to find it, to cancel it
                if task.batch is None and task not in waiting:
                    waiting.append(task)
                raise

    def _make_room(self, task: Task) -> None:
        """Have large arguments wait for room in the window, if that is likely to come soon."""
        if self.runs_tasks is not None:
            return  # we would keep the interpreter from the worker
        end = monotonic() + self._dispatcher.patience_s(task)
        while monotonic() < end and self._dispatcher.crowded(len(task.payload)):
            self._advance()  # which leaves the core to workers

    # --- take back -----------------------------------------------------------------------------

    @whole
    def cancel(self, task: Task) -> bool:
        """Withdraw a task that no worker has started.

        Notes
        -----
        RMA cost: 1 compare_and_swap if it is published; 1 load and 1 compare_and_swap more if its
        row is a batch that runs, and what it takes to fetch the outcomes that are there.
        """
        with self._lock:
            if task.batch is not None and not task.over:
                self._published.withdraw(task.batch)
                self._dispatcher.withdrawn()
            if task.batch is not None or task.over:
                return False
            task.over = True
            self._backlog.withdraw(task)
            self._store.leave(task)
            task.payload = b""
            self.trace("cancelled", task)
            return True

    def single_out(self, task: Task) -> None:
        """Wait until one can see whether a worker runs the task, or another of the same row.

        Notes
        -----
        RMA cost: as ``Published.single_out``, and as ``progress``, again and again.
        """
        self.wait(lambda: self._singled_out(task), SINGLE_S)

    @whole
    def _singled_out(self, task: Task) -> bool:
        with self._lock:
            return self._published.single_out(task)

    @whole
    def kill(self, task: Task) -> bool:
        """Take a task back from the worker that runs it; False if it is over, or not running.

        The worker notices, and ends the process that runs the task, if it is not the worker's own.

        Notes
        -----
        RMA cost: 1 load, 1 compare_and_swap; twice that for a task of a batch.
        """
        with self._lock:
            if task.batch is None or task.over or not self._published.take_back(task.batch, task):
                return False
            task.over = True
            self._store.leave(task)
            self.trace("killed", task)
            return True

    @whole
    def retry(self, task: Task, delay_s: float) -> None:
        """Publish a task again whose attempt has failed, after a while."""
        with self._lock:
            task.batch = None
            task.over = False
            task.attempt += 1
            self.trace("retried", task)
            if delay_s > 0:
                self._backlog.put_off(task, delay_s)
            else:
                self._backlog.tasks.append(task)

    @whole
    def drain(self) -> None:
        """Have nothing more started; what runs goes on to its end.

        Notes
        -----
        RMA cost: that of ``Publisher.cancel``, or of ``recall``, for each row; 2 fetch_add for each
        turn.
        """
        with self._lock:
            self._dispatcher.draining = True
            for batch in tuple(self._rows.values()):
                segment = batch.tasks[0].segment
                if segment is not None:
                    self._segments.exhaust(segment)
                self._published.withdraw(batch)

    @property
    @whole
    def busy(self) -> bool:
        """Whether there is something in the table, or on its way to its future."""
        with self._lock:  # a row that is about to be withdrawn is not there for a moment
            return bool(self._rows or self._finished or self._finished.hands)

    @whole
    def tasks(self, pool_id: int) -> list[Task]:
        """Return the tasks of a pool that are not collected, the last submitted first."""
        with self._lock:
            found = [t for batch in self._rows.values() for t in batch.tasks if t.batch is not None]
            found += self._backlog  # with those that came back
        found = [task for task in found if task.context.pool_id == pool_id and not task.over]
        return sorted(found, key=lambda task: task.task_id, reverse=True)

    @whole
    def running(self, task: Task) -> bool:
        """Return whether a worker has claimed the task.  RMA cost: 1 load."""
        with self._lock:
            return task.batch is not None and self._published.claimed(task.batch)

    # --- collect ------------------------------------------------------------------------------

    @whole
    def progress(self) -> int:
        """Publish and collect what can be; return how many rows, or parts of batches, ended.

        Notes
        -----
        RMA cost: 1 look, at one row if there is only that; with outcomes 1 get for each run of
        rows, 1 flush, sooner or later 1 compare_and_swap for each row and 1 flush for several; then
        as ``Publisher.publish``, or as ``Reserver.prepare``.
        """
        with self._lock:  # an interrupt after a call of acquire would leave it locked
            self._advance()
        self.beats += 1
        return self._finished.resolve() if self._finished else 0

    def _advance(self) -> None:
        if self._closed:
            return
        # Where ranks share cores, others may wait for this one: if they must have it, then now, and
        # not in the middle of what follows.
        os.sched_yield()
        since_s, self._looked_s = self._looked_s, monotonic()
        asked = bool(self._rows) and self._collector.look_after_rows(since_s)
        # Else somebody waits for the last result, and nothing is due before that is there.
        if not asked or self._rows or self._backlog.outstanding or self._collector.crowded:
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

    # --- waiting and room ---------------------------------------------------------------------

    def wait(self, ended: Callable[[], bool], timeout: float | None = None) -> bool:
        """Make progress until `ended` says so, or for `timeout` seconds; return what it says.

        Raises
        ------
        RuntimeError
            If a finalizer wants to wait, in the middle of a step, or the thread that runs tasks.
        TaskLost
            If nothing can come any more of what is waited for.
        """
        # What it wants may be in the hands of this very thread, which holds no lock then.
        mine = self.held or (self._finished.hands and held(sys._getframe(1)))
        if mine or threading.get_ident() == self.runs_tasks:
            raise RuntimeError("neither a finalizer nor a task can wait: nobody would go on")
        return self.waits.wait(ended, timeout)

    @whole
    def _still(self) -> bool:
        with self._looking:
            return not self._closed and self._collector.still()

    def _rest_s(self) -> float | None:
        return self._dispatcher.rest_s(self._advanced_s - self._asked_s)

    @whole
    def reserve(self, nbytes: int) -> Extent | None:
        """Return room in the driver's region of the arena, or None."""
        with self._lock:
            return self._store.region.reserve(nbytes)

    @whole
    def release(self, extent: Extent) -> None:
        """Take room back."""
        with self._lock:
            self._store.region.release(extent)

    @whole
    def exhaust(self, segment: Segment) -> None:
        """Take what is left of a range: no worker shall have it.  RMA cost: 2 fetch_add."""
        with self._lock:
            if not self._closed:
                self._segments.exhaust(segment)

    @whole
    def end(self, segment: Segment) -> None:
        """Say that nobody will take a turn in a range any more.  RMA cost: 2 fetch_add."""
        with self._lock:
            if not self._closed:
                self._segments.take_back(segment)
            self._store.drop(segment)

    @whole
    def drop(self, context: PoolContext) -> None:
        """Say that no more tasks of this pool will come."""
        with self._lock:
            if not self._closed:
                self._collector.retire()  # what else holds it is in the table
            self._store.drop(context)
