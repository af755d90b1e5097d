"""What tasks add to accumulators, kept by their worker until it counts; see ``accumulator``."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from . import verbs
from .lazy import np
from .reduction import ufunc
from .serializer import join

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Spec(NamedTuple):
    """Which numbers an accumulator stands for; this is all that is sent with it to a task."""

    pool: int  # number of the pool that it belongs to
    offset: int  # displacement of the first, in the window of that pool's table
    shape: tuple[int, ...]
    dtype: str
    op: str

    @property
    def nbytes(self) -> int:
        """Size of all elements in bytes."""
        return math.prod(self.shape) * int(np.dtype(self.dtype).itemsize)


#: Parts are kept one by one until they take this much: to combine many at once takes less.
KEPT_NBYTES = 1 << 16

#: What an array takes besides its elements.
ARRAY_NBYTES = 128

#: What was added to accumulators, each one's parts combined.
Parts: TypeAlias = "dict[Spec, NDArray[Any]]"


class Together(NamedTuple):
    """Tasks of one attempt that have added to the same accumulators, and stand or fall together."""

    tasks: set[int]  # their places in the row
    parts: Parts


class Contributions:
    """What the tasks of one attempt have added so far.

    Attributes
    ----------
    pool : int
        Number of the pool whose tasks run.
    task : int
        Place of the task that runs among those of its row.
    parts : Parts
        What it has added.
    kept : dict
        By accumulators, what those have added that have ended well.
    """

    def __init__(self) -> None:
        self.pool = 0
        self.task = 0
        self.parts: Parts = {}
        self.kept: dict[tuple[Spec, ...], _Group] = {}

    @property
    def foreign(self) -> bool:
        """Whether there are any to an accumulator of another pool."""
        return any(spec.pool != self.pool for specs in self.kept for spec in specs)

    def add(self, spec: Spec, values: NDArray[Any]) -> None:
        """Combine `values`, which nobody else changes, with what the task has added before."""
        known = self.parts.get(spec)
        self.parts[spec] = values if known is None else combine(spec, (known, values))

    def keep(self) -> None:
        """Say that the task has ended well: what it added counts if the attempt is committed.

        Raises
        ------
        MemoryError
            What it added does not count.
        """
        if not self.parts:
            return
        specs = tuple(self.parts)
        group = self.kept.get(specs)
        if group is None:
            group = _Group(specs)
        group.add(self.task, tuple(self.parts.values()))
        self.kept[specs] = group
        self.parts.clear()

    def drop(self) -> None:
        """Say that the task has failed: what it added does not count."""
        self.parts.clear()

    def total(self) -> Parts:
        """Return what has been added to each accumulator."""
        parts: dict[Spec, list[NDArray[Any]]] = {}
        for group in self.kept.values():
            for spec, column in group.columns():
                parts.setdefault(spec, []).extend(column)
        return {spec: combine(spec, some) for spec, some in parts.items()}

    def take(self) -> Parts | None:
        """Return what a task has added in a process of its own, to be given to another."""
        parts, self.parts = self.parts, {}
        return parts or None

    def give(self, parts: Parts) -> None:
        """Take what a task has added in another process for what it has added here."""
        self.parts = parts

    def packed(self) -> bytes:
        """Return everything as bytes: a `Together` for each of the groups, joined."""
        return join([group.together() for group in self.kept.values()])

    def clear(self) -> None:
        """Forget everything: the attempt is over."""
        self.task = 0
        self.parts.clear()
        self.kept.clear()


class _Group:
    """Tasks that have ended well, and added to the same accumulators."""

    __slots__ = ("_nbytes", "_parts", "_specs", "_tasks")

    def __init__(self, specs: tuple[Spec, ...]) -> None:
        self._specs = specs
        self._tasks: set[int] = set()
        self._parts: list[tuple[NDArray[Any], ...]] = []  # of one task each, or of many
        self._nbytes = 0

    def add(self, task: int, parts: tuple[NDArray[Any], ...]) -> None:
        """Take what a task has added, all or nothing of it."""
        nbytes = self._nbytes + sum([part.nbytes + ARRAY_NBYTES for part in parts])
        if nbytes > KEPT_NBYTES and self._parts:
            several = zip(*self._parts, parts, strict=True)
            self._parts = [tuple(map(combine, self._specs, several))]
            nbytes = 0
        else:
            self._parts.append(parts)
        self._nbytes = nbytes
        self._tasks.add(task)

    def columns(self) -> Iterator[tuple[Spec, tuple[NDArray[Any], ...]]]:
        """Return the parts of each accumulator."""
        return zip(self._specs, zip(*self._parts, strict=True), strict=True)

    def together(self) -> Together:
        """Return what stands or falls together."""
        return Together(self._tasks, {spec: combine(spec, some) for spec, some in self.columns()})


def contribute(total: Parts, window: verbs.Window) -> None:
    """Put what was added into the window of the pool's table; complete when this returns.

    Only while the row is COMMITTED, and only if nothing is foreign: until the row is DONE the task
    is not over, and its pool keeps the room of its numbers.

    Notes
    -----
    RMA cost: 1 accumulate for each accumulator, 1 flush.
    """
    for spec, part in total.items():
        window.accumulate(spec.offset, part, spec.op)  # ours until the flush
    window.flush()  # before the row says DONE: whoever sees the result must see the contribution


def combine(spec: Spec, parts: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """Return some parts of one accumulator combined; they stay as they are."""
    if len(parts) == 1:
        return parts[0]
    function = ufunc(spec.op)
    with np.errstate(all="ignore"):  # as MPI does; the task may have asked for errors
        combined = function(*parts) if len(parts) == 2 else function.reduce(parts)
    # What NumPy makes of shape () is a scalar, of small integers large ones, of logicals a bool.
    return np.asarray(combined, parts[0].dtype)


#: What the task that runs in this context has added; None outside of tasks.
current: ContextVar[Contributions | None] = ContextVar("workpool_contributions", default=None)
