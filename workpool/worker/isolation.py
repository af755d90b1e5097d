"""The worker's side of a child process that runs its tasks: as ``runner``, but they may be killed.

One child belongs to each worker and is kept between tasks.  A task that crashes, leaves or outlasts
its limit costs that child and nothing else: the worker's own process stays as it was, and starts
another child for the next task.

Two processes that wait for each other after every task would spend most of their time on waking up.
So the tasks of a stride are sent together, and the child goes from one to the next; its answers say
how far it has come, even if it crashes.  What it has not begun can be taken back: the worker stops
it for a moment, looks at the number of the request that it has begun, and writes down, where both
can see it, which ones it shall refuse::

    child                                worker, from the thread of its heart
    begun += 1                           SIGSTOP, and wait until it stands
    refused if from <= begun < to        begun < first: from, to = first, last + 1
    else run it                          SIGCONT
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection
from contextlib import suppress
from pickle import PickleBuffer
from threading import Lock
from typing import Any, NamedTuple

from ..caches import LruCache
from ..clock import Stopwatch
from ..context import Context, Limits
from ..errors import SerializationError
from ..loss import Loss, Stage, Why, unstarted
from ..serializer import Encoded, Kind, join_apart, segments, split
from ..system import channel
from ..system.inherited import adopt
from ..system.process import ChildProcess
from . import child, runner
from .runner import Evicted

#: Functions whose code is kept for the next child, and their bytes.
CODES = 256
CODES_NBYTES = 64 << 20

#: Contexts that are remembered; others are fetched again.
CONTEXTS = 32

#: How long a child may take to start, and how often that is tried.
START_S = 60.0
STARTS = 3

#: How long an initializer may take, however soon the task must end, and so long what is imported as
#: its function and arguments are restored.  Not for ever: either may hang as well.
PREPARE_S = 20.0

#: How often a worker looks whether its task was taken back: soon, then less and less often.
FIRST_LOOK_S = 5e-3
LONGEST_LOOK_S = 50e-3

#: Files whose lines in a stack are not the task's.
_OURS = (channel.__file__, child.__file__, runner.__file__, 'File "<string>"')


class Codes(LruCache[bytes]):
    """The code of functions, as the child needs it."""

    def add(self, code_id: int, data: bytes) -> None:
        """Keep the code of a function."""
        self.keep(code_id, data, len(data))


class IsolatedPool(NamedTuple):
    """What a worker keeps for the tasks of a pool that have the same limits."""

    failure: None  # of the initializer, which the child runs
    callables: Codes
    pool_id: int
    limits: Limits
    content: bytes  # of the context


class _NoChild(Exception):
    """There is no child, and none can be started: the message says why."""


class IsolatedRunner:
    """Has the functions of tasks called by a child process; see ``runner.AnyRunner``.

    Parameters
    ----------
    own : Runner
        The worker's own, which gets what tasks add to accumulators.

    Attributes
    ----------
    holds : callable
        Asked while a task runs: whether the attempt is still ours.
    """

    short_ns = 300_000  # messages included

    def __init__(self, own: runner.Runner) -> None:
        self.contributions = own.contributions
        self.failure = own.failure
        self.holds: Callable[[], bool] = lambda: True
        self._rank = own.rank
        self._host = own.host
        self._codes = Codes(CODES, CODES_NBYTES)
        self._entered: LruCache[IsolatedPool] = LruCache(CONTEXTS)  # by the number of a context
        self._child: ChildProcess | None = None
        self._stage = Stage.TASK  # what the child is at
        self._tasks = 0  # requests that the child was sent
        self._lock = Lock()  # on the child, and on what it was sent ahead
        # Payloads of the tasks that it was sent ahead, and that `call` was not asked for yet.
        self._ahead: deque[bytes | memoryview] = deque()
        # Pool and code of the last task that has returned, unless it has asked for others since.
        self._knows: tuple[int, int] | None = None

    def find(self, context_id: int, /) -> IsolatedPool | None:
        """Return what there is to know of a pool; None if it is not known, or not any more."""
        pool = self._entered.use(context_id)
        if pool is not None:
            self.contributions.pool = pool.pool_id
        return pool

    def enter(self, context_id: int, content: bytes) -> IsolatedPool:
        """Take in what there is to know of a pool."""
        context = Context.decode(content)
        assert context.limits is not None
        self._entered.drop_if(lambda pool: context.closed(pool.pool_id))
        inherited, _ = split(context.setup)
        adopt(inherited)  # here as well: libraries read variables as a child process begins
        pool = IsolatedPool(None, self._codes, context.pool_id, context.limits, content)
        self._entered.keep(context_id, pool)
        self.contributions.pool = context.pool_id
        return pool

    def call(
        self, pool: IsolatedPool, kind: int, code_id: int, payload: Any
    ) -> tuple[Kind, Encoded]:
        """Have one task run, and return what became of it.

        Raises
        ------
        Evicted
            If the attempt is not ours any more: the child is gone.
        """
        self._stage = Stage.TASK
        try:
            process = self._current(pool.limits)
            if not self._was_sent(payload):
                self._tasks += 1
                process.channel.send(segments(_request(pool, kind, code_id, payload)))
            message = self._answer(process, pool, code_id)
            answer = None if message is None else child.Answer.of(message)
        except _NoChild as error:
            return Kind.LOST, unstarted(error, self._rank, self._host)
        except (EOFError, OSError):  # the child is gone
            return Kind.LOST, self._crashed()
        except (MemoryError, SerializationError) as error:
            self._forget().kill()  # else the rest of its result would be taken for the next answer
            return Kind.EXCEPTION, self.failure(error)
        if answer is None:
            return Kind.LOST, self._timed_out(self._limit_s(pool.limits))
        if answer.kind == Kind.VALUE:
            self._knows = pool.pool_id, code_id
        if answer.contributions is not None:
            self.contributions.give(answer.contributions)
        return Kind(answer.kind), answer.encoded

    def send_ahead(
        self, pool: IsolatedPool, kind: int, code_id: int, payloads: Collection[bytes | memoryview]
    ) -> None:
        """Send what ``call`` will be asked for next, in this order, if the child can take it.

        The child goes from one task to the next without waiting for us.  So it must lack nothing
        for them, and there must be no limits, which we would have to watch for each.
        """
        if self._knows == (pool.pool_id, code_id) and pool.limits == Limits():
            assert self._child is not None
            assert not self._ahead
            try:
                requests = [_request(pool, kind, code_id, payload) for payload in payloads]
            except MemoryError:
                return  # for all of them: each by itself may find some
            self._ahead.extend(payloads)  # nobody retracts meanwhile: the batch holds its lock
            self._tasks += len(requests)
            with suppress(OSError):  # the child is gone, as ``call`` will find
                self._child.channel.send(*map(segments, requests))

    def retract(self) -> bool:
        """Have the child begin nothing of what it was sent ahead; for another thread.

        Returns
        -------
        bool
            False if it may have begun some of that.
        """
        with self._lock:
            if not self._ahead or self._child is None:
                return True
            first = self._tasks - len(self._ahead) + 1
            numbers = self._child.numbers
            with self._child.stopped() as still:
                if not still or numbers[child.BEGUN] >= first:
                    return False
                # It stands before it has begun the first: when it does, it sees this.
                numbers[child.FROM], numbers[child.TO] = first, self._tasks + 1
            self._ahead.clear()
            return True

    def _was_sent(self, payload: Any) -> bool:
        """Return whether the child was sent a task ahead; from now on its answer is waited for."""
        with self._lock:
            if not self._ahead:
                return False
            sent = self._ahead.popleft()
        assert sent is payload
        return True

    def _current(self, limits: Limits) -> ChildProcess:
        """Return the child; start one if there is none, or if it has run its number of tasks."""
        most = limits.tasks_per_child
        if self._child is not None and not self._ahead and self._child.ended():
            self._forget().kill()  # it has ended between two tasks: no fault of the next one
        if self._child is not None and most is not None and self._tasks >= most:
            self.leave()
        return self._child or self._start()

    def _start(self) -> ChildProcess:
        """Start a child, and wait until it can begin; try again if it cannot."""
        for left in reversed(range(STARTS)):
            try:
                process = self._child = ChildProcess(child.__name__, self._rank, self._host)
            except (OSError, RuntimeError, MemoryError) as error:  # something is used up
                raise _NoChild(str(error) or "no memory") from error
            self._tasks = 0
            try:
                in_time = self._wait(process, Stopwatch(), START_S)
                if in_time and process.channel.receive() == child.READY:
                    return process
            except (EOFError, OSError):
                if not left:  # the end of the last one is reported as the task's
                    raise
            self._forget().kill()
        raise _NoChild(f"it did not begin within {START_S:g} s")

    def _answer(self, process: ChildProcess, pool: IsolatedPool, code_id: int) -> memoryview | None:
        """Send the child what it lacks for a task, and return its answer, if it is in time."""
        watch = Stopwatch()
        while self._wait(process, watch, self._limit_s(pool.limits)):
            message = process.channel.receive()
            if message == child.REFUSED:
                continue  # a task that was sent before this one, and retracted
            if message == child.CONTEXT:
                self._stage = Stage.INITIALIZER
                process.channel.send([pool.content])
            elif message == child.CODE:
                if self._stage is not Stage.INITIALIZER:  # it asks before that is called
                    self._stage = Stage.RESTORING
                process.channel.send([pool.callables[code_id]])
            elif message == child.ENTERED:
                self._stage = Stage.RESTORING
            elif message == child.RESTORED:
                self._stage = Stage.TASK
            else:
                return message
            # The time for what it lacked, for the initializer, and for what restoring the task
            # imports does not count as the task's.
            watch = Stopwatch()
            self._knows = None  # it may have dropped something else for what it has got
        return None

    def _limit_s(self, limits: Limits) -> float | None:
        """Return how long the child may take for the stage that it is at."""
        limit_s = limits.timeout_s
        if limit_s is None or self._stage is Stage.TASK:
            return limit_s
        return max(limit_s, PREPARE_S)

    def _wait(self, process: ChildProcess, watch: Stopwatch, limit_s: float | None) -> bool:
        """Wait for a message, and have sent what is left to send; False if it is not in time.

        Raises
        ------
        Evicted
            If the attempt is not ours any more: the child is gone.

        Notes
        -----
        RMA cost: 1 load for each look.
        """
        look_s, waited_s = FIRST_LOOK_S, watch.look()
        while True:
            wait_s = look_s if limit_s is None else min(look_s, limit_s - waited_s)
            if process.channel.ready(wait_s):
                return True
            # Without waiting for the end of the connection: a process that it has started may have
            # inherited its end.
            if process.ended() and not process.channel.ready(0):
                raise EOFError
            waited_s = watch.look()
            if limit_s is not None and waited_s >= limit_s:
                return False
            if not self.holds():
                self._forget().kill()
                raise Evicted
            look_s = min(2 * look_s, LONGEST_LOOK_S)

    def _forget(self) -> ChildProcess:
        """Let go of the child, and return its process."""
        assert self._child is not None
        with self._lock:
            process, self._child = self._child, None
            self._ahead.clear()
            self._knows = None
        return process

    def _timed_out(self, limit_s: float | None) -> bytes:
        process = self._forget()
        lines = process.stack(child.STACK_SIGNAL).splitlines()
        process.kill()
        title, *frames = [line for line in lines if not any(file in line for file in _OURS)] or [""]
        stack = "\n".join([title, *frames]) if frames else ""  # C that we call has none
        loss = Loss(Why.TIMEOUT, self._rank, self._host, process.pid, stack, limit_s=limit_s)
        return loss._replace(stage=self._stage.value).encoded()

    def _crashed(self) -> bytes:
        process = self._forget()
        returncode, text = process.died()
        loss = Loss(Why.CRASHED, self._rank, self._host, process.pid, text, returncode)
        return loss._replace(stage=self._stage.value).encoded()

    def leave(self) -> None:
        """End the child, if there is one."""
        if self._child is not None:
            self._forget().leave()


def _request(pool: IsolatedPool, kind: int, code_id: int, payload: Any) -> Encoded:
    """Return a task as the child is sent it."""
    memory_nbytes = pool.limits.memory_nbytes
    request = child.Request(pool.pool_id, code_id, kind, PickleBuffer(payload), memory_nbytes)
    return join_apart(tuple(request))
