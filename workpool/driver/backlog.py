"""What waits on the driver to be published, in order, and how it is cut into rows.

Tasks that are known to be short share a row, so that what a row costs is divided among them.  How
many depends on how long the function's tasks take, as measured, and on how many wait.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from heapq import heappop, heappush
from itertools import count

from .. import layout
from ..clock import monotonic
from ..context import LARGE_NBYTES
from ..serializer import join
from ..tasks import Batch, Segment, Task

#: Limits of a batch: its tasks, the bytes of their payloads, and how long they take together, as
#: was measured for their function.
BATCH_TASKS = layout.MAX_TASKS
BATCH_NBYTES = 256 << 10
BATCH_S = 0.5e-3

#: Between hosts the steps of a row take long.  There a batch may take so many times as long as its
#: steps, but no longer than that.
BATCH_STEPS = 4
LONGEST_BATCH_S = 10e-3

#: The bytes of a batch whose payloads lie apart in the arena, each by itself.
LARGE_BATCH_NBYTES = 1 << 20

#: Less than this part of a batch's work is not worth a row of its own, even if a worker is left
#: without.
ROW_PART = 0.1

#: How likely it may be that a batch has a slow task, for which those behind it would wait.
RISK = 0.25


class Backlog:
    """Tasks that wait.  Not thread-safe: its driver holds the lock.

    A task that is over meanwhile, because it was cancelled, is dropped when its turn comes.

    Parameters
    ----------
    lend : callable
        ``lend(segment)``: whether a range has a counter, lent now if there is one.  Where there is
        none, its turns wait until ``resume`` finds one.
    place : callable
        ``place(task)``: puts a payload into the arena, if there is room.
    room_nbytes : int
        Of the arena, for payloads: those of a row take a quarter of it at the most.

    Attributes
    ----------
    tasks : deque of Task
        That wait now, the last one at the end.
    batch_s : float
        Most work of a batch.
    """

    def __init__(
        self, lend: Callable[[Segment], bool], place: Callable[[Task], object], room_nbytes: int
    ) -> None:
        self._lend = lend
        self._place = place
        self._most_nbytes = room_nbytes // 4
        self.tasks: deque[Task] = deque()
        self.batch_s = BATCH_S
        self._steps_s = 0.0  # what the steps of a batch take, if nothing holds them up
        self._counterless: deque[Task] = deque()  # turns in ranges for which no counter was left
        self._later: list[tuple[float, int, Task]] = []  # a heap, by time and then by number
        self._numbers = count()

    def __iter__(self) -> Iterator[Task]:
        yield from self.tasks
        yield from self._counterless
        yield from (task for _, _, task in self._later)

    @property
    def untried(self) -> bool:
        """Whether the next tasks could share rows, but it is not known yet how long they take."""
        tasks = self.tasks
        first = _first(tasks)
        if first is None or first.code is None or first.code.known:
            return False
        # Fewer would have ended before it is known: they would wait for nothing.
        enough = first.code.ENOUGH
        return len(tasks) > enough and tasks[enough].goes_with(first)

    @property
    def outstanding(self) -> bool:
        """Whether tasks wait, those that wait for their time included."""
        # Looked for anew and not counted: a lost task, which is not here, may be cancelled as well.
        while self._later and self._later[0][2].over:
            heappop(self._later)
        return bool(_first(self.tasks) or _first(self._counterless) or self._later)

    def put_back(self, tasks: Sequence[Task]) -> None:
        """Put tasks before all others, in no row any more: they have waited for longest."""
        self.tasks.extendleft(reversed(tasks))
        for task in tasks:
            task.batch = None

    def put_off(self, task: Task, delay_s: float) -> None:
        """Add a task when some time has passed."""
        heappush(self._later, (monotonic() + delay_s, next(self._numbers), task))

    def wake(self) -> None:
        """Add the tasks whose time has come."""
        while self._later and self._later[0][0] <= monotonic():
            self.tasks.append(heappop(self._later)[2])

    def resume(self) -> bool:
        """Put ranges that waited for a counter before all others, as far as there are some now.

        Each with all of its turns: behind those of others they would wait for their own counter.
        Returns whether some still wait.
        """
        places = count()
        while (first := _first(self._counterless)) is not None:
            segment = first.segment
            assert segment is not None
            if not self._lend(segment):
                break
            waiting = self._counterless
            turns = [task for task in waiting if task.segment is segment]
            self._counterless = deque(task for task in waiting if task.segment is not segment)
            for task in turns:
                self.tasks.insert(next(places), task)
        return bool(self._counterless)

    def stepped(self, steps_s: float) -> None:
        """Take in how long the steps of a batch have taken, without its tasks."""
        if steps_s < self._steps_s:
            self._steps_s = steps_s
        else:
            self._steps_s += 0.1 * (steps_s - self._steps_s)
        self.batch_s = min(max(BATCH_S, BATCH_STEPS * self._steps_s), LONGEST_BATCH_S)

    def next_batch(self, share: int) -> Batch | None:
        """Take what goes into one row: at most `share` tasks, unless these are very short."""
        tasks = self.tasks
        while (first := _first(tasks)) is not None:
            segment = first.segment
            if segment is None or segment.items is not None:
                break
            if not self._counterless and self._lend(segment):  # those set aside come first
                break
            self._counterless.append(tasks.popleft())  # set aside: those behind it need not wait
        else:
            return None
        first = tasks.popleft()
        found = [first]
        try:
            if tasks:
                self._add_others(found, share)
            if len(found) == 1:
                return Batch(found, first.payload)
            parts = [tuple(t.extent) if t.extent else t.payload for t in found]
            return Batch(found, join(parts))
        except BaseException:
            tasks.extendleft(reversed(found))  # `put_back` would need a frame more of a full stack
            raise

    def _add_others(self, found: list[Task], share: int) -> None:
        """Add to the first task of a row others like it; all payloads lie apart, or none does.

        A large payload for which there is no room waits for it by itself.
        """
        tasks, (first,) = self.tasks, found
        apart = self._lies_apart(first)
        if not (apart or _is_small(first)):
            return
        most_nbytes = min(LARGE_BATCH_NBYTES if apart else BATCH_NBYTES, self._most_nbytes)
        left_nbytes = most_nbytes - _nbytes(first)
        for _ in range(min(self._most(first, share) - 1, len(tasks))):
            task = tasks[0]
            left_nbytes -= _nbytes(task)
            if left_nbytes < 0 or task.over:
                break
            alike = self._lies_apart(task) if apart else _is_small(task)
            if not (alike and task.goes_with(first)):
                break
            found.append(tasks.popleft())

    def _lies_apart(self, task: Task) -> bool:
        """Return whether a payload lies apart in the arena; put it there if it is large."""
        if task.extent is None and not _is_small(task):
            self._place(task)
        return task.extent is not None

    def _most(self, task: Task, share: int) -> int:
        """Return how many tasks may share a row with this one, itself included."""
        code = task.code
        if code is None or code.mean_s is None or not task.goes_with(task):  # it goes with none
            return 1
        mean_s = max(code.mean_s, 1e-6)
        fitting = self.batch_s / mean_s
        most = min(BATCH_TASKS, 1 + int(fitting), int(RISK / max(code.slow, 1e-6)))
        return max(1, min(most, max(share, int(ROW_PART * fitting))))


def _nbytes(task: Task) -> int:
    return len(task.payload) if task.extent is None else task.extent.nbytes


def _is_small(task: Task) -> bool:
    return task.extent is None and len(task.payload) <= LARGE_NBYTES


def _first(waiting: deque[Task]) -> Task | None:
    """Return the first task that is not over, and drop those before it."""
    while waiting and waiting[0].over:
        waiting.popleft()
    return waiting[0] if waiting else None
