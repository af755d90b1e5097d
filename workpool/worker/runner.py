"""From the bytes of a task to the bytes of its outcome: no window here.

Whatever the user's code does, this process goes on: what a task raises is its outcome, SystemExit
and KeyboardInterrupt included; what fails before its function is called is its outcome, too.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Sequence
from traceback import print_exception
from typing import Any, NamedTuple, NoReturn, Protocol
from weakref import WeakSet

from .. import contributions
from ..caches import LruCache
from ..context import CHUNK, Context
from ..contributions import Contributions
from ..errors import ProtocolError, WindowError
from ..forgetting import forgetting
from ..serializer import (
    ATOMS,
    CallableCache,
    Encoded,
    Frozen,
    Kind,
    Packed,
    Prepared,
    clear_script,
    collect_globals,
    frozen,
    pack_exception,
    pack_value,
    split,
    unpack_call,
    use_prepared,
)
from ..system.inherited import adopt
from ..system.status import exit_status
from ..system.streams import flush

#: Pools that are remembered.  Where more are in use in turn, their initializers run again.
POOLS = 256

#: Bytes of memory that are kept to be used again for large arguments: by a worker, and by its child
#: process.  Not more, because a host may have many workers.
SPARES_NBYTES = 1 << 27

_VALUE = Kind.VALUE


class Evicted(Exception):
    """The attempt was taken back while the worker was busy with it: forget it."""


class EnteredPool(NamedTuple):
    """What a worker keeps for the tasks of one pool."""

    pool_id: int
    failure: bytes | None  # what its initializer raised
    callables: CallableCache
    prepared: Prepared  # by its initializer


class AnyRunner(Protocol):
    """What calls the functions of tasks: ``Runner`` itself, ``IsolatedRunner`` by a child process.

    What it keeps for the tasks of one pool (``EnteredPool``, ``IsolatedPool``) is for itself, but
    for two attributes: `failure`, what the pool's initializer raised, and `callables`, which has
    the code of functions by its number.

    Attributes
    ----------
    contributions : Contributions
        What tasks have added to accumulators.
    short_ns : int
        Of several tasks, those that take longer are started one by one.
    """

    contributions: Contributions
    short_ns: int

    def find(self, context_id: int, /) -> Any:
        """Return the pool of a context; None if it must be entered, for the first time or again."""

    def enter(self, context_id: int, content: bytes) -> Any:
        """Prepare for the tasks of a context, once: see ``Context``."""

    def call(self, pool: Any, kind: int, code_id: int, payload: Any) -> tuple[Kind, Encoded]:
        """Run one task and return what became of it; what it has added is for the caller to keep.

        Parameters
        ----------
        pool : EnteredPool or IsolatedPool
            As `find` or `enter` has returned it.
        kind : TaskKind
        code_id : int
            Of its function, which the pool has; 0 if the payload contains it.
        payload : buffer
            The encoded call.
        """

    def send_ahead(
        self, pool: Any, kind: int, code_id: int, payloads: Collection[bytes | memoryview]
    ) -> None:
        """Say what `call` will be asked for next, in this order."""

    def retract(self) -> bool:
        """Begin nothing of what was sent ahead; return whether nothing of it has begun."""

    def failure(self, error: BaseException, task: object = None) -> bytes:
        """Encode what was raised."""


class Runner:
    """Calls the functions of tasks itself; see ``AnyRunner``.

    Parameters
    ----------
    rank : int
        Our MPI rank, for messages.
    host : str
        The name of our host, for messages.
    """

    short_ns = 50_000

    def __init__(self, rank: int, host: str) -> None:
        self.contributions = Contributions()
        self.rank = rank
        self.host = host
        #: By context in a worker, by pool in a child process, whose worker looks after the limits.
        self._pools: LruCache[EnteredPool] = LruCache(POOLS)
        self._pool: EnteredPool | None = None  # the one whose tasks run now
        self._forked = False
        _runners.add(self)

    def begin(self) -> None:
        """Say that tasks run in this thread: what they add to accumulators is theirs."""
        contributions.current.set(self.contributions)

    def end(self) -> None:
        """Say that this thread runs no more tasks."""
        contributions.current.set(None)

    def find(self, number: int, /) -> EnteredPool | None:
        """Return a pool; None if it must be prepared, for the first time or again."""
        pool = self._pools.use(number)
        if pool is not None:
            if pool is not self._pool:
                self._be_in(pool)
            self.contributions.pool = pool.pool_id
        return pool

    def enter(self, number: int, content: bytes | bytearray) -> EnteredPool:
        """Prepare for the tasks of a context, once: see ``Context``."""
        context = Context.decode(content)
        # Pools that are over, and with them what their initializers have made.
        self._pools.drop_if(lambda pool: context.closed(pool.pool_id))
        self._pool = None
        namespaces = collect_globals()
        inherited, call = split(context.setup)
        adopt(inherited)
        initializer: Any = "initializer"
        failure, prepared = None, Prepared()
        try:
            initializer, initargs, _ = unpack_call(call, "the initializer or its arguments")
            if initializer is not None:
                from ..serializer.prepared import prepared_by  # and with it cloudpickle

                prepared = prepared_by(lambda: initializer(*initargs), namespaces)
            if self._forked:
                self._leave()
        except BaseException as error:  # whatever it is, the pool is broken by it
            if self._forked:
                self._leave(error)
            failure = self.failure(error, initializer)
        self.contributions.clear()  # an initializer is no task: it contributes nothing
        pool = EnteredPool(context.pool_id, failure, CallableCache(), prepared)
        self._be_in(pool)
        self.contributions.pool = pool.pool_id
        self._pools.keep(number, pool)
        return pool

    def _be_in(self, pool: EnteredPool) -> None:
        self._pool = pool
        pool.callables.uncheck()
        use_prepared(pool.prepared)

    def call(
        self,
        pool: EnteredPool,
        kind: int,
        code_id: int,
        payload: Any,
        restored: Callable[[], None] | None = None,
    ) -> tuple[Kind, Encoded]:
        """Run one task; call `restored` when its function is about to be called."""
        function: Any = None
        clear_script()
        try:
            if code_id:
                function = pool.callables.get(code_id)
            else:
                pool.callables.uncheck()
            sent, args, kwargs = unpack_call(payload)
            if sent is not None:
                function = sent
            if restored is not None:
                restored()
            value: Any
            if kind == CHUNK:
                value = [frozen([function(*item)]) for item in args]
            else:
                value = function(*args, **kwargs)
            encoded = pack_value(value, function)
            if isinstance(encoded, Packed):
                encoded.held = function, args, kwargs
        except (ProtocolError, WindowError):
            raise  # ours, not the task's
        except BaseException as error:
            if self._forked:
                self._leave(error)
            self.contributions.drop()
            return Kind.EXCEPTION, self.failure(error, function)
        if self._forked:
            self._leave()
        return _VALUE, encoded

    def send_ahead(
        self, pool: EnteredPool, kind: int, code_id: int, payloads: Collection[bytes | memoryview]
    ) -> None:
        """Do nothing: here a task that is next has not begun."""

    def retract(self) -> bool:
        """Return that nothing was sent ahead."""
        return True

    def call_items(
        self,
        function: Any,
        items: Sequence[Any],
        several: bool,
        apart: bool,
    ) -> tuple[list[Any], bytes | None]:
        """Call a function with each item; return its values, and what the next item raised.

        Parameters
        ----------
        function : callable
            Or whatever a map was given in its place, None as well: calling it is the error.
        items : range or list
            Where `apart`, a list is empty afterwards: if a call returns its item, only the result
            may hold it.
        several : bool
            Whether each item is a tuple of arguments.
        apart : bool
            Whether other calls come before the values are encoded: then those values are `Frozen`
            that such a call could change.

        Returns
        -------
        values : list
        failed : bytes or None
        """
        values: list[Any] = []
        parts = self.contributions.parts
        try:
            for item in forgetting(items) if apart and isinstance(items, list) else items:
                value = function(*item) if several else function(item)
                if self._forked:
                    break
                if apart and type(value) not in ATOMS:
                    held = [value]
                    if value is item:
                        item = None
                    value = None  # the list alone has it
                    # Before the item is dropped: its end may take along memory of the value.
                    value = frozen(held)
                    del held  # the next call may resize the array that it refers to
                if parts:
                    if type(value) is not Frozen:
                        pack_value(value, function)  # raises: what cannot come back does not count
                    self.contributions.keep()
                values.append(value)
        except (ProtocolError, WindowError):
            raise  # ours, not the task's
        except BaseException as error:
            if self._forked:
                self._leave(error)
            self.contributions.drop()
            return values, self.failure(error, function)
        if self._forked:
            self._leave()
        return values, None

    def _leave(self, error: BaseException | None = None) -> NoReturn:
        """End a process that a task has forked: it is not the one that was asked for an outcome."""
        status = int(error is not None)
        if isinstance(error, SystemExit):
            status = exit_status(error)
        elif error is not None:
            print_exception(error)
        flush()
        os._exit(status)

    def failure(self, error: BaseException, task: object = None) -> bytes:
        """Encode what was raised."""
        return pack_exception(error, task=task, rank=self.rank, host=self.host)


#: Of this process.  Each call of `workpool.run` makes one, and a hook for each would stay for good.
_runners: WeakSet[Runner] = WeakSet()


def _note_fork() -> None:
    for runner in _runners:
        runner._forked = True


os.register_at_fork(after_in_child=_note_fork)
