"""What the driver gets out of the table: outcomes, and what workers ask for while they run.

A row says by its word what is to be done about it::

    DONE       its outcome is fetched and sorted out by task; the row is freed later
    WANTED     its owner gets the next piece of a payload
    OFFERED    a piece of an outcome is taken
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TypeAlias

from .. import layout
from ..backoff import SPIN_S
from ..contributions import Together
from ..extents import Extent
from ..layout import TaskOutcome
from ..protocol import State
from ..repository import Publisher, Row
from ..serializer import APART, CONTRIBUTES, Kind, pack_exception, split
from ..system.memory import empty
from ..tasks import Batch, Finished, Holds, Outcome, SharedCode, Tally, Task
from .backlog import Backlog
from .published import Published
from .store import Store
from .streams import Streams
from .unresolved import Unresolved

#: Rows that take no longer are short; all are taken for short until some were measured.
SHORT_S = 0.2e-3

#: Most rows of which the words are looked at one by one.
FEW = 8

#: A batch whose outcomes have fewer bytes each is copied as bytes: slices of these, unlike those of
#: a memoryview, are not tracked by the garbage collector.
SMALL_NBYTES = 128

#: So many collected rows are freed, even where somebody waits for a result.
RETIRED = 16

# What every task needs: an attribute of an enumeration costs as much as a call.
_DONE, _WANTED = int(State.DONE), int(State.WANTED)
_BATCH, _EXCEPTION, _LOST = int(Kind.BATCH), int(Kind.EXCEPTION), int(Kind.LOST)
_ASKING = layout.States(state for state in State if state >= _WANTED)

#: What tasks that are counted together have in common: their worker, the tally of their pool,
#: their code, and whether they are calls (else turns in a range).
_Kin: TypeAlias = tuple[int, Tally, SharedCode | None, bool]


class Collector:
    """Collects the rows of one driver.  Not thread-safe: its driver holds the lock.

    Parameters
    ----------
    publisher : Publisher
    store : Store
    backlog : Backlog
        Where tasks go that come back without an outcome.
    heard_s : dict of int to float
        When each member has ended its last task, at the earliest; brought up to date here.

    Attributes
    ----------
    published : Published
        The rows.
    unresolved : Unresolved
        Collected, their futures not resolved yet.
    retired : list of (Row, Holds, Extent or None)
        Collected, not free yet, and what they hold: not their tasks, which would keep results of
        the user's alive.
    row_s : float
        How long a row takes, over the last ones.
    streams : Streams
    lent : bool
        Whether some of the retired rows have something in the arena.
    """

    def __init__(
        self,
        publisher: Publisher,
        store: Store,
        backlog: Backlog,
        heard_s: dict[int, float],
    ) -> None:
        self.published = Published(publisher, store, backlog, self._finish)
        self.unresolved = Unresolved()
        self.retired: list[tuple[Row, Holds, Extent | None]] = []
        self.row_s = SHORT_S
        self.streams = Streams(publisher, store)
        self._uncounted: list[tuple[_Kin, Sequence[int]]] = []  # how long some tasks took
        self._rows = self.published.rows
        self._words = publisher.words
        self.lent = False
        self._calm: list[int] = []  # by `still`, the word of a row that asked for nothing
        self._seen: tuple[int, Batch, int] | None = None  # by `still`, a row that is DONE
        self._window = publisher.window
        self._publisher = publisher
        self._store = store
        self._backlog = backlog
        self._heard_s = heard_s

    def look_after_rows(self, since_s: float) -> bool:
        """Do what rows ask for; return whether any did.

        Parameters
        ----------
        since_s : float
            A time before the last look: what is found now has ended after it.
        """
        rows, words = self._rows, self._words
        seen, self._seen = self._seen, None
        if seen is not None and rows.get(seen[0]) is seen[1]:
            number, _, word = seen
            self._collect([Row(number, word)], since_s)
            return True
        done: list[Row] = []
        asking = self._look()
        for number in asking:
            row = Row(number, words[number])
            state = layout.state_of(row.word)  # a fact, though by a Get: see ``repository``
            if state == _DONE:
                done.append(row)
            elif state == _WANTED:
                self._store.forget_readers_but(rows)  # a row that is gone needs the buffer no more
                self.streams.supply(row, rows[number])
            elif state == State.OFFERED:
                error = self.streams.take(row, rows[number])
                if error is not None:
                    self._refuse(rows[number], layout.owner_of(row.word), error)
        if self.published.batches:
            self.published.recall_late(words)
        if done:
            self._collect(done, since_s)
        return bool(asking)

    def still(self) -> bool:
        """Return whether the only row of ours asks for nothing, after some time.

        Called without the driver's lock, which others may want meanwhile.  RMA cost: as
        ``await_change`` of a window.
        """
        if len(self._rows) != 1:
            return False
        try:
            ((number, batch),) = list(self._rows.items())
        except ValueError:  # another thread was quicker
            return False
        place = self._publisher.geometry.word(number)
        (word,) = self._window.await_change(self._calm, place, seconds=SPIN_S)
        state = layout.state_of(word)
        if state == _DONE:  # and stays so until we have collected it: no need to look again
            self._seen = number, batch, word
        if state >= _WANTED:
            return False
        self._calm = [word]
        return True

    @property
    def retires_many(self) -> bool:
        """Whether so many rows are to be freed that it is done even if somebody waits."""
        return len(self.retired) >= RETIRED

    def retire(self) -> None:
        """Free the rows that were collected, and count their tasks.

        Not as soon as they are collected, because somebody waits for their results.

        Notes
        -----
        RMA cost: as ``Publisher.retire``; none if there are no such rows.
        """
        if self.retired:
            rows = []
            while self.retired:  # one by one: should a signal's handler raise, the others are here
                row, holds, extent = self.retired.pop()
                self._store.give_back(holds, extent, row)
                rows.append(row)
            self.lent = False
            self._publisher.retire(rows)
        self.count()

    def count(self) -> None:
        """Take in how many tasks there were, and how long they took."""
        together: dict[_Kin, list[int]] = {}
        while self._uncounted:
            kin, times_ns = self._uncounted.pop()
            together.setdefault(kin, []).extend(times_ns)
        for (owner, tally, code, calls), times_ns in together.items():
            tally.elapsed_ns[owner] += sum(times_ns)
            if calls:  # a turn in a range says itself how many items it was
                tally.tasks[owner] += len(times_ns)
                if code is not None:
                    code.measured(owner, times_ns)

    def _look(self) -> list[int]:
        """See the words of the rows anew; return which of ours may ask for something."""
        rows, words = self._rows, self._words
        if len(rows) == 1:  # for which somebody may wait
            (number,) = rows
            (words[number],) = self._window.peek(self._publisher.geometry.word(number))
            return [number] if layout.state_of(words[number]) >= _WANTED else []
        if len(rows) <= FEW:
            self._publisher.look(range(min(rows), max(rows) + 1))
            return [number for number in rows if layout.state_of(words[number]) >= _WANTED]
        self._publisher.look()
        return [number for number in _ASKING.rows(words) if number in rows]

    def _collect(self, done: list[Row], since_s: float) -> None:
        """Fetch the outcomes of rows that are DONE, and free the rows."""
        fetched: list[tuple[Batch, Row, int, int, int, memoryview]] = []
        if len(done) == 1:
            records = [self._publisher.read_record(done[0].number)]
        else:
            records = self._publisher.read_records([number for number, _ in done])
        for row, record in zip(done, records, strict=True):
            number, word = row
            batch, owner = self._rows[number], layout.owner_of(word)
            self._heard_s[owner] = since_s
            kind, elapsed_ns, offset, nbytes = layout.read_outcome(record)
            if offset == layout.INLINE:
                content = layout.inline_outcome(record, nbytes)
                self._take_in(batch, row, owner, kind, elapsed_ns, content)
                continue
            if offset == layout.STREAMED:
                assert batch.incoming is not None
                content = batch.incoming
            else:
                kind, content = self._fetch(batch.tasks, kind, Extent(offset, nbytes))
            fetched.append((batch, row, owner, kind, elapsed_ns, content))
        if fetched:
            self.lent = True
            self._window.flush()  # before the rows are free, and with them the workers' extents
            for each in fetched:
                self._take_in(*each)

    def _fetch(self, tasks: Sequence[Task], kind: int, extent: Extent) -> tuple[int, memoryview]:
        """Get an outcome of some tasks, complete at the next flush; without memory an error."""
        try:
            content = empty(extent.nbytes)
            self._window.get(extent.offset, content)
            return kind & ~APART, content
        except MemoryError as error:
            for task in tasks:
                task.retry = None  # what it has added to accumulators counts already
            return _EXCEPTION, memoryview(refusal(tasks[0], error))

    def _take_in(
        self, batch: Batch, row: Row, owner: int, kind: int, elapsed_ns: int, content: memoryview
    ) -> None:
        """Take in what a worker says of a row.

        If this fails in the middle, because the stack is full, the row is still in `published`, and
        is collected again.  So what needs most of the stack comes first, and what comes after `add`
        is made up for the next time.
        """
        self.row_s += 0.1 * (elapsed_ns * 1e-9 - self.row_s)
        if batch.lost is not None:
            kind, content = _LOST, memoryview(batch.lost.encoded())
        carried: list[Together] = []
        if kind & CONTRIBUTES:
            content, packed = layout.read_carried(content)
            kind &= ~CONTRIBUTES
            # If the row is collected again: what was handed on before is over, and so is its part.
            groups: list[Together] = split(packed)
            carried = [g for g in groups if not all(batch.tasks[at].over for at in g.tasks)]
        finished: Finished | None = None
        if len(batch.tasks) > 1:
            if kind == _BATCH:
                small = len(content) < SMALL_NBYTES * len(batch.tasks)
                entries = layout.read_task_outcomes(bytes(content) if small else content)
            else:  # the same has become of all
                entries = [(kind, elapsed_ns, content)] * len(batch.tasks)
            finished, times_ns = self._sorted_out(batch, owner, entries, True, carried)
            if kind == _BATCH and len(times_ns) == len(batch.tasks):
                self._backlog.stepped(1e-9 * (elapsed_ns - sum(times_ns)))
        else:
            (task,) = batch.tasks
            times_ns = [elapsed_ns]
            if not task.over and task.batch is batch:  # else fetched before, perhaps tried again
                finished = Finished(task.context, owner, ((task, kind, content),), carried)
        if finished is not None:
            self.add(finished, times_ns)
        self.lent |= batch.extent is not None or batch.tasks[0].segment is not None
        self.published.forget(row.number)
        self.retired.append((row, batch.holds, batch.extent))

    def _finish(self, batch: Batch, owner: int, entries: Sequence[TaskOutcome]) -> None:
        """Take in what became of the first tasks of a row that is not DONE."""
        finished, times_ns = self._sorted_out(batch, owner, entries, False, [])
        self.add(finished, times_ns)

    def add(self, finished: Finished, times_ns: Sequence[int] = ()) -> None:
        """Count outcomes, and hand them on: from then on they are with the thread that takes them.

        Parameters
        ----------
        finished : Finished
        times_ns : sequence of int
            How long each of the tasks took, as far as they have ended.
        """
        if times_ns:
            task, tally = finished.outcomes[0][0], finished.context.tally
            kin = finished.owner, tally, task.code, task.segment is None
            self._uncounted.append((kin, times_ns))
        for i, (task, kind, _) in enumerate(finished.outcomes):
            if task.extent is None:
                continue
            if kind != _LOST:
                self._store.leave(task)
            else:
                try:  # to keep its payload for another attempt
                    self._store.leave(task, again=True)
                except MemoryError as error:
                    self._store.leave(task)
                    finished.outcomes[i] = task, _EXCEPTION, refusal(task, error)
        # Last: what is over is not collected again.  An outcome that is counted twice, should we
        # fail just before, is better than one that is lost.
        for task, _, _ in finished.outcomes:
            task.over = True
        self.unresolved.append(finished)

    def _sorted_out(
        self,
        batch: Batch,
        owner: int,
        entries: Sequence[TaskOutcome],
        decided: bool,
        carried: list[Together],
    ) -> tuple[Finished, list[int]]:
        """Return what became of the first tasks of a row, and how long they took.

        `decided`: the row is DONE, so the tasks without an outcome were not run, and wait again.
        """
        outcomes: list[Outcome] = []
        times_ns: list[int] = []
        apart = False
        for task, (kind, elapsed_ns, encoded) in zip(batch.tasks, entries, strict=False):
            if task.over or task.batch is not batch or (kind & CONTRIBUTES and not decided):
                continue  # cancelled, recalled, fetched before; or it comes when the row is DONE
            if kind & APART:
                apart = True
                kind, encoded = self._fetch([task], kind, layout.read_extent(encoded))
            outcomes.append((task, kind & ~CONTRIBUTES, encoded))
            times_ns.append(elapsed_ns)
        if apart:
            self._window.flush()  # as in `_collect`, before the row is free
        finished = Finished(batch.tasks[0].context, owner, outcomes, carried)
        if decided and len(entries) < len(batch.tasks):  # what was not run is still to be run
            left = batch.tasks[len(entries) :]
            self._backlog.put_back([task for task in left if task.batch is batch])
        return finished, times_ns

    def _refuse(self, batch: Batch, owner: int, error: MemoryError) -> None:
        """Fail the tasks of a row whose outcome is too large for this process."""
        content = refusal(batch.tasks[0], error)  # first: if it fails, they are still in their row
        lost = self.published.take_back(batch)
        context = batch.tasks[0].context
        if batch.tasks[0].segment is None:
            context.tally.tasks[owner] += len(lost)
        self.add(Finished(context, owner, [(task, _EXCEPTION, content) for task in lost]))


def refusal(task: Task, error: Exception) -> bytes:
    """Return what is in the place of an outcome that cannot be taken."""
    return pack_exception(error, task=task.function, rank=None, host=os.uname().nodename)
