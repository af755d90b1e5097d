"""One call of ``map``: its segments, the turns in them, and its results."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError
from concurrent.futures import TimeoutError as FutureTimeout
from functools import partial
from typing import Any, Protocol, TypeVar

from ...clock import monotonic
from ...driver.driver import Driver
from ...errors import of_item
from ...forgetting import forgetting
from ...loss import MOST_CRASHES, OF_THE_WORKER, Loss, Why
from ...reduction import Reduction
from ...serializer import Kind, unpack_outcome
from ...tasks import Segment, Task
from ...turns import TURN_ITEMS, Part, Turn
from ...whole import whole
from ..callbacks import Callbacks
from .cutter import Cutter, Uncut
from .stretch import Stretch
from .supply import Supply

#: Turns for each worker that are in the table at the same time.
TURNS = 2

T = TypeVar("T")


def turns(items: int, workers: int) -> int:
    """Return how many turns of so many items are published at first."""
    return min(items, workers if items <= TURN_ITEMS * workers else TURNS * workers)


class Pool(Protocol):
    """What a map needs of its pool."""

    callbacks: Callbacks
    driver: Driver
    lock: threading.RLock

    def take_turn(self, seat: Seat, fn: Callable[..., Any], further: bool) -> Task | None:
        """Submit a turn in a range, whose outcome is told to `seat`; None after shutdown."""

    def check_open(self) -> None:
        """Raise unless tasks can be submitted."""

    def ended(self) -> None:
        """Count a task that has ended."""


class Seat:
    """Stands for the future of a turn."""

    def __init__(self, mapping: Mapping, stretch: Stretch, segment: Segment) -> None:
        self._mapping = mapping
        self.stretch = stretch
        self.segment = segment
        self.left = False  # it is over

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
        self._mapping.fail(CancelledError())
        self._mapping.stop()
        return True


class Mapping:
    """One call of ``map``.

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

    def begin(self, items: Sequence[Any], large: bool = False) -> bool:
        """Take on the first items.

        Large ones are better sent one by one: then this returns False, or with `large` takes them
        all the same.

        Raises
        ------
        Exception
            Whatever pickle raises.
        """
        uncut = self._cutter.begin(items)
        found = self._cutter.cut(uncut, large)
        if found is None:
            return False
        self._take_on(uncut, found)
        return True

    def add(self, items: Sequence[Any]) -> None:
        """Take on more items; if the pool refuses them, who iterates gets the others first."""
        try:
            self._pool.check_open()
        except Exception as error:
            self._supply.refuse(error)
        else:
            self._take_on(self._cutter.begin(items, first=False), [])

    def _take_on(self, uncut: Uncut, found: list[Stretch]) -> None:
        try:
            self._supply.add(uncut, found)
        except BaseException:  # no memory; or what a signal's handler has raised
            self.stop()  # what is shared out by now would be run for nobody
            raise

    def results(
        self, more: Callable[[], object], deadline: float | None, unordered: bool
    ) -> Iterator[Any]:
        """Yield the results: in order, or as they come.

        Parameters
        ----------
        more : callable
            Called whenever the last of some items has been consumed: to add others.
        deadline : float, optional
            By the monotonic clock.
        unordered : bool
        """
        found = self._as_they_come(more, deadline) if unordered else self._in_order(more, deadline)
        try:
            for values in found:
                yield from forgetting(values)
            if self._supply.refusal is not None:
                raise self._supply.refusal
        finally:
            self._pool.callbacks.outside(self._abandon)

    def _in_order(self, more: Callable[[], object], deadline: float | None) -> Iterator[list[Any]]:
        while self._left(deadline):
            stretch = self._stretches[0]
            computed = self._computed(stretch, deadline)
            yield from computed if stretch.plan is None else stretch.plan.merged(computed)
            if self._supply.use_up(stretch):
                more()

    def _computed(self, stretch: Stretch, deadline: float | None) -> Iterator[list[Any]]:
        """Yield the results of a stretch that a journal has not, in order, in lists."""
        while stretch.left:
            at = stretch.items - stretch.left
            self._wait_for(partial(stretch.parts.__contains__, at), deadline)
            yield from self._use(stretch, at)

    def _as_they_come(
        self, more: Callable[[], object], deadline: float | None
    ) -> Iterator[list[Any]]:
        while self._left(deadline):
            for stretch in list(self._stretches):
                if stretch.fresh and stretch.plan is not None:
                    yield from stretch.plan.stored()
                stretch.fresh = False
                for at in list(stretch.parts):
                    yield from self._use(stretch, at)
                if not stretch.left and self._supply.use_up(stretch):
                    more()
            self._wait_for(self._came, deadline)

    def _came(self) -> bool:
        """Return whether there are results to be used, or will be none."""
        if not self._stretches:
            return self._supply.ended
        return any(stretch.has_some for stretch in self._stretches)

    def _use(self, stretch: Stretch, at: int) -> Iterator[list[Any]]:
        """Yield the results of one part, in a list; raise what the item after them has raised."""
        part, failed = stretch.parts.pop(at)
        stretch.left -= part.total
        if part.total:
            yield self._values(part)
        if failed is not None:
            raise of_item(stretch.place(at + part.total), self._error(Kind.EXCEPTION, failed))

    def fold(self, deadline: float | None) -> list[Any]:
        """Return a list of the one value that all results are folded to, or of none."""
        assert self._operation is not None
        values: list[Any] = []
        try:
            for found in self._as_they_come(lambda: None, deadline):
                values = Reduction(None, self._operation).fold([*values, *found])
        finally:
            self._pool.callbacks.outside(self.stop)
        return values

    def _left(self, deadline: float | None) -> bool:
        """Return whether there is a stretch to be used up, waiting until one is cut."""
        self._wait_for(lambda: bool(self._stretches or self._supply.ended), deadline)
        return bool(self._stretches)

    def _wait_for(self, came: Callable[[], bool], deadline: float | None) -> None:
        if not came():
            left = None if deadline is None else deadline - monotonic()
            if not self._pool.driver.wait(lambda: came() or self.over, left):
                raise FutureTimeout
        if not came():
            try:
                raise self._failure or CancelledError
            finally:  # its traceback refers to the program's frames, and by them to the pool
                self._failure = None
                self._stopped = True

    def _values(self, part: Part) -> list[Any]:
        values: list[Any]
        values, error = unpack_outcome(Kind.VALUE, part.encoded, self._fn)
        if error is not None:
            raise error
        return values

    def _error(self, kind: int, content: Any) -> BaseException:
        _, error = unpack_outcome(kind, content, self._fn)
        assert error is not None
        return error

    @property
    def refused(self) -> bool:
        """Whether nothing comes after the items that are here."""
        return self._supply.refusal is not None

    @property
    def started(self) -> bool:
        """Whether a worker may have some of it."""
        return any(stretch.tasks or stretch.parts for stretch in self._stretches)

    @property
    def over(self) -> bool:
        """Whether no more of it is shared out."""
        return self._stopped or self._failure is not None

    @whole
    def stop(self) -> None:
        """Let no more items be taken."""
        self._stopped = True
        for stretch in list(self._stretches):  # a copy: an iterating thread may drop some
            for segment in stretch.segments if stretch.seats else ():
                self._pool.driver.exhaust(segment)
            for seat, task in list(stretch.tasks.items()):
                if self._pool.driver.cancel(task):
                    self.leave(seat)
                    self._pool.ended()

    @whole
    def _abandon(self) -> None:
        """Let no more items be taken, and drop the results: we may lie in a cycle."""
        self._abandoned = True
        self.stop()
        for stretch in self._stretches:
            stretch.parts.clear()

    def fail(self, error: BaseException) -> None:
        """Have whoever iterates get an exception when the results so far are used up."""
        if self._failure is None:
            self._failure = error

    # --- turns ----------------------------------------------------------------------------------

    @whole
    def _share(self, stretch: Stretch) -> None:
        """Publish the first turns."""
        seats = [
            Seat(self, stretch, segment)
            for segment in stretch.segments
            for _ in range(turns(segment.terms.total, self._cutter.workers))
        ]
        with self._pool.lock:
            stretch.seats += len(seats)  # all of them, before the first one can be over
        for seat in seats:
            self._take_turn(seat)

    def _take_turn(self, seat: Seat) -> None:
        task = self._pool.take_turn(seat, self._fn, self._begun)
        if task is None:  # another thread has shut the pool down just now
            seat.resolve(None, CancelledError("the pool was shut down"))
            return
        self._begun = True
        seat.stretch.tasks[seat] = task
        if seat.left:  # another thread has ended the turn by now, before it could find the task
            seat.stretch.tasks.pop(seat, None)

    @whole
    def turn_over(self, seat: Seat, kind: int, outcome: Any) -> None:
        """Take in the report of a turn, and publish the next one."""
        try:
            if kind == Kind.TURN:
                self._take_in(seat, outcome)
            elif kind == Kind.LOST:
                self._lose(seat, Loss.decode(outcome))
            else:
                self.fail(self._error(kind, outcome))
        finally:
            self.leave(seat)

    def _take_in(self, seat: Seat, turn: Turn) -> None:
        stretch = seat.stretch
        failed = turn.failed if self._operation is None else None
        for part in turn.parts:
            last = part is turn.parts[-1]
            stretch.parts[part.start] = part, failed if last else None
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
            self._go_on(seat)

    def _go_on(self, seat: Seat) -> None:
        """Have another turn in the place of one that is over: there may be items left."""
        if not self.over:
            with self._pool.lock:
                seat.stretch.seats += 1
            self._take_turn(Seat(self, seat.stretch, seat.segment))

    def _item_failed(self, stretch: Stretch, turn: Turn) -> None:
        """Take in that an item has raised: what comes after it in a stretch is not missed."""
        if self._operation is not None:
            self.fail(self._error(Kind.EXCEPTION, turn.failed))
            return
        # Whoever iterates gets no further than the first item that raises: nobody wants those after
        # it.  If they were taken for missing, they would be shared out again and again.
        last = turn.parts[-1]
        with self._pool.lock:
            stretch.cover([(last.start + last.total, stretch.items)])

    def _lose(self, seat: Seat, loss: Loss) -> None:
        """Take in that a worker has lost its turn; the items that are missing come again."""
        if loss.why not in OF_THE_WORKER:
            self.fail(loss.error(self._fn))
        elif loss.why is Why.DEAD:
            seat.stretch.death = loss
        elif not seat.stretch.taken:  # it may go on, and would find no turn
            self._go_on(seat)

    @whole
    def leave(self, seat: Seat) -> None:
        """Count a turn that is over; with the last one all items are reported, or shared again."""
        stretch = seat.stretch
        seat.left = True
        stretch.tasks.pop(seat, None)  # a range may be long, and a task holds its outcome
        with self._pool.lock:
            stretch.seats -= 1
            last = not stretch.seats
        if not last:
            return
        stretch.tasks.clear()
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
        for segment in ended:
            self._pool.driver.end(segment)
        if stretch.segments:
            self._share(stretch)
        else:
            self._supply.all_taken(stretch)
