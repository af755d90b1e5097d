"""What tasks add to accumulators, kept by their worker until it counts; see ``accumulator``."""

from __future__ import annotations

import math
import pickle
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


#: What was added to accumulators, each one's parts combined.
Parts: TypeAlias = "dict[Spec, NDArray[Any]]"


class Together(NamedTuple):
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
        self._kept: dict[tuple[Spec, ...], Together] = {}  # of the tasks that have ended well

    def __bool__(self) -> bool:
        return bool(self._kept)

    @property
    def foreign(self) -> bool:
        """Whether there are any to an accumulator of another pool."""
        return any(spec.pool != self.pool for specs in self._kept for spec in specs)

    def add(self, spec: Spec, values: NDArray[Any]) -> None:
        """Combine `values`, which nobody else changes, with what the task has added before."""
        combine(self.parts, spec, values)

    def keep(self) -> None:
        """The task has ended well: what it added, if anything, counts if the attempt does."""
        if not self.parts:
            return
        specs = tuple(self.parts)
        group = self._kept.get(specs)
        if group is None:
            group = self._kept[specs] = Together(set(), {})
        group.tasks.add(self.task)
        for spec, part in self.parts.items():
            combine(group.parts, spec, part)
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
                combine(total, spec, part)
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
        return pickle.dumps(list(self._kept.values()))

    def clear(self) -> None:
        """Forget everything: the attempt is over."""
        self.task = 0
        self.parts.clear()
        self._kept.clear()


def unpack(packed: memoryview | bytes) -> list[Together]:
    """Return what an outcome carries."""
    groups: list[Together] = pickle.loads(packed)
    return groups


def combine(parts: Parts, spec: Spec, part: NDArray[Any]) -> None:
    """Combine a part with what is there of its accumulator."""
    known = parts.get(spec)
    if known is not None:
        with np.errstate(all="ignore"):  # as MPI does; the task may have asked for errors
            combined = verbs.ufunc(spec.op)(known, part)
        part = np.asarray(combined, part.dtype)  # of two arrays of shape () NumPy makes a scalar
    parts[spec] = part


#: What the task that runs in this context has added; None outside of tasks.
current: ContextVar[Contributions | None] = ContextVar("workpool_contributions", default=None)
