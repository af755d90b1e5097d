"""What tasks add to accumulators, kept by their worker until it counts; see ``accumulator``."""

from __future__ import annotations

import math
import pickle
from collections.abc import Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from . import verbs
from .lazy import np

if TYPE_CHECKING:
    from numpy.typing import NDArray


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
        return math.prod(self.shape) * int(np.dtype(self.dtype).itemsize)


#: More of what tasks have added is combined before the end of their attempt: it takes less to
#: combine many parts at once than one by one.
KEPT_NBYTES = 1 << 16

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
    """

    def __init__(self) -> None:
        self.pool = 0
        self.task = 0
        self.parts: Parts = {}
        # Of the tasks that have ended well, by what they have added to: their places, and a part of
        # each accumulator for each of them, which are combined when there are many.
        self._kept: dict[tuple[Spec, ...], tuple[set[int], list[tuple[NDArray[Any], ...]]]] = {}
        self._kept_nbytes = 0

    def __bool__(self) -> bool:
        return bool(self._kept)

    @property
    def foreign(self) -> bool:
        """Whether there are any to an accumulator of another pool."""
        return any(spec.pool != self.pool for specs in self._kept for spec in specs)

    def add(self, spec: Spec, values: NDArray[Any]) -> None:
        """Combine `values`, which nobody else changes, with what the task has added before."""
        known = self.parts.get(spec)
        self.parts[spec] = values if known is None else combine(spec, (known, values))

    def keep(self) -> None:
        """The task has ended well: what it added, if anything, counts if the attempt does."""
        if not self.parts:
            return
        tasks, kept = self._kept.setdefault(tuple(self.parts), (set(), []))
        tasks.add(self.task)
        kept.append(tuple(self.parts.values()))
        self._kept_nbytes += sum([part.nbytes for part in kept[-1]])
        self.parts.clear()
        if self._kept_nbytes > KEPT_NBYTES:
            for specs, (_, kept) in self._kept.items():
                kept[:] = [tuple(map(combine, specs, zip(*kept, strict=True)))]
            self._kept_nbytes = 0

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
        parts: dict[Spec, list[NDArray[Any]]] = {}
        for specs, (_, kept) in self._kept.items():
            for spec, column in zip(specs, zip(*kept, strict=True), strict=True):
                parts.setdefault(spec, []).extend(column)
        total = {spec: combine(spec, some) for spec, some in parts.items()}
        for spec, part in total.items():
            window.accumulate(spec.offset, part, spec.op)  # ours until the flush
        window.flush()  # before the row says DONE: who sees the result must see the contribution

    def take(self) -> Parts | None:
        """Return what a task has added in a process of its own, to be given to another."""
        parts, self.parts = self.parts, {}
        return parts or None

    def give(self, parts: Parts) -> None:
        """Take what a task has added in another process for what it has added here."""
        self.parts = parts

    def packed(self) -> bytes:
        """Return everything as bytes, for the driver to `unpack`."""
        groups = []
        for specs, (tasks, kept) in self._kept.items():
            parts = map(combine, specs, zip(*kept, strict=True))
            groups.append(Together(tasks, dict(zip(specs, parts, strict=True))))
        return pickle.dumps(groups)

    def clear(self) -> None:
        """Forget everything: the attempt is over."""
        self.task = 0
        self.parts.clear()
        self._kept.clear()
        self._kept_nbytes = 0


def unpack(packed: memoryview | bytes) -> list[Together]:
    """Return what an outcome carries."""
    groups: list[Together] = pickle.loads(packed)
    return groups


def combine(spec: Spec, parts: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """Return some parts of one accumulator combined; they stay as they are."""
    if len(parts) == 1:
        return parts[0]
    function = verbs.ufunc(spec.op)
    with np.errstate(all="ignore"):  # as MPI does; the task may have asked for errors
        combined = function(*parts) if len(parts) == 2 else function.reduce(parts)
    # What NumPy makes of shape () is a scalar, of small integers large ones, of logicals a bool.
    return np.asarray(combined, parts[0].dtype)


#: What the task that runs in this context has added; None outside of tasks.
current: ContextVar[Contributions | None] = ContextVar("workpool_contributions", default=None)
