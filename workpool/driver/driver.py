"""The driver's half: prepare, publish, collect, resolve.  ``worker`` is the other half.

The same steps face each other in both: see the picture in ``worker``.

``submit`` prepares and publishes in the thread that calls it.  What finds no room in the table or
the arena waits here, in order, and is published as room appears: see ``dispatcher``.  How it goes
on from there: see ``progress``.

Short tasks share a row: see ``backlog``.  If one of them is long after all, those behind it are
taken back and go elsewhere.
"""

from __future__ import annotations

from ..clock import monotonic
from ..extents import Extent
from ..serializer import Code, Packed
from ..tasks import PoolContext, Segment, Task
from ..whole import whole
from .dispatcher import TOGETHER
from .progress import Progress

#: How long tasks may wait for each other to be published.
TOGETHER_S = 2e-3

#: How long to wait until a worker says which of several tasks it runs, which takes some 10 ms.
SINGLE_S = 0.5


class Driver(Progress):
    """One table, as the rank that submits to it sees it.  Thread-safe.

    The parameters and attributes are those of ``Progress``.
    """

    @whole
    def submit(self, task: Task, code: Code | None) -> None:
        """Take a task on; publish it now, or with others while the workers are busy.

        Parameters
        ----------
        task : Task
        code : Code or None
            Of its function; None if that is part of the payload.

        Notes
        -----
        RMA cost: as ``Publisher.publish``, divided by the size of the batch; while large arguments
        wait for room, as ``progress``.
        """
        if not self._unresolved:  # else the attendant shall make progress: we resolve no futures
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
                        # If all workers may sleep, wake one now, while we prepare a task for it.
                        self._bells.wake(self.geometry.members - 1, now, coming=1)
                    waiting.append(task)
                    self._advance()
                if apart and task.extent is None:
                    self._dispatcher.keep(task)
            except BaseException:  # wherever it was: put it where our caller finds it, to cancel it
                if task.batch is None and task not in self._backlog:
                    waiting.append(task)
                raise

    def _make_room(self, task: Task) -> None:
        """Have large arguments wait for room in the window, if that is likely to come soon."""
        if self.task_thread is not None:
            return  # the worker is a thread of this process, which we would keep from running
        end = monotonic() + self._dispatcher.patience_s(task)
        while monotonic() < end and self._dispatcher.short_of_room(len(task.payload)):
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
            self._store.leave(task)
            task.payload = b""
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
            return True

    @whole
    def retry(self, task: Task, delay_s: float) -> None:
        """Publish a task again whose attempt has failed, after a while."""
        with self._lock:
            task.batch = None
            task.over = False
            task.attempt += 1
            if delay_s > 0:
                self._backlog.put_off(task, delay_s)
            else:
                self._backlog.tasks.append(task)

    @whole
    def drain(self) -> None:
        """Have nothing more started; what runs goes on to its end.

        Notes
        -----
        RMA cost: 1 compare_and_swap, or that of ``Publisher.recall``, for each row; 2 fetch_add for
        each turn.
        """
        with self._lock:
            self._dispatcher.draining = True
            for batch in tuple(self._rows.values()):
                segment = batch.tasks[0].segment
                if segment is not None:
                    self._segments.exhaust(segment)
                self._published.withdraw(batch)

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

    # --- room ---------------------------------------------------------------------------------

    @whole
    def reserve(self, nbytes: int) -> Extent | None:
        """Return room in the driver's region of the arena, or None.

        Notes
        -----
        RMA cost: that of ``Publisher.retire``.
        """
        with self._lock:
            self._collector.retire()  # collected rows may still hold room there
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
                self._backlog.resume()
            self._store.drop(segment)

    @whole
    def drop(self, context: PoolContext) -> None:
        """Say that no more tasks of this pool will come."""
        with self._lock:
            if not self._closed:
                self._collector.retire()  # collected rows would still hold it
            self._store.drop(context)
