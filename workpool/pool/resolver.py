"""From what was collected to the futures that somebody waits for.

What outcomes bring for others is written down first: what they add to accumulators, what is written
into journals.  Then each becomes the result or the exception of its future, or its task is tried
again.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Container, Iterable
from contextlib import suppress
from typing import Any

from ..accumulator import Accumulators
from ..driver.collector import refusal
from ..driver.driver import Driver
from ..errors import BrokenPool, RemoteTraceback, TaskLost, UsageError
from ..interrupts import by_handler
from ..journal.ledger import Ledgers
from ..loss import MOST_CRASHES, OF_THE_WORKER, Loss, Why
from ..serializer import Kind, said, unpack_outcome
from ..tasks import Finished, Outcome, Tally, Task
from ..turns import Turn
from ..whole import need_stack, whole
from .mapping.turns import TurnFuture

# What every task needs: an attribute of an enumeration costs as much as a call.
_VALUE, _LOST, _BROKEN = int(Kind.VALUE), int(Kind.LOST), int(Kind.BROKEN)
_STORED = (_VALUE, int(Kind.TURN))
_CRASHES = (Why.CRASHED, Why.DEAD)

#: More frames of the stack than it takes to add contributions, or to take in a turn.
FRAMES = 40

_CUT_OFF = (
    "a signal's handler has raised while what the task adds to accumulators was being added: "
    "nobody knows whether it was"
)


class Resolver:
    """Resolves the futures of one pool.

    Parameters
    ----------
    driver : Driver
    accumulators : Accumulators
    ledgers : Ledgers
    lock : threading.RLock
        The pool's.
    pool_id : int
    ended : callable
        Counts so many tasks that have ended.
    attend : callable
        Wakes the attendant: there is something to attend to.

    Attributes
    ----------
    tally : Tally
        What each worker has done.
    """

    def __init__(
        self,
        driver: Driver,
        accumulators: Accumulators,
        ledgers: Ledgers,
        lock: threading.RLock,
        pool_id: int,
        ended: Callable[[int], None],
        attend: Callable[[], None],
    ) -> None:
        self._broken: BrokenPool | None = None
        self.tally = Tally()
        self._driver = driver
        self._accumulators = accumulators
        self._ledgers = ledgers
        self._lock = lock
        self._pool_id = pool_id
        self._ended = ended
        self._attend = attend
        self._uncounted: list[None] = []  # tasks that have ended
        self._interrupted: Task | None = None  # whose result was being restored

    @property
    def broken(self) -> BrokenPool | None:
        """Why nothing more is run; None if the pool works.

        A new error each time: one that was raised refers to the frames that it has passed, hence to
        the pool, which could never be dropped if we kept that error.
        """
        if self._broken is None:
            return None
        error = BrokenPool(*self._broken.args)
        error.__cause__ = self._broken.__cause__
        return error

    def write_down(self, several: Iterable[Finished]) -> None:
        """Add and write down what outcomes bring, before anybody can see them."""
        several = tuple(several)
        for finished in several:
            if finished.carried:
                self._add_carried(finished)
        self._ledgers.store(several)
        for finished in several:
            finished.written = True

    @whole
    def _add_carried(self, finished: Finished) -> None:
        """Add what is carried to the accumulators; a task fails whose part cannot be added."""
        with self._lock:  # another thread may have been quicker
            while finished.carried:
                tasks, parts = finished.carried[-1]
                error: UsageError | TaskLost | None
                if finished.adding:
                    error = TaskLost(_CUT_OFF)
                else:
                    need_stack(FRAMES)
                    finished.adding = True
                    try:
                        error = self._accumulators.add(parts)
                    except MemoryError:  # for a sum: what is left of the parts is not added yet
                        finished.adding = False
                        raise
                if error is not None:
                    self._refuse(finished, tasks, error)
                finished.carried.pop()
                finished.adding = False

    def _refuse(self, finished: Finished, tasks: Container[int], error: Exception) -> None:
        """Fail the tasks at some places of a row: what they have added cannot count."""
        outcomes: deque[Outcome] = deque()
        for outcome in finished.outcomes:
            task = outcome[0]
            assert task.batch is not None
            if task.batch.tasks.index(task) in tasks:
                outcome = task, int(Kind.EXCEPTION), refusal(task, error)
                task.retry = None  # another attempt might count twice
            outcomes.append(outcome)
        finished.outcomes = outcomes

    @whole
    def resolve(self, finished: Finished) -> None:
        """Give futures their outcomes; several threads may do so at once."""
        try:
            self._resolve_all(finished)
        finally:
            self._count()

    def _resolve_all(self, finished: Finished) -> None:
        while finished.outcomes:
            try:
                outcome = finished.outcomes.popleft()
            except IndexError:  # another thread was quicker
                return
            task, begun = outcome[0], False
            attempt = task.attempt
            try:
                if task.segment is not None:  # what comes of a turn is taken in once
                    need_stack(FRAMES)
                    begun = True
                self._resolve_one(finished, *outcome)
            except BaseException as error:
                # Once more if the stack was too full, or if a signal's handler has raised.
                again = isinstance(error, RecursionError) or by_handler(error)
                begun |= task.attempt != attempt  # it is on its way to be tried again
                if again and not begun and (task.segment is not None or not task.future.done()):
                    finished.outcomes.appendleft(outcome)
                raise

    def _resolve_one(
        self, finished: Finished, task: Task, kind: int, content: memoryview | bytes
    ) -> None:
        if finished.failures and task.noted is not None and kind in _STORED:
            failure = finished.failures.get(task.noted.ledger)
            if failure is not None:
                self._settle(task, None, failure)
                return
        if task.segment is not None and kind in (Kind.TURN, Kind.EXCEPTION, Kind.LOST):
            task.batch = None  # which refers to this task, and to others
            self._resolve_turn(task.future, kind, content, finished.owner)
            return
        value: Any = None
        interrupt = loss = None
        error: BaseException | None
        try:
            if kind == _LOST:
                loss = Loss.decode(content)
                error = loss.error(task.function)
            else:
                value, error = unpack_outcome(kind, content, task.function)
        except BaseException as caught:  # KeyboardInterrupt, or by a signal's handler
            again = by_handler(caught) and not isinstance(caught, KeyboardInterrupt)
            if again and task is not self._interrupted:
                self._interrupted = task
                raise  # it is restored once more
            value, error = None, caught  # it takes too long, and would do so again
            interrupt = caught
        if error is not None and kind != _VALUE:
            error = self._failed(task, kind, error, loss)
            if error is None:
                return
        self._settle(task, value, error)
        if interrupt is not None:
            raise interrupt

    def _settle(self, task: Task, value: Any, error: BaseException | None) -> None:
        """Give a future its outcome."""
        future = task.future
        try:
            future.resolve(value, error)
        except BaseException:
            if task.segment is not None or future.done():  # else it is resolved once more
                self._uncounted.append(None)
            raise
        future._task = task.batch = None  # cut the cycles: each refers back
        self._uncounted.append(None)

    def _count(self) -> None:
        """Count the tasks that have ended; where the stack is full, with the next ones."""
        count = 0
        while self._uncounted:
            try:
                self._uncounted.pop()
            except IndexError:  # another thread was quicker
                break
            count += 1
        if count:
            try:
                self._ended(count)
            except RecursionError:
                self._uncounted += [None] * count

    def _failed(
        self, task: Task, kind: int, error: BaseException, loss: Loss | None
    ) -> BaseException | None:
        """Return what the future of a failed task gets; None if the task is tried again."""
        if kind == _BROKEN:
            return self._break(error)
        # What the user raised is not asked: `isinstance` would have its ``__class__`` looked up.
        if loss is not None and isinstance(error, BrokenPool):
            self._broken = error
            return self.broken
        try:
            delay_s = self._delay_s(task, error, loss)
        except Exception as odd:  # the user's classes: the metaclass of one in `retry_on`
            with suppress(Exception):
                odd.__cause__ = error
            return odd
        if delay_s is None:
            return error
        need_stack(FRAMES)
        self._driver.retry(task, delay_s)
        self._attend()
        return None

    def _delay_s(self, task: Task, error: BaseException, loss: Loss | None) -> float | None:
        """Return after how long a task that has failed is tried again; None: not at all."""
        if isinstance(error.__cause__, RemoteTraceback):
            error.__cause__.attempts = task.attempt + 1
        task.crashes += loss is not None and loss.why in _CRASHES
        retry, delay_s = task.retry, 0.0
        if loss is None or loss.why not in OF_THE_WORKER:
            if retry is None or task.failures >= retry.retries or not isinstance(error, retry.on):
                return None
            task.failures += 1
            delay_s = retry.delay_s
        if task.crashes >= MOST_CRASHES:
            error.args = (f"{error}; it has brought down {task.crashes} processes: no more tries",)
            return None
        return delay_s

    def _resolve_turn(
        self, future: TurnFuture, kind: int, content: memoryview | bytes, owner: int
    ) -> None:
        try:
            turn = Turn.decode(content) if kind == Kind.TURN else None
            if turn is not None:  # count its items before anybody can see their results
                with self._lock:
                    self.tally.items[owner] += sum(part.total for part in turn.parts)
            future.ended(kind, turn or content)
        finally:
            self._uncounted.append(None)

    @whole
    def _break(self, error: BaseException) -> BrokenPool | None:
        """Fail what is queued, because the initializer has failed; return with what."""
        if self._broken is None:
            self._broken = BrokenPool(f"initializer failed: {said(error)}")
            self._broken.__cause__ = error
            for task in self._driver.tasks(self._pool_id):
                if self._driver.cancel(task):
                    self._settle(task, None, self.broken)
        return self.broken
