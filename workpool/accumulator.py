"""Numbers summed in the window itself: every task adds, nothing is sent back to be added up.

A contribution must count exactly once although a task may run more than once, so a worker keeps
what a task adds until the task's outcome is committed; then it makes the contributions by
``Accumulate``, completes them by a flush, and only then shows the task as done::

    task adds          commit (CAS)         Accumulate ... flush        complete (CAS)
    ---------------------->|--------------------->|------------------------>|
    kept by the worker     this attempt counts     in the window             future resolved

Whoever has seen the future resolved therefore sees the contribution; a task that raises, is
evicted, or dies before its commit leaves none.

That is no way for a job that is to outlive its workers: who dies inside ``Accumulate`` leaves
others waiting for a lock, and who dies before ``complete`` leaves open what has been added.  There
the outcome carries the contributions, and the driver adds them up when it collects the outcome::

    task adds          complete (CAS)          driver collects, adds, resolves the future
    ---------------------->|--------------------->|------------------------>|

The same way goes what a task adds to accumulators of another pool, because that pool may be shut
down at any time, and the room of its numbers belongs to others then.  No worker can tell: what it
has looked up may have changed before its ``Accumulate`` arrives, and that an accumulator was not
sent with a task says nothing, since it may lie in a closure or a global.  But a pool keeps its room
as long as one of its own tasks is not over, so an ``Accumulate`` of such a task always finds it;
and the driver, which takes the room back, can look and add in one step.

References: MPI-4.1 sections 6.9.2 (which operations go with which types) and 12.7.1 (atomicity).
"""

from __future__ import annotations

import pickle
import threading
from contextvars import ContextVar
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from . import verbs
from .errors import UsageError
from .whole import whole

_INTEGERS = "iu"
_FLOATS = "f"
_COMPLEX = "c"
_BOOLEAN = "b"


class _Operation(NamedTuple):
    """A reduction operation: how it combines, for which kinds of dtype, from what it starts."""

    ufunc: Any
    kinds: str
    identity: Any


def _lowest(dtype: np.dtype[Any]) -> Any:
    return -np.inf if dtype.kind == "f" else np.iinfo(dtype).min


def _highest(dtype: np.dtype[Any]) -> Any:
    return np.inf if dtype.kind == "f" else np.iinfo(dtype).max


_NUMBERS = _INTEGERS + _FLOATS + _COMPLEX
_OPERATIONS = {
    "sum": _Operation(np.add, _NUMBERS, lambda dtype: 0),
    "prod": _Operation(np.multiply, _NUMBERS, lambda dtype: 1),
    "min": _Operation(np.minimum, _INTEGERS + _FLOATS, _highest),
    "max": _Operation(np.maximum, _INTEGERS + _FLOATS, _lowest),
    "band": _Operation(np.bitwise_and, _INTEGERS, lambda dtype: np.invert(np.zeros((), dtype))),
    "bor": _Operation(np.bitwise_or, _INTEGERS, lambda dtype: 0),
    "bxor": _Operation(np.bitwise_xor, _INTEGERS, lambda dtype: 0),
    "land": _Operation(np.logical_and, _INTEGERS + _BOOLEAN, lambda dtype: 1),
    "lor": _Operation(np.logical_or, _INTEGERS + _BOOLEAN, lambda dtype: 0),
    "lxor": _Operation(np.logical_xor, _INTEGERS + _BOOLEAN, lambda dtype: 0),
}

_DTYPES = "int8 to int64, uint8 to uint64, float32, float64, complex64, complex128 and bool"


class Spec(NamedTuple):
    """Which numbers are meant; all that crosses when a task gets an accumulator."""

    pool: int  # number of the pool that it belongs to
    offset: int  # displacement of the first, in the window of that pool's table
    shape: tuple[int, ...]
    dtype: str
    op: str

    @property
    def nbytes(self) -> int:
        """Size of all elements in bytes."""
        return int(np.prod(self.shape, dtype=np.int64)) * np.dtype(self.dtype).itemsize


def check(shape: int | tuple[int, ...], dtype: DTypeLike, op: str) -> Spec:
    """Return what an accumulator is to hold, not placed yet.

    Raises
    ------
    UsageError
        If MPI has no such operation on such numbers, or the shape is none.
    """
    kind = np.dtype(dtype)
    operation = _OPERATIONS[op]
    if not kind.isnative or kind.char not in "bBhHiIlLqQfdFD?":
        raise UsageError(f"dtype={kind}: an accumulator holds {_DTYPES}, in native byte order")
    if kind.kind not in operation.kinds:
        raise UsageError(f"op={op!r} does not go with dtype {kind}: MPI defines no such reduction")
    try:
        sizes = np.empty(shape if isinstance(shape, int) else tuple(shape), np.void(0).dtype).shape
    except (TypeError, ValueError) as error:
        raise UsageError(f"shape={shape!r}: {error}") from None
    return Spec(-1, -1, sizes, kind.str, op)


#: What was added to accumulators, each one's parts combined.
Parts: TypeAlias = "dict[Spec, NDArray[Any]]"


class Group(NamedTuple):
    """Tasks of one attempt that have added to the same accumulators, and stand or fall together."""

    tasks: set[int]  # their places in the row
    parts: Parts


class Contributions:
    """What the tasks of one attempt have added so far, each accumulator's parts combined.

    Attributes
    ----------
    pool : int
        Number of the pool whose tasks run.
    task : int
        Place of the task that runs among those of its row.
    parts : Parts
        What it has added.
    """

    def __init__(self) -> None:
        self.pool = 0
        self.task = 0
        self.parts: Parts = {}
        self._kept: dict[tuple[Spec, ...], Group] = {}  # of the tasks that have ended well

    def __bool__(self) -> bool:
        return bool(self._kept)

    @property
    def foreign(self) -> bool:
        """Whether there are any to an accumulator of another pool."""
        return any(spec.pool != self.pool for specs in self._kept for spec in specs)

    def add(self, spec: Spec, values: NDArray[Any]) -> None:
        """Combine `values`, which nobody else changes, with what the task has added before."""
        _combine(self.parts, spec, values)

    def keep(self) -> None:
        """The task has ended well: what it added counts if the attempt does."""
        specs = tuple(self.parts)
        group = self._kept.get(specs)
        if group is None:
            group = self._kept[specs] = Group(set(), {})
        group.tasks.add(self.task)
        for spec, part in self.parts.items():
            _combine(group.parts, spec, part)
        self.parts.clear()

    def drop(self) -> None:
        """The task has failed: what it added does not count."""
        self.parts.clear()

    def make(self, window: verbs.Window) -> None:
        """Put everything into the window of the pool's table; complete when this returns.

        Only while the row is COMMITTED, and only if nothing is `foreign`: until the row is DONE
        the task is not over, and its pool keeps the room of its numbers.

        Notes
        -----
        RMA cost: 1 accumulate for each accumulator, 1 flush.
        """
        total: Parts = {}
        for group in self._kept.values():
            for spec, part in group.parts.items():
                _combine(total, spec, part)
        for spec, part in total.items():
            window.accumulate(spec.offset, part, spec.op)  # ours until the flush
        window.flush()  # before the row says DONE: who sees the result must see the contribution

    def take(self) -> Parts | None:
        """Return what a task's own process has kept, to be given to another, and forget it."""
        kept, self._kept = self._kept, {}
        return next((group.parts for group in kept.values()), None)

    def give(self, parts: Parts) -> None:
        """Have what a task has added in another process count if the attempt does."""
        self.parts = parts
        self.keep()

    def packed(self) -> bytes:
        """Return everything as bytes, for the driver to `Accumulators.collect`."""
        return pickle.dumps(list(self._kept.values()))

    def clear(self) -> None:
        """Forget everything: the attempt is over."""
        self.task = 0
        self.parts.clear()
        self._kept.clear()


def _combine(parts: Parts, spec: Spec, part: NDArray[Any]) -> None:
    known = parts.get(spec)
    if known is not None:
        combined = _OPERATIONS[spec.op].ufunc(known, part)
        part = np.asarray(combined, part.dtype)  # of two arrays of shape () NumPy makes a scalar
    parts[spec] = part


#: What the task that runs in this context has added; None outside of tasks.
current: ContextVar[Contributions | None] = ContextVar("workpool_contributions", default=None)


class Accumulator:
    """Numbers in the repository's window that tasks add to; made by ``WorkPool.accumulator``.

    Tasks receive it as an argument.  Their contributions count exactly once, when the task's
    outcome is committed; those of a task that raises do not count.  Tasks of other pools may add,
    too, until the accumulator's own is shut down.
    """

    def __init__(self, spec: Spec, window: verbs.Window | None = None) -> None:
        self._spec = spec
        self._lock = threading.Lock()
        # On the driver the numbers stand in the window, or here: those of a job that outlives its
        # workers, and the last ones of a pool that was shut down.  In a task they do in neither.
        self._window = window
        self._numbers: NDArray[Any] | None = None
        self._closed = False

    def __reduce__(self) -> tuple[Any, ...]:
        if self._closed:
            raise _gone(self)
        return Accumulator, (self._spec,)

    def __repr__(self) -> str:
        spec = self._spec
        return f"<Accumulator {spec.op} of {np.dtype(spec.dtype)} {spec.shape}>"

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the array of numbers."""
        return self._spec.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """Their type."""
        return np.dtype(self._spec.dtype)

    @property
    def op(self) -> str:
        """Name of the operation that combines them."""
        return self._spec.op

    def add(self, values: ArrayLike) -> None:
        """Combine numbers into the accumulator, element by element.

        Parameters
        ----------
        values : array_like
            Of the accumulator's shape, and of a dtype that casts to its dtype within the same kind.

        Raises
        ------
        UsageError
            If shape or dtype do not fit, the caller is neither a task nor the driver, or the pool
            was shut down; the latter is told to the future of a task.

        Notes
        -----
        RMA cost: none while the task runs; 1 accumulate and 1 flush when it is committed.
        """
        array = np.array(values, order="C")  # a copy: the caller may go on writing to his own
        if array.shape != self._spec.shape:
            raise UsageError(f"add of shape {array.shape} to {self!r}: the shapes must be equal")
        dtype = self.dtype
        if array.dtype != dtype:
            if not np.can_cast(array.dtype, dtype, "same_kind"):
                raise UsageError(f"add of dtype {array.dtype} to {self!r}: convert it first")
            array = array.astype(dtype)
        contributions = current.get()
        if contributions is not None:
            contributions.add(self._spec, array)
        else:
            self.collect(array)

    def value(self) -> Any:
        """Return the numbers as they stand: an array, or a scalar for shape ``()``.

        Exact for every task whose future is done; while others run, what they have committed so
        far.  After the pool's shutdown, the last value.

        Notes
        -----
        Each number is as it was at one time; several need not be of the same time.

        RMA cost: 1 get_accumulate, 1 flush.
        """
        with self._lock:
            numbers = self._read()
        if numbers is None:
            raise UsageError(f"value of {self!r}: only the driver can read it")
        return numbers.copy() if numbers.shape else numbers[()]

    def start(self) -> None:
        """Set the numbers to the operation's identity; the driver does, before any task can add."""
        identity = _OPERATIONS[self._spec.op].identity(self.dtype)
        numbers = np.full(self.shape, identity, self.dtype)
        if self._window is None:
            self._numbers = numbers
            return
        self._window.put(self._spec.offset, numbers.reshape(-1))
        self._window.flush()  # before the first contribution, which is not ordered with a Put

    @whole  # MPI reads the part until the flush
    def collect(self, part: NDArray[Any]) -> None:
        """Add to the numbers; the driver does.

        Raises
        ------
        UsageError
            If this is not the driver, or the pool was shut down.
        """
        with self._lock:
            if self._closed:
                raise _gone(self)
            if self._window is not None:
                self._window.accumulate(self._spec.offset, part, self._spec.op)
                self._window.flush()  # whoever sees the result must see the contribution
            elif self._numbers is not None:
                parts = {self._spec: self._numbers}
                _combine(parts, self._spec, part)
                self._numbers = parts[self._spec]
            else:
                raise UsageError(
                    f"add to {self!r} outside of a task: call it in the thread that runs the task"
                )

    def close(self) -> None:
        """Keep the last value and let go of the window: the pool was shut down."""
        with self._lock:
            self._numbers = self._read()
            self._window = None
            self._closed = True

    def _read(self) -> NDArray[Any] | None:
        if self._window is None:
            return self._numbers
        numbers = np.empty(self.shape, self.dtype)
        # Not by a get: the workers may be adding.
        self._window.get_numbers(self._spec.offset, numbers)
        self._window.flush()
        return numbers


class Accumulators:
    """The accumulators of a job's pools that are not shut down; on the driver.  Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: dict[Spec, Accumulator] = {}  # a pool gives no room twice while it is open

    def add(self, spec: Spec, window: verbs.Window | None) -> Accumulator:
        """Return a new one, whose numbers stand in a window or, without, here."""
        numbers = self._open[spec] = Accumulator(spec, window)
        numbers.start()
        return numbers

    def close(self, spec: Spec) -> None:
        """Let go of one: when this returns, nobody will touch its room any more."""
        with self._lock:
            self._open.pop(spec).close()

    def collect(self, carried: memoryview | bytes) -> dict[int, UsageError]:
        """Add what an outcome carries.

        Returns
        -------
        refused : dict of int to UsageError
            Why something cannot be added, by the places in the row of the tasks that have added it.
            Of these tasks nothing counts.

        Notes
        -----
        RMA cost: 1 accumulate and 1 flush for each accumulator in a window.
        """
        refused: dict[int, UsageError] = {}
        groups: list[Group] = pickle.loads(carried)
        with self._lock:  # nobody closes one between the look and the addition
            for tasks, parts in groups:
                closed = [spec for spec in parts if spec not in self._open]
                if closed:
                    refused.update(dict.fromkeys(tasks, _gone(Accumulator(closed[0]))))
                    continue
                for spec, part in parts.items():
                    self._open[spec].collect(part)
        return refused


def _gone(numbers: Accumulator) -> UsageError:
    return UsageError(
        f"{numbers!r} belongs to a pool that was shut down: wait for all tasks that add to it "
        "before the shutdown, or take an accumulator of a pool that is open"
    )
