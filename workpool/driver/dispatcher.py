"""From the backlog into the table: what is published when.

A worker that waits costs more than a row, so a task that comes alone is published at once.  While
the workers have enough to do, tasks wait for each other: what publishing costs is divided among
them.
"""

from __future__ import annotations

import gc
import sys

from ..clock import monotonic
from ..context import LARGE_NBYTES
from ..members.doorbell import Doorbells
from ..repository import Publisher
from ..tasks import Batch, Task
from ..whole import need_stack
from .backlog import BATCH_S, Backlog
from .collector import SHORT_S, Collector
from .store import Store

#: Most rows that are published together, and most tasks that wait for each other: with the word of
#: the tail, as many words as the window swaps at once.
TOGETHER = 255

#: With so many rows in the table for each worker, publishing more may wait.
ROWS_EACH = 2

#: Where rows take long, as they do between hosts, so many are published for each worker as long as
#: it is not known how many of the next tasks may share one, and there are many of them.
TRIAL_ROWS = 4

#: So many bytes of arguments lie in the arena at a time, if workers have enough to do: what is used
#: again and again is in some cache, and what has never been used costs 2 us for each page.
WARM_NBYTES = 1 << 23

#: What it takes to copy a byte into fresh memory: mostly what its pages cost.
COPY_S = 0.5e-9

#: How often it is seen to whether workers must be woken.
WAKE_S = 1e-3

#: How often rows are looked for that were lost.
RECOVER_S = 1.0

#: How long the first task that waits may find no room in the arena; then payloads of tasks behind
#: it are taken out again.
STUCK_S = 10e-3

#: More frames of the stack than it takes to publish rows, from the backlog to their words.
FRAMES = 16

#: For how long nothing is published after a row was withdrawn: whoever cancels a task often cancels
#: those as well that would take its place.
CALM_S = 2e-3


class Dispatcher:
    """Publishes what waits.  Not thread-safe: its driver holds the lock.

    Parameters
    ----------
    publisher : Publisher
    store : Store
    backlog : Backlog
    collector : Collector
    bells : Doorbells

    Attributes
    ----------
    draining : bool
        Whether nothing more shall be published.
    """

    def __init__(
        self,
        publisher: Publisher,
        store: Store,
        backlog: Backlog,
        collector: Collector,
        bells: Doorbells,
    ) -> None:
        self.draining = False
        self._workers = publisher.geometry.members - 1
        self._num_rows = publisher.geometry.rows
        near = publisher.window.shared
        self._trial_rows = sys.maxsize if near else TRIAL_ROWS * self._workers
        self._publisher = publisher
        self._store = store
        self._backlog = backlog
        self._collector = collector
        self._published = collector.published
        self._bells = bells
        self._full = False  # whether there was no room for what waits
        self._stuck_id = -1  # the first task that waits, if the arena had no room for it
        self._stuck_s = 0.0  # since when it had none
        self._again_s = 0.0  # before that no task is published by itself
        self._calm_s = 0.0  # before that nothing is published, because a row was withdrawn
        self._unheard = False  # whether rows were published for which nobody was woken
        self._wake_s = 0.0  # before that nobody is woken
        self._recover_s = 0.0  # before that lost rows are not looked for

    @property
    def ahead(self) -> bool:
        """Whether the workers have enough to do."""
        return len(self._published.rows) >= ROWS_EACH * self._workers

    @property
    def _wanting(self) -> bool:
        """Whether some worker has nothing to do."""
        return len(self._published.rows) < self._workers

    def patience_s(self, task: Task) -> float:
        """Return the seconds that large arguments had better wait for room in the window.

        What finds no room is copied into memory of ours, and later from there into the window.  So
        waiting is better if it takes no longer than the first copy, as it does where tasks are
        short: each that ends gives room, in memory that is in the caches.
        """
        nbytes = len(task.payload)
        if nbytes > self._store.most_nbytes or self._wanting:
            return 0.0
        copy_s = nbytes * COPY_S
        mean_s = (task.code.mean_s if task.code else None) or self._collector.row_s
        return max(copy_s, BATCH_S) if mean_s < self._workers * copy_s else 0.0

    def short_of_room(self, nbytes: int) -> bool:
        """Return whether a payload of so many bytes had better wait for others to leave."""
        store = self._store
        if store.region.free_nbytes < nbytes:
            return True
        return store.busy_nbytes > WARM_NBYTES and self.ahead

    def take(self, task: Task, now: float) -> None:
        """Take a task that was just submitted; publish it, and what waits, if that is worth it now.

        `now` is the time of the submit.  Where rows are short, publishing takes half of the time at
        the most: after each time, for as long as it has taken, what is submitted only joins those
        that wait.  It is published with the next one, or by whoever makes progress.
        """
        waiting = self._backlog.tasks
        if self._full or now < self._again_s or self.ahead:
            waiting.append(task)
            return
        if waiting or task.segment is not None or not self._publish_alone(task):
            waiting.append(task)
            self.publish()
        self._wake()
        if self._collector.row_s < SHORT_S:
            end = monotonic()
            self._again_s = end + (end - now)

    def keep(self, task: Task) -> None:
        """Keep the arguments of a task as they are now, where there is room for them."""
        nbytes = len(task.payload)
        waits = task.batch is None and nbytes > LARGE_NBYTES
        # As long as tasks before this one find no room, what room there is is theirs.
        if self._full or not waits or self.short_of_room(nbytes) or not self._store.place(task):
            task.keep()

    def advance(self, asked: bool) -> None:
        """Publish what waits, or prepare for what comes next.

        Parameters
        ----------
        asked : bool
            Whether rows were looked after, so that there may be room by now where there was none.
        """
        self._full &= not asked
        if self._backlog.tasks:
            self._collector.retire()  # which takes in how long tasks take: so many share a row
            if monotonic() > self._calm_s:
                self.publish()
        elif self._collector.lent or self._collector.retires_many or self.ahead:
            self._collector.retire()
        else:  # and not both at once: somebody may wait for a result that comes meanwhile
            self._publisher.prepare()
        if self._unheard:
            self._wake()
        if not asked:
            self._recover()  # last: workers need not wait for it

    def _wake(self) -> None:
        """See that no worker sleeps while there are rows for it: not for each row, but soon."""
        now = monotonic()  # anew: a worker may have fallen asleep while we published
        self._unheard = now < self._wake_s
        if not self._unheard:
            self._wake_s = now + WAKE_S
            self._bells.wake(self._workers, now)

    def withdrawn(self) -> None:
        """Say that a row was withdrawn."""
        now = monotonic()
        if now > self._calm_s + CALM_S:  # else we would publish less than half of the time
            self._calm_s = now + CALM_S

    def _publish_alone(self, task: Task) -> bool:
        """Publish a task for whose result somebody may wait; return whether it has found room."""
        if self.draining:
            return False
        batch = Batch([task], task.payload)
        try:
            record = self._store.descriptor(batch) or self._without_room(batch)
            if record is None:
                return False
            room = self._publisher.reserve_ahead(1)
        except BaseException:  # no memory, no stack: nobody else knows what the batch holds
            self._store.remove(batch)
            raise
        row = self._publisher.publish_one(record, task.attempt) if room else None
        if row is None:
            self._store.remove(batch)
            return False
        self._published.add(batch, row)
        return True

    def _without_room(self, batch: Batch) -> bytes | None:
        """Return a batch's descriptor though it has found no room; None if a row will give some."""
        if self._collector.lent:
            self._collector.retire()
            record = self._store.descriptor(batch)
            if record is not None:
                return record
        task_id, now = batch.tasks[0].task_id, monotonic()
        record = None
        if task_id != self._stuck_id:
            self._stuck_id, self._stuck_s = task_id, now
        elif now > self._stuck_s + STUCK_S:
            record = self._make_way(batch)
        # In pieces if no row will give room when it ends, or a worker would be idle until then.
        rows = self._published.rows.values()
        if record is None and (self._wanting or not any(other.placed for other in rows)):
            record = self._store.descriptor(batch, streamed=True)
        return record

    def _make_way(self, batch: Batch) -> bytes | None:
        """Take payloads of tasks that wait out of the arena, until a batch before them finds room.

        Rows that would give it room may run for long, perhaps even until this batch has run.
        """
        for task in reversed(tuple(self._store.apart)):
            # In no row, and in no batch that is about to be published.
            if task.batch is None and not task.in_doubt and task not in batch.tasks:
                self._store.leave(task, again=True)
                record = self._store.descriptor(batch)
                if record is not None:
                    return record
        return None

    def publish(self) -> None:
        """Publish from the backlog what finds room."""
        if self.draining:
            return
        rows = self._published.rows
        few = len(rows) + len(self._collector.retired) + TOGETHER > self._num_rows
        if few or self._collector.lent:  # it gives room, without which items and code are streamed
            self._collector.retire()
        waiting, full = self._backlog.tasks, False
        # Most tasks of a row: half of a worker's part of what waits, so that all get some.
        share = -(-len(waiting) // (2 * self._workers))
        while waiting and not full:
            batches: list[Batch] = []
            records: list[bytes] = []
            room = min(TOGETHER, self._num_rows - len(rows))
            if self._full:  # not each row that is free can serve one of the next tickets
                room = self._publisher.room(min(room, len(waiting)))
            try:
                self._prepare(batches, records, room, share)
                need_stack(FRAMES)
            except BaseException:  # no memory, no stack: else those taken so far would be lost
                tasks = [task for batch in batches for task in batch.tasks]
                waiting.extendleft(reversed(tasks))
                for batch in batches:
                    self._store.remove(batch)
                raise
            if not batches:
                break
            full = self._add(batches, records)
        self._full = bool(waiting) and not self._tries_enough(len(rows))
        if self._full:
            self._recover()

    def _tries_enough(self, rows: int) -> bool:
        """Return whether so many rows are enough as long as the next function is not known."""
        return rows >= self._trial_rows and self._backlog.untried

    def _recover(self) -> None:
        """Now and then look for rows and counters that we have lost, and have them back."""
        now = monotonic()
        if now < self._recover_s:
            return
        self._recover_s = now + RECOVER_S
        rows = self._published.rows
        self._publisher.recover({*rows, *(row.number for row, *_ in self._collector.retired)})
        waiting = self._backlog.resume()  # a counter may have been lost as well
        if waiting and not rows:  # and nobody will give one back
            gc.collect()  # a map that was cut off may be in a cycle, with its traceback
            self._backlog.resume()

    def _prepare(self, batches: list[Batch], records: list[bytes], room: int, share: int) -> None:
        """Take from the backlog what goes into `room` rows at the most."""
        rows = len(self._published.rows)
        while self._backlog.tasks and len(batches) < room:
            if self._tries_enough(rows + len(batches)):
                break
            batch = self._backlog.next_batch(share)
            if batch is None:
                break
            batches.append(batch)
            if batch.tasks[0].attempt != batches[0].tasks[0].attempt:
                record = None  # `publish` takes rows of one attempt: these are next
            else:
                record = self._store.descriptor(batch)
                if record is None and len(batches) == 1:  # else those before it may give room
                    record = self._without_room(batch)
            if record is None:
                self._backlog.put_back(batches.pop().tasks)
                break
            records.append(record)

    def _add(self, batches: list[Batch], records: list[bytes]) -> bool:
        """Put descriptors into rows; return whether there were too few."""
        left: list[Task] = []
        self._unheard = True
        rows = self._publisher.publish(records, batches[0].tasks[0].attempt)
        for batch, row in zip(batches, rows, strict=True):
            if row is None:
                left += batch.tasks
                self._store.remove(batch)
                continue
            self._published.add(batch, row)
        if left:
            self._backlog.put_back(left)
        return bool(left)
