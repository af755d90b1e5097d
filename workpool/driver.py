"""The driver's half: prepare, publish, collect, resolve.  ``worker`` is the other half.

The same steps in the same order, facing each other: see the picture in ``worker``.

``submit`` prepares and publishes in the thread that calls it, and whoever waits for a future makes
the progress: two threads that hand work to each other through the interpreter lock would cost
milliseconds.  What finds no room in the table or the arena waits here, in order, and is published
as room appears.  Futures are resolved outside of the lock, because their callbacks may do anything.

Short tasks share a row: see ``backlog``.  Should one of them be long after all, those behind it are
taken back and go elsewhere.
"""

from __future__ import annotations

import threading
import time
from array import array
from collections import Counter, deque
from collections.abc import Callable, Collection, Sequence

from . import layout, verbs
from .arena import empty
from .backlog import Backlog
from .backoff import Backoff
from .layout import NO_BLOB, NO_ITEMS, Descriptor, Extent, Geometry, Item, Piece
from .leases import Gone, Leases
from .loss import Loss, Why
from .protocol import State, Step
from .published import Published
from .repository import Counters, Publisher, Row, Stream, take_items
from .serializer import CONTRIBUTES, Code, Encoded, Kind, Packed
from .store import Store
from .tasks import ISOLATED, Batch, Finished, PoolContext, Segment, Task
from .tracing import Tracer
from .whole import whole

#: Longest sleep of a thread that waits for a result.
WAIT_S = 1e-3

#: Rows that take longer are waited for asleep, and never longer than this.
SHORT_S = 0.2e-3
LONGEST_S = 5e-3

#: Rows whose futures are resolved before the thread that does it looks after its own.
RESOLVED = 64

#: So few rows are looked at one by one.
FEW = 8

#: Tasks that wait for each other to be published while the workers have enough to do, and how long.
TOGETHER = 256
TOGETHER_S = 2e-3

#: Rows for each worker above which publishing may wait.
AHEAD = 2


_WANTED = int(State.WANTED)
_ASKING = layout.States(state for state in State if state >= _WANTED)


class Driver:
    """One table, as the rank that submits to it sees it.  Thread-safe.

    Parameters
    ----------
    window : verbs.Window
    geometry : Geometry
    leases : Leases, optional
        Of the workers; without, none is ever taken for gone.
    tracer : Tracer, optional

    Attributes
    ----------
    beats : int
        Grows whenever somebody submits or makes progress.
    drained : bool
        Whether nothing more will come of the tasks that are left.
    """

    def __init__(
        self,
        window: verbs.Window,
        geometry: Geometry,
        leases: Leases | None = None,
        tracer: Tracer | None = None,
    ) -> None:
        self.geometry = geometry
        self.tracer = tracer
        self.beats = 0
        self._lock = threading.Lock()
        self._window = window
        self._publisher = Publisher(window, geometry, 0)
        self._counters = Counters(window, geometry)
        self._store = Store(window, geometry.region(0))
        self._workers = geometry.members - 1
        self._leases = leases
        #: Attempts that were taken back, by the member that had them.
        self.evicted: Counter[int] = Counter()
        self.ran: dict[int, object] = {}  # by member that has died: the function of its task
        self._backlog = Backlog(self._lend)
        self._published = Published(
            window, self._publisher, self._store, self._backlog, self._finish
        )
        self._rows = self._published.rows
        self._finished: deque[Finished] = deque()  # collected, their futures not resolved yet
        self._retired: list[Row] = []  # collected, not free yet
        self._full = False
        self._draining = False
        self.drained = False
        self._row_s = SHORT_S  # how long a row takes, over the last ones
        self._advanced_s = 0.0  # when progress was made last
        self._again_s = 0.0  # when a task may be published again without others
        self._waiting: set[int] = set()  # threads

    @property
    def attended(self) -> bool:
        """Whether a thread waits, and makes progress by it."""
        return bool(self._waiting)

    @property
    def outstanding(self) -> int:
        """About how many tasks are not over; 0 only if there are none."""
        return self._backlog.outstanding + len(self._rows) + len(self._finished)

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
        RMA cost: as ``Publisher.publish``, divided by the size of the batch.
        """
        self.beats += 1
        if task.retry is not None and isinstance(task.payload, Packed):
            task.payload = task.payload.tobytes()  # as the arguments are now, for every attempt
        with self._lock:
            self._store.use(task, code)
            self._backlog.tasks.append(task)
            now = time.monotonic()
            late = now - self._advanced_s > TOGETHER_S
            room = len(self._rows) < AHEAD * self._workers and not self._full
            if late or len(self._backlog.tasks) % TOGETHER == 0:
                self._advance()
            elif room and now >= self._again_s:
                self._publish_one(now)
            if isinstance(task.payload, Packed):
                batch = task.batch
                if batch is None or batch.extent is None:
                    # Not in the window yet: keep the arguments as they are now.
                    task.payload = task.payload.tobytes()
                    if batch is not None:
                        batch.payload = task.payload

    def _lend(self, segment: Segment) -> bool:
        """Return whether a range has its counter; lend it one if there is any."""
        if segment.items is None:
            segment.items = self._counters.lend(segment.tickets)
        return segment.items is not None

    def _prepare(self, batch: Batch) -> bytes | None:
        """Return a batch's descriptor; None while the arena has no room for what it needs."""
        task, payload = batch.tasks[0], batch.payload
        inline, items = b"", NO_ITEMS
        if task.segment is not None:
            assert task.segment.items is not None
            items, inline = task.segment.items, layout.write_terms(task.segment.terms)
            extent = self._store.blob(task.segment).extent
        elif len(payload) <= layout.INLINE_PAYLOAD_NBYTES and isinstance(payload, bytes):
            inline = payload
            extent = Extent(layout.INLINE, len(payload))
        elif (place := self._store.place(batch)) is not None:
            extent = place
        else:
            return None
        kind = task.kind | ISOLATED if task.context.isolated else task.kind
        code = NO_BLOB if task.code is None else task.code.placed or self._store.blob(task.code)
        context = task.context.placed or self._store.blob(task.context)
        return layout.write_descriptor(
            Descriptor(task.task_id, kind, code, context, extent, len(batch.tasks), items),
            inline,
        )

    # --- publish ------------------------------------------------------------------------------

    def _publish_one(self, now: float) -> None:
        """Publish a task that was just submitted, and what waits.

        Where rows are short, half of the time at most goes into this: what is submitted until then
        goes with the next one, or with whoever makes progress.
        """
        self._publish()
        if self._row_s < SHORT_S:
            end = time.monotonic()
            self._again_s = end + (end - now)

    def _publish(self) -> None:
        """Publish from the backlog what finds room."""
        if self._draining:
            return
        if len(self._rows) + len(self._retired) + TOGETHER > self.geometry.rows:
            self._retire()
        waiting, full = self._backlog.tasks, False
        # A part of what waits, so that no worker is left without.
        share = -(-len(waiting) // (2 * self._workers))
        while waiting and not full:
            batches: list[Batch] = []
            records: list[bytes] = []
            room = min(TOGETHER, self.geometry.rows - len(self._rows))
            while waiting and len(batches) < room:
                batch = self._backlog.next_batch(share)
                if batch is None:
                    break
                if batches and batch.tasks[0].attempt != batches[0].tasks[0].attempt:
                    self._backlog.put_back(batch.tasks)
                    break
                record = self._prepare(batch)
                if record is None:
                    self._backlog.put_back(batch.tasks)
                    break
                batches.append(batch)
                records.append(record)
            if not batches:
                break
            rows = self._publisher.publish(records, batches[0].tasks[0].attempt)
            left: list[Task] = []
            for batch, row in zip(batches, rows, strict=True):
                if row is None:
                    left += batch.tasks
                    self._published.dissolve(batch)
                    continue
                self._published.add(batch, row)
                if self.tracer is not None:
                    for task in batch.tasks:
                        self._trace("published", task)
            if left:
                self._backlog.put_back(left)
                full = True
        self._full = bool(waiting)

    @whole
    def cancel(self, task: Task) -> bool:
        """Withdraw a task that no worker has started.

        Notes
        -----
        RMA cost: 1 compare_and_swap if it is published, 1 more if its row runs.
        """
        with self._lock:
            if task.batch is not None and not task.over:
                self._published.withdraw(task.batch)
            if task.batch is not None or task.over:
                return False
            task.over = True
            self._backlog.withdraw(task)
            task.payload = b""
            self._store.unuse(task)
            self._trace("cancelled", task)
            return True

    @whole
    def kill(self, task: Task) -> bool:
        """Take a task back from the worker that runs it; False if it is over, or not running.

        The worker notices, and ends the process that runs the task, if it is not the worker's own.

        Notes
        -----
        RMA cost: 1 load, 1 or 2 compare_and_swap.
        """
        with self._lock:
            if task.batch is None or task.over or not self._published.take_back(task.batch, task):
                return False
            task.over = True
            self._store.unuse(task)
            self._trace("killed", task)
            return True

    def _take_back_from(self, member: int, batches: list[Batch], gone: Gone, loss: Loss) -> None:
        """Void what a member runs that is gone; those who wait for it decide what comes next."""
        for batch in batches:
            if gone is Gone.DEAD and self._published.settle(batch):
                continue  # it is DONE now
            lost = self._published.take_back(batch)
            for task in lost:
                task.over = True
                self._store.unuse(task)
                self._trace("reclaimed", task)
            self.evicted[member] += bool(lost)
            if lost:
                if gone is Gone.DEAD:
                    self.ran[member] = lost[0].function
                outcomes = [(task, int(Kind.LOST), loss.encoded()) for task in lost]
                self._finished.append(Finished(lost[0].context, member, 0, outcomes))
                self._finished[-1].uncounted = 0

    def _look_after_members(self, leases: Leases) -> None:
        """Take back what members run that are gone; fail everything when all are."""
        owners = self._published.owners()
        for member, gone in leases.gone(owners).items():
            process = leases.peers.members[member]
            loss = Loss(gone.value, None, 0, "", process.pid, member, process.host)
            self._take_back_from(member, owners[member], gone, loss)
        workers = range(1, self._workers + 1)
        dead = [member for member in workers if leases.peers.state(member) == "dead"]
        for member in dead:
            self._published.bury(member)
        if not owners and len(dead) == self._workers:
            self._fail_all()

    def _fail_all(self) -> None:
        """Fail what waits: there is nobody left to run it."""
        for batch in tuple(self._rows.values()):
            self._published.withdraw(batch)
        waiting = [task for task in self._backlog if not task.over]
        loss = Loss(Why.NOBODY.value, None, 0, "", 0, 0, "").encoded()
        for task in waiting:
            task.over = True
            self._backlog.withdraw(task)
            self._store.unuse(task)
            self._finished.append(Finished(task.context, 0, 0, [(task, int(Kind.LOST), loss)]))

    @whole
    def retry(self, task: Task, delay_s: float) -> None:
        """Publish a task again whose attempt has failed, after a while."""
        with self._lock:
            task.batch = None
            task.over = False
            task.attempt += 1
            self._store.reuse(task)
            self._trace("retried", task)
            if delay_s > 0:
                self._backlog.put_off(task, delay_s)
            else:
                self._backlog.tasks.append(task)

    @whole
    def drain(self) -> None:
        """Have nothing more started; what runs goes on to its end.

        Notes
        -----
        RMA cost: 1 compare_and_swap for each row, 1 fetch_add for each turn.
        """
        with self._lock:
            self._draining = True
            for batch in tuple(self._rows.values()):
                segment = batch.tasks[0].segment
                if segment is not None and segment.items is not None:
                    take_items(self._window, self.geometry, segment.items, segment.tickets)
                self._published.withdraw(batch)

    @property
    def busy(self) -> bool:
        """Whether there is something in the table, or on its way to its future."""
        return bool(self._rows or self._finished)

    @whole
    def tasks(self, contexts: Collection[PoolContext]) -> list[Task]:
        """Return the tasks of a pool that are not collected, the last submitted first."""
        with self._lock:
            found = [task for batch in self._rows.values() for task in batch.tasks]
            found = [task for task in found if task.batch is not None]  # else in the backlog
            found += self._backlog
        found = [task for task in found if task.context in contexts and not task.over]
        return sorted(found, key=lambda task: task.task_id, reverse=True)

    @whole
    def running(self, task: Task) -> bool:
        """Return whether a worker has claimed the task.  RMA cost: 1 load."""
        with self._lock:
            batch = task.batch
            if batch is None or batch.row is None or self._rows.get(batch.row.number) is not batch:
                return False
            return self._publisher.load(batch.row.number) != batch.row.word

    # --- collect ------------------------------------------------------------------------------

    @whole
    def progress(self) -> int:
        """Publish and collect what can be; return how many rows ended.

        Notes
        -----
        RMA cost: 1 look; with outcomes 1 get for each run of rows, 1 compare_and_swap for each
        row, 3 flushes.
        """
        with self._lock:  # an interrupt after a call of acquire would leave it locked
            self._advance()
        self.beats += 1
        return self._resolve() if self._finished else 0

    def _resolve(self) -> int:
        """Resolve some futures, without the lock; an interrupt leaves the others to the next."""
        count = 0
        waiting = [finished for finished in tuple(self._finished) if not finished.written]
        for context in {finished.context for finished in waiting}:
            context.commit([finished for finished in waiting if finished.context is context])
        while self._finished and count < RESOLVED:
            try:
                finished = self._finished.popleft()
            except IndexError:  # another thread was quicker
                break
            count += 1
            try:
                finished.context.resolve(finished)
            except BaseException:
                self._finished.appendleft(finished)
                raise
        return count

    def _advance(self) -> None:
        self._retire()
        self._backlog.wake()
        if self._leases is not None and self._leases.due() and self.outstanding:
            self._look_after_members(self._leases)
        quiet = not (self._rows and self._look_after_rows())
        if self._backlog.tasks:
            self._publish()
        elif quiet and len(self._rows) < AHEAD * self._workers:
            self._publisher.prepare()
        self._advanced_s = time.monotonic()

    def _look_after_rows(self) -> bool:
        """Do what rows ask for; return whether any did."""
        done: list[Row] = []
        words, asking = self._look()
        for number in asking:
            row = Row(number, words[number])
            state = layout.state_of(row.word)
            if state == State.DONE:
                done.append(row)
            elif state == State.WANTED:
                self._supply(row)
            elif state == State.OFFERED:
                self._take(row)
        if self._published.batches:
            self._published.recall_late(words)
        if done:
            self._collect(done)
        return bool(asking)

    def _retire(self) -> None:
        """Free the rows that were collected: not at once, for somebody waits for their results."""
        if self._retired:
            retired, self._retired = self._retired, []
            self._publisher.retire(retired)

    def _look(self) -> tuple[array[int], list[int]]:
        """Return the words of the rows, and which of ours may ask for something."""
        rows = self._rows
        if len(rows) <= FEW:
            words = self._publisher.look(range(min(rows), max(rows) + 1))
            return words, [row for row in rows if layout.state_of(words[row]) >= _WANTED]
        words = self._publisher.look()
        return words, [number for number in _ASKING.rows(words) if number in rows]

    def _collect(self, done: list[Row]) -> None:
        """Fetch the outcomes of rows that are DONE, and free the rows."""
        fetched: list[tuple[Batch, Row, layout.OutcomeRecord, memoryview]] = []
        wait = False
        records = self._publisher.read_records([row.number for row in done])
        for row, raw in zip(done, records, strict=True):
            batch = self._published.pop(row.number)
            record, inline = layout.read_outcome(raw)
            offset, nbytes = record.extent
            content: memoryview
            if offset == layout.INLINE:
                content = inline[:nbytes]
            elif offset == layout.STREAMED:
                assert batch.incoming is not None
                content = batch.incoming
            else:
                content = empty(nbytes)
                self._window.get(offset, content)
                wait = True
            self._store.remove(batch)
            fetched.append((batch, row, record, content))
        if wait:
            self._window.flush()  # before the rows are free, and with them the workers' extents
        for batch, row, record, content in fetched:
            self._row_s += 0.1 * (record.elapsed_ns * 1e-9 - self._row_s)
            owner = layout.owner_of(row.word)
            kind, carried = record.kind & ~CONTRIBUTES, memoryview(b"")
            if record.kind & CONTRIBUTES:
                content, carried = layout.read_carried(content)
            if kind == Kind.BATCH:
                items = layout.read_items(content)
            else:
                items = [(kind, record.elapsed_ns, content)] * len(batch.tasks)
            self._finish(batch, owner, items, carried=carried)
        self._retired += done
        self._full = False

    def _finish(
        self,
        batch: Batch,
        owner: int,
        items: Sequence[Item],
        decided: bool = True,
        carried: memoryview | bytes = b"",
    ) -> None:
        """Sort out what became of the first tasks of a row: all that ran, if that is `decided`."""
        context, code = batch.tasks[0].context, batch.tasks[0].code
        outcomes: list[tuple[Task, int, memoryview]] = []
        times_ns: list[int] = []
        for task, (kind, elapsed_ns, encoded) in zip(batch.tasks, items, strict=False):
            if task.over or task.batch is not batch or (kind & CONTRIBUTES and not decided):
                continue  # cancelled, recalled, fetched before; or its part is not in the window
            task.over = True
            outcomes.append((task, kind & ~CONTRIBUTES, encoded))
            times_ns.append(elapsed_ns)
            if self.tracer is not None:
                self._trace("collected", task)
        self._store.unuse(batch.tasks[0], len(outcomes))
        if code is not None and outcomes and batch.tasks[0].segment is None:
            code.measured(times_ns)
        if decided and len(items) < len(batch.tasks):  # what was not run is still to be run
            left = [task for task in batch.tasks[len(items) :] if task.batch is batch]
            for task in left:
                task.batch = None
            self._backlog.put_back(left)
        self._finished.append(Finished(context, owner, sum(times_ns), outcomes, carried))

    # --- pieces -------------------------------------------------------------------------------

    def _supply(self, row: Row) -> None:
        """Answer a worker that wants the next piece of a stream."""
        batch = self._rows[row.number]
        task = batch.tasks[0]
        wanted = layout.read_piece(self._publisher.read_records([row.number])[0])
        source: Encoded = batch.payload if task.segment is None else task.segment.content
        if wanted.stream == Stream.CODE and task.code is not None:
            source = task.code.content
        elif wanted.stream == Stream.CONTEXT:
            source = task.context.content
        piece = self._store.supply(row.number, wanted, source)
        if piece is not None:
            self._publisher.answer(row, Step.SUPPLY, piece)

    def _take(self, row: Row) -> None:
        """Fetch the piece of an outcome that a worker offers."""
        batch = self._rows[row.number]
        piece: Piece = layout.read_piece(self._publisher.read_records([row.number])[0])
        if piece.position == 0:
            batch.incoming = empty(piece.total_nbytes)
        assert batch.incoming is not None
        end = piece.position + piece.extent.nbytes
        self._window.get(piece.extent.offset, batch.incoming[piece.position : end])
        self._window.flush()  # the worker writes the next piece over this one
        self._publisher.answer(row, Step.TAKE)

    # --- waiting and room ---------------------------------------------------------------------

    def wait(self, ended: Callable[[], bool], timeout: float | None = None) -> bool:
        """Make progress until `ended` says so, or for `timeout` seconds; return what it says."""
        deadline = None if timeout is None else time.monotonic() + timeout
        backoff = Backoff(WAIT_S)
        me = threading.get_ident()
        try:
            while not ended():
                self._waiting.add(me)
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    return False
                if self.progress():
                    backoff.reset()
                if not ended():
                    self.pause(backoff, left)
            return True
        finally:
            self._waiting.discard(me)

    def pause(self, backoff: Backoff, at_most_s: float | None = None) -> None:
        """Leave the core to others until there may be something to do.

        While the workers have enough to do, nobody needs us before they have done a part of it;
        where a result is soon to come, it is looked for at once.
        """
        rows = len(self._rows)
        if rows and self._row_s > SHORT_S:
            wait_s = self._row_s * rows / self._workers / 4
            if rows <= AHEAD * self._workers:
                wait_s = min(WAIT_S, self._row_s / min(rows, self._workers) / 2)
            time.sleep(max(0.0, min(wait_s, LONGEST_S, wait_s if at_most_s is None else at_most_s)))
        else:
            backoff.pause(at_most_s)

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
    def withdraw(self, segment: Segment) -> None:
        """Take what is left of a range: no worker shall have it.  RMA cost: 1 fetch_add."""
        with self._lock:
            if segment.items is not None:
                take_items(self._window, self.geometry, segment.items, segment.tickets)

    @whole
    def end(self, segment: Segment) -> None:
        """Say that nobody will take a turn in a range any more.  RMA cost: 1 fetch_add."""
        with self._lock:
            if segment.items is not None:
                self._counters.take_back(segment.items)
                segment.items = None
            self._store.drop(segment)

    @whole
    def drop(self, context: PoolContext) -> None:
        """Say that no more tasks of this pool will come."""
        with self._lock:
            self._store.drop(context)

    def _trace(self, event: str, task: Task) -> None:
        if self.tracer is not None:
            row = None if task.batch is None else task.batch.row
            ticket = -1 if row is None else self.geometry.ticket(row.number, row.word)
            self.tracer(event, task_id=task.task_id, ticket=ticket, attempt=task.attempt)
