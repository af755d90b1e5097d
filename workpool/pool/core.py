"""What is behind a pool: its tasks on their way to the driver, its counts, its end."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from concurrent.futures import InvalidStateError
from contextlib import suppress
from functools import partial
from typing import Any

from ..accumulator import Accumulator
from ..context import CALL, RANGE, Context, Limits, TaskKind
from ..contributions import Spec
from ..errors import SHUT, SerializationError, TaskKilled, TaskLost, UsageError
from ..job import runtime
from ..job.control import Choice
from ..journal.ledger import Ledger, Ledgers, Noted, name_of
from ..serializer import Code, Packed, compact, task_name, without_partial
from ..system.spares import spares
from ..tasks import PoolContext, Retry, Task
from ..whole import held, whole
from .accumulators import PoolAccumulators
from .callbacks import Callbacks
from .checks import Checks
from .contexts import Contexts
from .future import PoolFuture
from .mapping.turns import TurnFuture
from .resolver import Resolver
from .stats import WorkerStats

#: For how long `kill` waits at a time until an attempt that has ended is an outcome, or is followed
#: by another attempt.
ENDED_S = 1e-3

_MAIN = threading.main_thread().ident


class Core:
    """One pool, seen by its views, its futures and its maps.

    Parameters
    ----------
    job : runtime.Runtime
    choice : Choice
        Of a table; it is opened if it is new.
    setup : bytes
        Of ``encode_setup``.
    max_pending : int or None
    ledgers : Ledgers
        Its journals, closed with it.

    Attributes
    ----------
    callbacks : Callbacks
    checks : Checks
    codes : CodeCache
        Of the job.
    contexts : Contexts
    number : callable
        Returns a number that nothing else in the job has.
    pool_id : int
        Greater than those of all pools before.
    watched : set of PoolFuture
        That have not ended, and of which somebody has the condition.
    """

    def __init__(
        self,
        job: runtime.Runtime,
        choice: Choice,
        setup: bytes,
        max_pending: int | None,
        ledgers: Ledgers,
    ) -> None:
        self.choice = choice
        self.lock = threading.RLock()  # reentrant for finalizers alone: see ``whole.held``
        self.watched: set[PoolFuture[Any]] = set()
        self.ledgers = ledgers
        self.codes = job.codes
        self.callbacks = Callbacks(job.attendant)
        self.checks = Checks(job.group.is_own_rank, job.apart)
        self.number: Callable[[], int] = job.numbers.__next__
        self._job = job
        self._setup = setup
        self._max_pending = max_pending
        self._pending = 0  # tasks that have not ended
        self._lost = 0  # those of them that were lost when a signal's handler raised
        self._shut = False
        self._detaching = threading.RLock()  # reentrant as the other
        try:
            with job.lock:
                # With the lock, so that ids grow along `job.pools`: see ``Context.closed``.
                self.pool_id = self.number()
                self.driver = job.table(choice)
                self._accumulators = PoolAccumulators(job, self.driver, self.pool_id)
                self._resolver = Resolver(
                    self.driver,
                    job.accumulators,
                    ledgers,
                    self.lock,
                    self.pool_id,
                    self.ended,
                    job.attendant.wake,
                )
                self.contexts = Contexts(self._new_context, self.driver.drop)
                job.pools.append(self)
        except BaseException:
            ledgers.close()
            raise

    def __str__(self) -> str:
        if self._resolver.broken is not None:
            return "broken"
        if self._shut:
            return "shut down"
        return f"{self.living} workers, {self._pending} tasks pending"

    @property
    def workers(self) -> int:
        """How many workers the pool has, those that have died included."""
        return self.choice.workers

    @property
    def living(self) -> int:
        """How many workers serve the pool."""
        return self._job.living(self.choice.workers)

    @property
    def open(self) -> bool:
        """Whether tasks can be submitted."""
        return not self._shut and self._resolver.broken is None

    def check_open(self) -> None:
        """Raise unless tasks can be submitted."""
        if (broken := self._resolver.broken) is not None:
            raise broken
        if self._shut:
            raise RuntimeError(SHUT)

    def check_submits(self) -> None:
        """Raise unless this thread can submit tasks now."""
        self.check_open()
        # Frames show whether a thread may hold any other lock that a submit takes.  The main thread
        # can hold none but a journal's, and to look through its frames would cost a task 1 us.
        look = self.ledgers.used or threading.get_ident() != _MAIN
        if self.driver.entered or (look and held(sys._getframe(1))):
            raise RuntimeError(
                "neither a finalizer nor a signal's handler can submit in the middle of a step of "
                "the pool: have it set a flag"
            )

    def _new_context(self, limits: Limits | None) -> PoolContext:
        others = tuple(pool.pool_id for pool in tuple(self._job.pools))
        context = Context(self.pool_id, limits, self._setup, others)
        resolver = self._resolver
        return PoolContext(
            self.number(), context, resolver.resolve, resolver.write_down, resolver.tally
        )

    # --- tasks --------------------------------------------------------------------------------

    def submits_at_once(self, fn: Callable[..., Any]) -> bool:
        """Return whether many calls of a function cost no more to submit than their arguments."""
        return self._max_pending is None and self.codes.at_once(fn) is not None

    def send(
        self,
        fn: Callable[..., Any],
        args: Any,
        kwargs: dict[str, Any],
        context: PoolContext,
        retry: Retry | None,
        ledger: Ledger | None,
        *,
        kind: TaskKind = CALL,
        lent: bool = False,
    ) -> PoolFuture[Any]:
        """Submit one task, unless a journal has its result.

        `lent`: large arguments may be read where they are, until there is room for them.
        """
        self.check_submits()
        future: PoolFuture[Any] = PoolFuture(self)
        noted, wrapped = None, fn if type(fn) is partial else None
        try:
            own = None if wrapped else self.codes.lookup(fn)
            if ledger is not None:
                key = ledger.keys.of_call(fn, own, args, kwargs, kind)
                outcome = ledger.result(key, fn)
                if outcome is not None:
                    future.resolve(*outcome)
                    return future
                noted = Noted(ledger, name_of(fn), key)
            if wrapped and kind is CALL:
                fn, args, kwargs = without_partial(wrapped, args, kwargs)
                own = self.codes.lookup(fn)
            payload, code = self.codes.pack(fn, args, kwargs, own)
            if own is None or wrapped:
                self.checks.look(wrapped or fn)
                self.checks.heavy.note(wrapped or fn, len(payload))
            if isinstance(payload, Packed):
                payload.lent = lent
                if retry is not None:
                    payload = payload.keep()  # as the arguments are now, for every attempt
            else:
                payload = compact(payload)
        except SerializationError as error:
            told = error if kind is CALL else self.codes.blame(fn, args, error)
            future.resolve(None, told.with_traceback(None))  # the message says all
            return future
        task = Task(self.number(), kind, fn, context, payload, future, retry, noted)
        future._task = task
        while not self._submit(task, code):
            self._wait_for_room()
        if noted is not None and self.ledgers.due:
            self.driver.progress()  # a program that only submits would never have it written
        return future

    @property
    def _full(self) -> bool:
        """Whether as many tasks are pending as may be."""
        return self._max_pending is not None and self._pending - self._lost >= self._max_pending

    def _wait_for_room(self) -> None:
        try:
            self.driver.wait(lambda: not (self._full and self.open))
        except TaskLost:  # all that are pending are lost
            self._lost = self._pending
        self.check_open()

    def take_turn(self, future: TurnFuture, fn: Callable[..., Any], further: bool) -> Task | None:
        """Submit a turn in a range, whose outcome is told to `future`; None after shutdown.

        `further`: it goes on with a map that was begun before the shutdown.  It is taken as long as
        some task is pending: until then the pool keeps its table.
        """
        segment, code, plan = future.segment, future.stretch.code, future.stretch.plan
        noted = None if plan is None else plan.noted
        context = self.contexts.of(None)
        task = Task(self.number(), RANGE, fn, context, b"", future, None, noted, segment=segment)
        return task if self._submit(task, code, further) else None

    @whole
    def _submit(self, task: Task, code: Code | None, further: bool = False) -> bool:
        """Give a task to the driver, unless the pool is shut down, or full."""
        with self.lock:
            if self._shut and not (further and self._pending):
                return False
            if task.segment is None and self._full:
                return False
            self._pending += 1
        try:
            self.driver.submit(task, code)
            self._job.attendant.wake()
        except BaseException:  # no memory, no thread: the caller gets no future of this task
            if self.driver.cancel(task) or self.driver.kill(task):
                self.ended()
            raise
        return True

    def kill(self, future: PoolFuture[Any]) -> bool:
        """End the task of a future; see ``View.kill``."""
        task = future._task
        if future.cancel():
            return True
        if task is None or future.done():
            return False
        name = task_name(task.function)
        if not task.context.isolated:
            raise UsageError(
                f"kill of task {name}, which runs in the rank itself: submit it by "
                "with_options(isolate=True), then it runs in a process that can be killed"
            )
        error = TaskKilled(f"task {name} was killed while it ran")
        while True:
            self.driver.single_out(task)
            if future.cancel() or self._take_back(task, error):
                return True
            # This attempt has just ended; perhaps another follows.
            if self.driver.wait(future.done, ENDED_S):
                return False

    @whole
    def _take_back(self, task: Task, error: TaskKilled) -> bool:
        """End a task that runs; its future has `error`.  False if it has ended."""
        if not self.driver.kill(task):
            return False
        task.future._task = None
        task.future.resolve(None, error)
        self.ended()
        return True

    # --- waiting ------------------------------------------------------------------------------

    def watch(self) -> None:
        """See that progress is made: somebody waits for a future without making any."""
        self._job.attendant.ring()

    def give_up_lost(self, interrupted: Callable[[], bool]) -> None:
        """Fail the futures that somebody watches if nothing can come of them any more."""
        if not self.watched:
            return
        try:
            self.driver.wait(lambda: not self.watched or interrupted())
        except TaskLost as error:
            for future in list(self.watched):
                self.lose(future, error)

    def lose(self, future: PoolFuture[Any], error: TaskLost) -> None:
        """Fail a future of which nothing can come any more; once, whoever waits for it."""
        with self.lock:
            ended, future._resolved = future._resolved or future.done(), True
        if not ended:
            with suppress(InvalidStateError):  # cancelled just now, and counted
                future.resolve(None, error)
                self.ended()
                self._lost = max(0, self._lost - 1)

    @whole
    def ended(self, tasks: int = 1) -> None:
        """Count tasks that have ended, whatever became of them."""
        with self.lock:
            self._pending -= tasks
            last = self._shut and not self._pending
        if last:
            self._detach()

    # --- numbers ------------------------------------------------------------------------------

    @whole
    def place(self, spec: Spec) -> Accumulator:
        """Return numbers in the repository's window; see ``View.accumulator``."""
        with self.lock:  # a shutdown by another thread comes before, or finds them
            self.check_open()
            return self._accumulators.open(spec)

    def stats(self) -> list[WorkerStats]:
        """Return what each worker has done so far, by rank."""
        self.driver.count()
        found, tally = [], self._resolver.tally
        for member in range(1, self.choice.workers + 1):
            rank, evicted = self._job.rank_of(member), self.driver.recovery.evicted[member]
            tasks = tally.tasks[member] + tally.items[member]
            found.append(WorkerStats(rank, tasks, tally.elapsed_ns[member] * 1e-9, evicted))
        return found

    # --- the end ------------------------------------------------------------------------------

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Accept no more tasks; see ``Executor.shutdown``."""
        if self._job.serves or held(sys._getframe(1)):
            self.callbacks.call(lambda: self.shutdown(False, cancel_futures=cancel_futures))
            return
        with self.lock:
            self._shut = True
            last = not self._pending
        if cancel_futures:
            for task in self.driver.tasks(self.pool_id):
                task.future.cancel()
        if wait:
            with suppress(TaskLost):
                self.driver.wait(lambda: self._pending == 0 or self.driver.drained)
            self.callbacks.join()
        if wait or last:
            self._detach()

    def disown(self) -> None:
        """Let go of nothing: this process was forked from the driver's, which has the table."""
        # New ones, for another thread may have held the old ones, and does not exist here.
        self.lock = self.contexts.lock = threading.RLock()
        self._detach = lambda: None  # type: ignore[method-assign]
        self.ledgers.disown()

    @whole
    def _detach(self) -> None:
        """Let go of the table: nothing of this pool is in it any more."""
        with self._detaching:  # so that a second caller returns only when all of it is done
            try:
                self.contexts.drop()
                self.ledgers.close()
                # This may raise for want of memory for their last values.  Tasks that are pending
                # by now were lost, but what they add may still be on its way: keep the room.
                self._accumulators.close(settled=not self._pending)
            finally:
                with self.lock:  # last: as long as we are in the list, nobody closes the table
                    if self in self._job.pools:
                        self._job.pools.remove(self)
                    if not self._job.pools:
                        spares.clear()
