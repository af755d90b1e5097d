"""The turns of workers in the items of a map, and whether there shall be more of them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import CancelledError
from typing import Any, Protocol

from ...driver.driver import Driver
from ...errors import of_item
from ...loss import MOST_CRASHES, OF_THE_WORKER, Loss, Why
from ...serializer import Kind, unpack_outcome
from ...tasks import Segment, Task
from ...turns import TURN_ITEMS, Turn
from ...whole import whole
from ..callbacks import Callbacks
from .cutter import Cutter
from .stretch import Stretch
from .supply import Supply

#: Turns for each worker that are in the table at the same time.
TURNS = 2


def _first_turns(items: int, workers: int) -> int:
    """Return how many turns in so many items are published at first."""
    return min(items, workers if items <= TURN_ITEMS * workers else TURNS * workers)


class Pool(Protocol):
    """What a map needs of its pool."""

    callbacks: Callbacks
    driver: Driver
    lock: threading.RLock

    def take_turn(self, future: TurnFuture, fn: Callable[..., Any], further: bool) -> Task | None:
        """Submit a turn in a range, whose outcome is told to `future`; None after shutdown."""

    def check_open(self) -> None:
        """Raise unless tasks can be submitted."""

    def ended(self) -> None:
        """Count a task that has ended."""


class TurnFuture:
    """Stands for the future of a turn, for what becomes of it is the whole map's matter."""

    def __init__(self, mapping: Turns, stretch: Stretch, segment: Segment) -> None:
        self._mapping = mapping
        self.stretch = stretch
        self.segment = segment
        self.over = False

    def ended(self, kind: int, outcome: Any) -> None:
        """Take in what became of the turn: a ``Turn``, or the encoding of an exception."""
        self._mapping.turn_over(self, kind, outcome)

    def resolve(self, value: None, error: BaseException) -> None:
        """Fail the whole map: there is nothing that the turn could report.

        Its pool is broken or shut down, or what it has reported cannot be stored.
        """
        self._mapping.fail(error)
        self._mapping.leave(self)

    def cancel(self) -> bool:
        """Cancel the whole map: who iterates gets CancelledError."""
        self._mapping.stop()
        return True


class Turns:
    """The turns of workers in the items of one map: the part of a ``MapCall`` that they see.

    Parameters
    ----------
    pool : Pool
    cutter : Cutter
        Says of what, and makes segments of the items.
    """

    def __init__(self, pool: Pool, cutter: Cutter) -> None:
        self._pool = pool
        self._cutter = cutter
        self._fn = cutter.fn
        self._operation = cutter.operation
        self._supply = Supply(self, cutter, self._share, pool.lock)
        self._stretches = self._supply.stretches
        self._failure: BaseException | None = None
        self._stopped = False
        self._abandoned = False  # nobody iterates any more
        self._begun = False  # a turn was submitted

    @property
    def started(self) -> bool:
        """Whether a worker may have some of it."""
        return any(stretch.tasks or stretch.parts for stretch in self._stretches)

    @property
    def over(self) -> bool:
        """Whether no more of it is shared out."""
        return self._stopped or self._failure is not None

    def fail(self, error: BaseException) -> None:
        """Have whoever iterates get an exception when the results so far are used up."""
        if self._failure is None:
            self._failure = error

    @whole
    def stop(self) -> None:
        """Let no more items be taken."""
        self._stopped = True
        for stretch in list(self._stretches):  # a copy: an iterating thread may drop some
            for segment in stretch.segments if stretch.turns else ():
                self._pool.driver.exhaust(segment)
            for future, task in list(stretch.tasks.items()):
                if self._pool.driver.cancel(task):
                    self.leave(future)
                    self._pool.ended()

    @whole
    def _abandon(self) -> None:
        """Let no more items be taken, and drop the results: we may lie in a cycle."""
        self._abandoned = True
        self.stop()
        for stretch in self._stretches:
            stretch.parts.clear()

    def _error(self, kind: int, content: Any) -> BaseException:
        _, error = unpack_outcome(kind, content, self._fn)
        assert error is not None
        return error

    @whole
    def _share(self, stretch: Stretch) -> None:
        """Publish the first turns."""
        futures = [
            TurnFuture(self, stretch, segment)
            for segment in stretch.segments
            for _ in range(_first_turns(segment.terms.total, self._cutter.workers))
        ]
        with self._pool.lock:
            stretch.turns += len(futures)  # all of them, before the first one can be over
            for future in futures:
                future.segment.turns += 1
        for future in futures:
            self._take_turn(future)

    def _take_turn(self, future: TurnFuture) -> None:
        task = self._pool.take_turn(future, self._fn, self._begun)
        if task is None:  # another thread has shut the pool down just now
            future.resolve(None, CancelledError("the pool was shut down"))
            return
        self._begun = True
        future.stretch.tasks[future] = task
        if future.over:  # another thread has ended the turn by now, before it could find the task
            future.stretch.tasks.pop(future, None)

    @whole
    def turn_over(self, future: TurnFuture, kind: int, outcome: Any) -> None:
        """Take in the report of a turn, and publish the next one."""
        try:
            if kind == Kind.TURN:
                self._take_in(future, outcome)
            elif kind == Kind.LOST:
                self._lose(future, Loss.decode(outcome))
            else:
                self.fail(self._error(kind, outcome))
        finally:
            self.leave(future)

    def _take_in(self, future: TurnFuture, turn: Turn) -> None:
        stretch = future.stretch
        for part in turn.parts:
            last = part is turn.parts[-1]
            stretch.parts[part.start] = part, turn.failed if last else None
        if self._abandoned:
            stretch.parts.clear()
        covered = turn.covered or [(part.start, part.total) for part in turn.parts]
        with self._pool.lock:  # against another turn of the stretch
            stretch.cover([(start, start + total) for start, total in covered])
        if turn.failed is not None:
            self._item_failed(stretch, turn)
        if turn.exhausted:
            self._supply.all_taken(stretch)
        else:
            self._go_on(future)

    def _go_on(self, future: TurnFuture) -> None:
        """Have another turn in the place of one that is over: there may be items left."""
        if not self.over:
            with self._pool.lock:
                future.stretch.turns += 1
                future.segment.turns += 1
            self._take_turn(TurnFuture(self, future.stretch, future.segment))

    def _item_failed(self, stretch: Stretch, turn: Turn) -> None:
        """Take in that an item has raised: what comes after it in a stretch is not missed."""
        if self._operation is not None:
            error = self._error(Kind.EXCEPTION, turn.failed)
            for start, total in turn.covered:
                error = of_item(stretch.place(start + total), error)
            self.fail(error)
            return
        # Whoever iterates gets no further than the first item that raises: nobody wants those after
        # it.  If they were taken for missing, they would be shared out again and again.
        last = turn.parts[-1]
        with self._pool.lock:
            stretch.cover([(last.start + last.total, stretch.items)])

    def _lose(self, future: TurnFuture, loss: Loss) -> None:
        """Take in that a worker has lost its turn; the items that are missing come again."""
        if loss.why not in OF_THE_WORKER:
            self.fail(loss.error(self._fn))
        elif loss.why is Why.DEAD:
            future.stretch.death = loss
        elif not future.stretch.taken:  # it may go on, and would find no turn
            self._go_on(future)

    @whole
    def leave(self, future: TurnFuture) -> None:
        """Count a turn that is over; with the last one all items are reported, or shared again."""
        stretch = future.stretch
        future.over = True
        stretch.tasks.pop(future, None)  # a range may be long, and a task holds its outcome
        with self._pool.lock:
            stretch.turns -= 1
            future.segment.turns -= 1
            last, done = not stretch.turns, not future.segment.turns
        if done:  # now: of many small segments, others may wait for its counter
            self._pool.driver.end(future.segment)
        if not last:
            return
        ended, stretch.segments = stretch.segments, []
        if not self.over:
            # Items that are missing: taken by a worker that is gone, or by one that was only taken
            # for gone, whose report is refused.
            content, ends = ended[0].content, bool(ended[0].terms.last)
            missing, death = stretch.missing(), stretch.death
            if death is not None and stretch.count_death(missing) >= MOST_CRASHES:
                error = death.error(self._fn)
                error.args = (f"{error}; so did two others, at the same items: no more tries",)
                self.fail(error)
            else:
                stretch.segments = [self._cutter.segment(content, gap, ends) for gap in missing]
        if stretch.segments:
            self._share(stretch)
        else:
            self._supply.all_taken(stretch)
