"""Numbers summed in the window itself: every task adds, nothing is sent back to be added up.

A contribution must count exactly once although a task may run more than once, so a worker keeps
what a task adds until the task's outcome is committed; then it makes the contributions by
``Accumulate``, completes them by a flush, and only then shows the task as done::

    task adds          commit (CAS)         Accumulate ... flush        complete (CAS)
    ---------------------->|--------------------->|------------------------>|
    kept by the worker     this attempt counts     in the window             future resolved

Whoever has seen the future resolved therefore sees the contribution; a task that raises, is
evicted, or dies before its commit leaves none.  If its worker dies after that, and before the task
is shown as done, nobody knows what is in the window: then the task is lost.

A job that is to outlive its workers cannot do that: a worker that dies inside ``Accumulate`` leaves
others waiting for a lock, and one that dies before ``complete`` leaves open what has been added.
Nor can a job on several hosts: nobody knows whether ``complete`` will come from a worker that has
fallen silent.  There the outcome carries the contributions, and the driver adds them up when it
collects it::

    task adds          complete (CAS)          driver collects, adds, resolves the future
    ---------------------->|--------------------->|------------------------>|

What a task adds to accumulators of another pool goes the same way, because that pool may be shut
down at any time, and then the room of its numbers belongs to others.  No worker can tell: what it
has looked up may have changed before its ``Accumulate`` arrives.  But a pool keeps its room as long
as one of its own tasks is not over, so an ``Accumulate`` of such a task always finds it; and the
driver, which takes the room back, can look and add in one step.

Reference: MPI-4.1 section 12.7.1 (atomicity).
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from . import verbs
from .contributions import Parts, Spec, combine, current
from .errors import UsageError
from .forked import Forked
from .lazy import np
from .reduction import OPERATIONS
from .whole import whole

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, DTypeLike, NDArray

_DTYPES = "int8 to int64, uint8 to uint64, float32, float64, complex64, complex128 and bool"


def spec_of(shape: int | tuple[int, ...], dtype: DTypeLike, op: str) -> Spec:
    """Return what an accumulator is to hold, not placed yet.

    Raises
    ------
    UsageError
        If MPI has no such operation on such numbers, or the shape is none.
    """
    kind = np.dtype(dtype)
    operation = OPERATIONS[op]
    if not kind.isnative or kind.char not in "bBhHiIlLqQfdFD?":
        raise UsageError(f"dtype={kind}: an accumulator holds {_DTYPES}, in native byte order")
    if kind.kind not in operation.kinds:
        raise UsageError(f"op={op!r} does not go with dtype {kind}: MPI defines no such reduction")
    try:  # by what takes no memory
        sizes = np.broadcast_to(
            np.False_, shape if hasattr(shape, "__index__") else tuple(shape)
        ).shape
    except TypeError:
        raise UsageError(f"shape={shape!r}: give a whole number, or a tuple of them") from None
    except ValueError as error:
        raise UsageError(f"shape={shape!r}: {error}") from None
    return Spec(-1, -1, sizes, kind.str, op)


class Accumulator:
    """Numbers in the repository's window that tasks add to; made by ``WorkPool.accumulator``.

    Tasks receive it as an argument.  Their contributions count exactly once, when the task's
    outcome is committed; those of a task that raises do not count.  Tasks of other pools may add,
    too, until the accumulator's own is shut down.
    """

    def __init__(self, spec: Spec, window: verbs.Window | None = None) -> None:
        self._spec = spec
        self._lock = threading.RLock()  # reentrant only so that `_check_free` finds out
        # On the driver the numbers stand in the window, or here: those of a job that outlives its
        # workers, and the last ones of a pool that was shut down.  In a task they stand in neither.
        self._window = window
        self._numbers: NDArray[Any] | None = None
        self._closed = False

    def __reduce__(self) -> tuple[Any, ...]:
        if self._closed:
            raise _gone(self)
        return _in_task, tuple(self._spec)  # in two thirds of the time that the spec itself takes

    def __deepcopy__(self, memo: object = None) -> Accumulator:
        return self  # a copy of what has an accumulator adds to the same numbers

    __copy__ = __deepcopy__

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
            For ``min`` and ``max``, NaN is no number, and adds nothing.

        Raises
        ------
        UsageError
            If shape, dtype or integers do not fit, the caller is neither a task nor the driver, or
            the pool was shut down; the latter is told to the future of a task.
        RuntimeError
            As for `value`.

        Notes
        -----
        RMA cost: none while the task runs; when it is committed, 1 accumulate for every 64 KiB, and
        1 flush.
        """
        array = np.array(values, order="C")  # a copy: the caller may go on writing to the original
        if array.shape != self._spec.shape:
            raise UsageError(f"add of shape {array.shape} to {self!r}: the shapes must be equal")
        dtype = self.dtype
        if array.dtype != dtype:
            if not np.can_cast(array.dtype, dtype, "same_kind"):
                raise UsageError(f"add of dtype {array.dtype} to {self!r}: convert it first")
            converted = array.astype(dtype)
            if dtype.kind in "iu" and (converted != array).any():
                raise UsageError(f"add of numbers to {self!r} that are beyond its dtype")
            array = converted
        if self.op in ("min", "max") and dtype.kind == "f":
            # MPI's comparison may let NaN replace a number.
            array[np.isnan(array)] = OPERATIONS[self.op].identity(dtype)
        contributions = current.get()
        if contributions is not None:
            contributions.add(self._spec, array)
        else:
            self._check_free()
            self._add(array)

    @whole  # MPI writes to the copy until the flush
    def value(self) -> Any:
        """Return the numbers as they stand: an array, or a scalar for shape ``()``.

        Exact for every task whose future is done, but for those that are lost (`TaskLost`); while
        others run, what they have committed so far.  After the pool's shutdown, the last value.

        Returns
        -------
        ndarray or scalar
            A copy, of the accumulator's shape and dtype.

        Raises
        ------
        UsageError
            In a task, or a process that was forked from the driver's.
        RuntimeError
            In a finalizer or a signal's handler that has come in the middle of a step of the pool.

        Notes
        -----
        Each number is as it was at one time; several need not be of the same time.

        RMA cost: 1 get_accumulate for every 64 KiB, 1 flush.
        """
        self._check_free()
        with self._lock:
            numbers = self._read()
        if numbers is None:
            raise UsageError(f"value of {self!r}: only the driver can read it")
        return numbers if numbers.shape else numbers[()]

    def _check_free(self) -> None:
        """Raise if this very thread has what is wanted: it would wait for itself."""
        window = self._window
        if self._lock._is_owned() or (window is not None and window.entered()):  # type: ignore[attr-defined]
            raise RuntimeError(
                f"neither a finalizer nor a signal's handler can use {self!r} in the middle of a "
                "step of the pool: have it set a flag"
            )

    def _start(self) -> None:
        """Set the numbers to the operation's identity; the driver does, before any task can add."""
        identity = OPERATIONS[self._spec.op].identity(self.dtype)
        numbers = np.full(self.shape, identity, self.dtype)
        if self._window is None:
            self._numbers = numbers
            return
        self._window.put(self._spec.offset, numbers.reshape(-1))
        self._window.flush()  # before the first contribution, which is not ordered with a Put

    @whole  # MPI reads the part until the flush
    def _add(self, part: NDArray[Any]) -> None:
        """Combine a part into the numbers; the driver does.

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
                self._numbers = combine(self._spec, (self._numbers, part))
            else:
                raise UsageError(
                    f"add to {self!r} outside of a task: call it in the thread that runs the task"
                )

    def _close(self) -> None:
        """Keep the last value and let go of the window: the pool was shut down."""
        with self._lock:
            self._numbers = self._read()
            self._window = None
            self._closed = True

    def _read(self) -> NDArray[Any] | None:
        """Return a copy of the numbers; None in a task."""
        if self._window is None:
            return None if self._numbers is None else self._numbers.copy()
        numbers = np.empty(self.shape, self.dtype)
        # Not by a get: the workers may be adding.
        self._window.get_numbers(self._spec.offset, numbers)
        self._window.flush()  # the numbers are here only after it
        return numbers


class Accumulators:
    """The accumulators of a job's pools that are not shut down; on the driver.  Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.RLock()  # reentrant for a finalizer in the midst of `close`
        self._open: dict[Spec, Accumulator] = {}  # a pool gives no room twice while it is open

    def open(self, spec: Spec, window: verbs.Window | None) -> Accumulator:
        """Return a new one, whose numbers stand in a window or, without, here."""
        numbers = self._open[spec] = Accumulator(spec, window)
        numbers._start()
        return numbers

    def close(self, spec: Spec) -> None:
        """Let go of one: when this returns, nobody will touch its room any more."""
        with self._lock:
            self._open.pop(spec)._close()

    def disown(self) -> None:
        """Have all refused from now on: this process was forked from the driver's."""
        for numbers in tuple(self._open.values()):
            numbers._lock = Forked()  # type: ignore[assignment]

    def add(self, parts: Parts) -> UsageError | None:
        """Add what tasks have added; what counts is taken from `parts`, and never counts again.

        Returns
        -------
        UsageError or None
            Why it cannot be added: then nothing of it counts.

        Notes
        -----
        RMA cost: 1 accumulate and 1 flush for each accumulator in a window.
        """
        with self._lock:  # nobody closes one between the look and the addition
            for spec in parts:
                if spec not in self._open:
                    return _gone(Accumulator(spec))
            while parts:  # should there be no memory for one, the others have been added
                spec = next(iter(parts))
                self._open[spec]._add(parts[spec])
                del parts[spec]
        return None


def _in_task(*spec: Any) -> Accumulator:
    """Return what a task gets for an accumulator."""
    return Accumulator(Spec(*spec))


def _gone(numbers: Accumulator) -> UsageError:
    return UsageError(
        f"{numbers!r} belongs to a pool that was shut down: wait for all tasks that add to it "
        "before the shutdown, or take an accumulator of a pool that is open"
    )
