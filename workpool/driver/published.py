"""What a driver has in the table, and how it takes that back.

withdraw     a row that no worker has claimed
recall       what the worker of a batch has not started
take back    what a worker runs, because somebody wants it ended or the worker is gone
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Container, Sequence

from .. import layout
from ..clock import monotonic
from ..layout import TaskOutcome
from ..loss import Loss, Why
from ..members.leases import WATCH_S
from ..protocol import State, Step
from ..repository import Publisher, Row
from ..tasks import Batch, Task
from .backlog import Backlog
from .store import Store

#: A batch that runs for so many times the most work of one has a task that takes longer than
#: expected: those behind it are taken back.
RECALLS = 10

_RUNS = (State.CLAIMED, State.WANTED, State.OFFERED)

# Few rows are in one of these states, at most one for each worker: they are found without Python
# looking at each word.
_CLAIMED = layout.States([State.CLAIMED])
_OWNED = layout.States([*_RUNS, State.COMMITTED])

#: By what steps a row ends whose owner is gone and which nobody waits for.  What was decided is
#: DONE, and found by who looks for lost rows.
_ENDS: dict[int, Step] = {
    State.CLAIMED: Step.RECLAIM,
    State.WANTED: Step.RECLAIM,
    State.OFFERED: Step.RECLAIM,
    State.COMMITTED: Step.SETTLE,
    State.EVICTED: Step.LET_GO,
}
_LEFT = layout.States(_ENDS)


class Published:
    """The rows of one driver.  Not thread-safe: its driver holds the lock.

    Parameters
    ----------
    publisher : Publisher
    store : Store
    backlog : Backlog
        Where tasks go that are taken back.
    finish : callable
        ``finish(batch, owner, entries)``: takes in what became of a batch's first tasks.

    Attributes
    ----------
    rows : dict of int to Batch
        By row number: published, not collected.
    batches : dict of int to Batch
        Those of them that stand for several tasks of which some may still be given back.
    """

    def __init__(
        self,
        publisher: Publisher,
        store: Store,
        backlog: Backlog,
        finish: Callable[[Batch, int, Sequence[TaskOutcome]], None],
    ) -> None:
        self.rows: dict[int, Batch] = {}
        self.batches: dict[int, Batch] = {}
        self._publisher = publisher
        self._store = store
        self._backlog = backlog
        self._finish = finish

    def add(self, batch: Batch, row: Row) -> None:
        """Note a batch that was published."""
        batch.row = row
        self.rows[row.number] = batch
        if len(batch.tasks) > 1:
            self.batches[row.number] = batch
        for task in batch.tasks:
            task.batch = batch
        if batch.tasks[0].extent is not None:
            batch.doubt(False)

    def forget(self, number: int) -> None:
        """Forget a row that was collected."""
        self.batches.pop(number, None)
        del self.rows[number]

    def claimed(self, batch: Batch) -> bool:
        """Return whether a worker has claimed the row of a batch.  RMA cost: 1 load."""
        number, word = batch.row
        return self.rows.get(number) is batch and self._publisher.load(number) != word

    def withdraw(self, batch: Batch) -> None:
        """Put the tasks of a batch that no worker has started back into the backlog."""
        number = batch.row.number
        if self.rows.get(number) is not batch:
            return  # collected, or lost in a step that was cut off
        # Before the step, and back if that fails: should a signal's handler raise in between, then
        # nobody waits for the row to be DONE, which it may never be.
        del self.rows[number]
        if self._publisher.step(batch.row, Step.CANCEL):
            self.batches.pop(number, None)
            self._store.remove(batch)
            self._backlog.put_back(batch.tasks)
            return
        self.rows[number] = batch
        if number in self.batches:
            self._recall(number, batch, self._publisher.load(number))

    def _recall(self, number: int, batch: Batch, word: int) -> None:
        """Take back what the worker of a batch has not started, and fetch what has ended.

        `word` is what a load has shown: of a step of the worker's, a Get may show one half.
        """
        if layout.is_recalled(word) and layout.is_stride(word):
            return  # recalled by us, and its worker has given back nothing yet
        recalled = self._publisher.recall(Row(number, word))
        if recalled is None:
            return
        if not layout.is_stride(recalled):  # else its worker may still give some of it back
            del self.batches[number]
        left = batch.tasks[layout.started_of(recalled) :]
        self._backlog.put_back([task for task in left if task.batch is batch])
        ended = layout.ended_of(recalled)
        if ended:
            place = layout.read_place(self._publisher.read_record(number))
            entries = layout.read_task_outcomes(self._store.read(place), ended)
            self._finish(batch, layout.owner_of(recalled), entries)

    def single_out(self, task: Task) -> bool:
        """Recall what waits behind a task in its row; return whether the word names what runs.

        It does not while a stride runs.  If a task of it lasts, the worker's heart gives back those
        behind it, and then the word names that one.

        Notes
        -----
        RMA cost: none for a task that has its row to itself; 1 load, 1 compare_and_swap, and what
        it takes to fetch the outcomes that are there.
        """
        batch = task.batch
        if batch is None or batch.row.number not in self.batches:
            return True
        number = batch.row.number
        word = self._publisher.load(number)
        self._recall(number, batch, word)
        return layout.state_of(word) != State.CLAIMED or not layout.is_stride(word)

    def recall_late(self, words: array[int]) -> None:
        """Take back what waits behind a task that takes longer than expected.

        Notes
        -----
        RMA cost: none, or for each such row that of `single_out`.
        """
        now, recall_s = monotonic(), RECALLS * self._backlog.batch_s
        for number in _CLAIMED.rows(words):
            batch, word = self.batches.get(number), words[number]
            if batch is None:
                continue
            if batch.claimed_s is None:
                batch.claimed_s = now
            recalled = layout.is_recalled(word)
            if recalled and layout.is_stride(word):
                continue  # as in `_recall`
            if recalled or now - batch.claimed_s > recall_s:
                code = batch.tasks[0].code
                assert code is not None
                taken_s = max(WATCH_S, now - batch.claimed_s)  # its worker has seen it for so long
                code.lasts(layout.owner_of(word), int(1e9 * taken_s))
                self._recall(number, batch, self._publisher.load(number))

    def take_back(self, batch: Batch, only: Task | None = None) -> list[Task]:
        """Void the attempt that runs in a row; return the tasks that have lost it by that.

        Parameters
        ----------
        batch : Batch
        only : Task, optional
            Do nothing unless this is the one that runs.

        Notes
        -----
        RMA cost: 1 load, 1 compare_and_swap; twice that for a batch, more if the row changes
        meanwhile.
        """
        number = batch.row.number
        if self.rows.get(number) is not batch:
            return []
        word = self._publisher.load(number)
        if number in self.batches:
            self._recall(number, batch, word)  # the others are not this worker's to lose
            word = self._publisher.load(number)
        left = [task for task in batch.tasks if task.batch is batch and not task.over]
        if only is not None and only not in left:
            return []
        # Here alone a fresh load is right: until we have collected the row it is about our tasks,
        # and whoever runs them is to stop, however far that is.
        del self.rows[number]  # as in withdraw
        while layout.state_of(word) in _RUNS:
            if self._publisher.step(Row(number, word), Step.RECLAIM):
                break
            word = self._publisher.load(number)
        else:
            self.rows[number] = batch
            return []  # it has ended, or its contributions are on their way
        self.batches.pop(number, None)
        self._store.remove(batch)
        ran = batch.tasks[: layout.started_of(word)] if only is None else [only]
        # The others wait again: they were not started, or it is not they that are to end.  Those of
        # them that have run will run once more, and still count once: what they have contributed
        # would have been committed with the whole batch.
        self._backlog.put_back([task for task in left if task not in ran])
        lost = [task for task in left if task in ran]
        for task in lost:
            task.batch = None
        return lost

    def owners(self) -> dict[int, list[Batch]]:
        """Return the rows that somebody runs, by member.  RMA cost: 1 look."""
        words = self._publisher.look()
        found: dict[int, list[Batch]] = {}
        for number in _OWNED.rows(words):
            batch = self.rows.get(number)
            if batch is not None:
                found.setdefault(layout.owner_of(words[number]), []).append(batch)
        return found

    def settle(self, batch: Batch, loss: Loss) -> bool:
        """Finish a row that was decided, and whose owner has died; return whether it was decided.

        Its tasks are lost for good: nobody knows what the accumulators have of what they added.

        Notes
        -----
        RMA cost: 1 load, 1 compare_and_swap.
        """
        word = self._publisher.load(batch.row.number)
        row = Row(batch.row.number, word)
        if layout.state_of(word) != State.COMMITTED or not self._publisher.step(row, Step.SETTLE):
            return False
        batch.lost = loss._replace(why=Why.ADDING)
        for task in batch.tasks:
            task.retry = None  # another attempt might count twice
        return True

    def free_rows(self, members: Container[int]) -> None:
        """Free the rows of members whose processes are gone: taken back, or lost while they ran.

        Nobody else would: a lost row is freed when its owner is done with it, see
        ``Publisher.recover``.

        Notes
        -----
        RMA cost: 1 compare_and_swap for each step.
        """
        words = self._publisher.words
        for number in _LEFT.rows(words):
            if layout.owner_of(words[number]) not in members or number in self.rows:
                continue
            while step := _ENDS.get(layout.state_of(words[number])):
                if not self._publisher.step(Row(number, words[number]), step):
                    break
