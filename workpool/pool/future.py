"""A ``concurrent.futures.Future`` whose waiting makes the progress that it waits for.

The standard library's future makes a ``Condition`` for itself, which costs more than a short task.
One condition for all futures of a pool would be cheap, but ``concurrent.futures.wait`` locks the
conditions of its futures in the order of the futures, so two threads that wait for futures of two
pools would deadlock.  Here each future has its own, made when somebody asks for it: ``wait``,
``as_completed``, a callback.  A future that nobody watches is resolved without one.  It is but the
lock of a condition: whoever waits for a future of ours makes progress, or has an event of his own.
"""

from __future__ import annotations

import sys
import threading
from _thread import RLock
from concurrent.futures import CancelledError, Future, _base
from concurrent.futures import TimeoutError as FutureTimeout
from typing import Any, NoReturn, Protocol, TypeVar, cast

from ..driver.driver import Driver
from ..errors import FUTURE, TaskLost, UsageError
from ..tasks import Task
from ..whole import held, uncut, whole
from .callbacks import Callbacks

T = TypeVar("T")

_CANCELLED = ("CANCELLED", "CANCELLED_AND_NOTIFIED")
_ENDED = (*_CANCELLED, "FINISHED")


class Pool(Protocol):
    """What a future needs of its pool."""

    callbacks: Callbacks
    driver: Driver
    lock: threading.RLock
    watched: set[PoolFuture[Any]]  # not ended, and their condition was asked for

    def watch(self) -> None:
        """See that progress is made: somebody waits without making any."""

    def ended(self) -> None:
        """Count a task that has ended."""

    def lose(self, future: PoolFuture[Any], error: TaskLost) -> None:
        """Give up a future of which nothing can come any more."""


class Condition(RLock):  # type: ignore[misc]  # final for type checkers alone
    """What the standard library takes for the condition of a future.

    To lock it is a step of C.  That of a ``threading.Condition`` is a function, in which a signal's
    handler may raise when the lock is taken: it would stay so, and whoever resolves the futures of
    the pool would wait for it for ever.
    """

    def notify_all(self) -> None:
        """Do nothing: nobody waits for it."""


class PoolFuture(Future[T]):
    """The future of one task of a pool."""

    # Few futures need the two lists: a pool may have millions of futures, and the garbage collector
    # would look at each list again and again.
    _waiters: Any = ()
    _done_callbacks: Any = ()
    _own_condition: Condition | None = None
    _resolved = False
    _state = "PENDING"
    _result: Any = None
    _exception: BaseException | None = None
    _task: Task | None = None

    def __init__(self, pool: Pool) -> None:
        # All else that Future.__init__ sets stands above, or is set when a condition is wanted.
        self._pool = pool

    @property
    @whole
    def _condition(self) -> Condition:  # type: ignore[override]
        """What the standard library locks before it looks at a future."""
        condition = self._own_condition
        if condition is None:
            with self._pool.lock:  # against `resolve`, and another thread that asks for it
                condition = self._own_condition
                if condition is None:
                    # Nobody looks at them without the condition.
                    self._waiters, self._done_callbacks = [], []
                    condition = self._own_condition = Condition()
                    if self._state not in _ENDED:
                        self._pool.watched.add(self)
            if self in self._pool.watched:
                self._pool.watch()
        return condition

    @whole
    def resolve(self, result: Any, exception: BaseException | None) -> None:
        """Give the future its outcome.  Called once, by the pool, as ``set_result`` is."""
        with self._pool.lock:
            # Whoever asks for the condition after this finds the outcome when he has it.
            if self._own_condition is None:
                self._result, self._exception = result, exception
                self._state = "FINISHED"
                return
            self._pool.watched.discard(self)
        self._resolved = True
        if exception is not None:
            super().set_exception(exception)
        else:
            super().set_result(result)

    def set_result(self, result: T) -> None:
        """Refuse: the standard library has it for executors, and the task would end it again."""
        self._refuse("set_result")

    def set_exception(self, exception: BaseException | None) -> None:
        """Refuse, as `set_result` does."""
        self._refuse("set_exception")

    def set_running_or_notify_cancel(self) -> bool:
        """Refuse, as `set_result` does."""
        self._refuse("set_running_or_notify_cancel")

    def _refuse(self, what: str) -> NoReturn:
        raise UsageError(
            f"{what} of a future of a pool, whose task alone ends it: make a Future of your own"
        )

    def _invoke_callbacks(self) -> None:
        # Callbacks of a future that is resolved are the attendant's: the thread that resolves it
        # waits for some future, and may have a lock that a callback wants.
        if self._state == "FINISHED" and self._done_callbacks:  # else `cancel` calls them
            self._pool.callbacks.call(self._call_back)

    def _call_back(self) -> None:
        try:
            super()._invoke_callbacks()  # type: ignore[misc]
        finally:
            self._done_callbacks = ()  # nobody adds to those of a future that has ended

    def __repr__(self) -> str:
        """Say in which state the future is, without its condition: to ask for that is to watch it.

        RMA cost: that of `running`.
        """
        running = self.running()
        state = self._state  # once: the task may end meanwhile
        if state == "FINISHED":
            error = self._exception
            what = "returned" if error is None else "raised"
            shown = f"finished {what} {type(self._result if error is None else error).__name__}"
        elif state in _CANCELLED:
            shown = "cancelled"
        else:
            shown = "running" if running else "pending"
        return f"<{type(self).__name__} at {id(self):#x} state={shown}>"

    def __reduce__(self) -> NoReturn:
        raise UsageError(FUTURE)

    def done(self) -> bool:
        """Return whether the task has ended or was cancelled."""
        return self._state in _ENDED

    def cancelled(self) -> bool:
        """Return whether the task was cancelled."""
        return self._state in _CANCELLED

    def running(self) -> bool:
        """Return whether a worker has claimed the task, and it is not done.

        A worker claims several short tasks at once: the last of them count as running while they
        wait for those before, and no more once they are given back because one of those lasts.

        Notes
        -----
        RMA cost: 1 load.
        """
        task = self._task
        if self._state in _ENDED or task is None:
            return False
        if held(sys._getframe(1)):
            return task.batch is not None
        return self._pool.driver.running(task)

    def result(self, timeout: float | None = None) -> T:
        """Return what the task returned, or raise what it raised; see ``Future.result``.

        Parameters
        ----------
        timeout : float, optional
            Seconds to wait; for ever by default.

        Raises
        ------
        CancelledError
            If the task was cancelled.
        TimeoutError
            If it has not ended in time; it goes on.
        Exception
            What the task has raised; its ``__cause__`` is the remote traceback.  Or, of those in
            `workpool.errors`, why there is no outcome.
        TaskLost
            If a step of the pool was cut off, so that nothing can come of the task any more.
        RuntimeError
            In a finalizer or a signal's handler that has come in the middle of a step of the pool,
            and in a task.

        Notes
        -----
        Whoever waits makes the progress of the whole pool: RMA cost as for ``Progress.progress``,
        again and again, and nothing for a future that is done.  Short callbacks of the future are
        over when this returns.
        """
        self._wait(timeout)
        if self._exception is None:
            result: T = self._result
            return result
        try:
            raise self._exception
        finally:
            del self  # the traceback refers to this frame: break the cycle

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Return what the task raised, None if it returned; see ``Future.exception``.

        Parameters, errors and cost are those of `result`.
        """
        self._wait(timeout)
        return self._exception

    @uncut
    def cancel(self) -> bool:
        """Withdraw the task unless a worker has claimed it; see ``Future.cancel``.

        Returns
        -------
        bool
            Whether it is cancelled.

        Notes
        -----
        RMA cost: that of ``Driver.cancel``: mostly 1 compare_and_swap.
        """
        if held(sys._getframe(1)):
            self._pool.callbacks.call(self.cancel)
            return False
        if not self._withdraw():
            return self.cancelled()
        # Here, where all is done: a callback may wait for a shutdown, or for another task.
        super()._invoke_callbacks()  # type: ignore[misc]
        return True

    @whole
    def _withdraw(self) -> bool:
        task = self._task
        if self._state in _ENDED or task is None or not self._pool.driver.cancel(task):
            return False
        self._task = None
        super().cancel()
        super().set_running_or_notify_cancel()
        with self._pool.lock:
            self._pool.watched.discard(self)
        self._pool.ended()
        return True

    def _wait(self, timeout: float | None) -> None:
        """Make progress until the task has ended; raise what the standard library raises."""
        if self._state not in _ENDED:
            try:
                self._pool.driver.wait(self.done, timeout)
            except TaskLost as error:
                self._pool.lose(self, error)
                if self._state not in _ENDED:  # another thread is just giving it that error
                    raise
        if self._state in _CANCELLED:
            raise CancelledError
        if self._state not in _ENDED:
            raise FutureTimeout
        if self._done_callbacks:
            self._pool.callbacks.give_time(lambda: not self._done_callbacks, timeout)


def _name_attributes() -> None:
    """Make a future that has had all the attributes that most of them get.

    CPython keeps the attributes of an instance without a dict of its own if it has met their names
    in one of the first thirty instances of the class; of futures, thousands may be made before one
    gets a result.
    """
    future: PoolFuture[None] = PoolFuture(cast("Any", None))
    future._task = future._result = future._exception = None
    future._state = "PENDING"


_name_attributes()

# Where the standard library locks several futures.  Whoever leaves these in the middle leaves locks
# behind, for which the thread that resolves the futures would wait for ever.
if _locks := getattr(_base, "_AcquireFutures", None):
    uncut(_locks.__enter__)
    uncut(_locks.__exit__)
