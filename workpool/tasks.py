"""The driver's records of tasks.

A ``Task`` lives from ``submit`` to its future; a ``Batch`` is what one row of the table stands for,
``Shared`` what many rows need, and ``Finished`` what became of a row.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from .context import CALL, Context, TaskKind
from .contributions import Together
from .extents import Extent
from .layout import Blob, Items, Terms
from .loss import Loss
from .repository import Row
from .serializer import Encoded, Packed


class Shared:
    """Bytes that many tasks need, and where the workers find them.

    Parameters
    ----------
    blob_id : int
        Workers remember what they have by it: codes have numbers of their own, and so do contexts.
    content : bytes or Packed
    """

    def __init__(self, blob_id: int, content: Encoded) -> None:
        self.blob_id = blob_id
        self.content = content
        self.placed: Blob | None = None  # where workers find it, once it is in the window
        self.users = 0  # rows
        self.kept = True  # more tasks may need them


class SharedCode(Shared):
    """The code of a function, and how long its tasks take.

    Attributes
    ----------
    mean_s : float or None
        Of the last tasks; None as long as there are none.
    slow : float
        The share of them that took `SLOW_NS`.
    """

    SLOW_NS = 2_000_000

    #: How much of its weight a task keeps in the mean, and in the share, with each that follows.
    MEAN_KEEPS = 0.95
    SHARE_KEEPS = 0.99

    #: Tasks that tell how long others take.
    ENOUGH = 16

    def __init__(self, blob_id: int, content: Encoded) -> None:
        super().__init__(blob_id, content)
        self.mean_s: float | None = None
        self.slow = 0.0
        self._tasks = 0  # that count in both
        self._owners: set[int] = set()

    def measured(self, owner: int, times_ns: Sequence[int]) -> None:
        """Take in how long some tasks took, all of them with one member.

        The first one there restores the function, and may import what that uses: the longest of its
        first ones counts only as long as nothing else is known.
        """
        if owner not in self._owners:
            self._owners.add(owner)
            *times_ns, first_ns = sorted(times_ns)
            if self.mean_s is None:
                self.mean_s, self.slow = 1e-9 * first_ns, float(first_ns > self.SLOW_NS)
        if not times_ns:
            return
        assert self.mean_s is not None
        tasks = len(times_ns)
        self._tasks += tasks
        mean_s = 1e-9 * sum(times_ns) / tasks
        slow = 0.0
        if max(times_ns) > self.SLOW_NS:
            slow = sum(time_ns > self.SLOW_NS for time_ns in times_ns) / tasks
        self.mean_s += self._part(self.MEAN_KEEPS, tasks) * (mean_s - self.mean_s)
        self.slow += self._part(self.SHARE_KEEPS, tasks) * (slow - self.slow)

    def lasts(self, owner: int, time_ns: int) -> None:
        """Take in how long a task takes that has not ended, unless it is the first one there."""
        if owner in self._owners:
            self.measured(owner, [time_ns])

    def _part(self, keeps: float, tasks: int) -> float:
        """Return the weight of the latest tasks in a mean: that of all together is 1."""
        return (1 - keeps**tasks) / (1 - keeps**self._tasks)

    @property
    def known(self) -> bool:
        """Whether enough tasks were measured to tell how long the next ones take."""
        return self._tasks >= self.ENOUGH


class Tally:
    """What each worker has done for one pool.

    Attributes
    ----------
    tasks, elapsed_ns : collections.Counter
        By member: tasks whose outcomes have come, and how long they took; for the driver to count.
    items : collections.Counter
        Those of maps, in the place of their turns; for the pool to count.
    """

    def __init__(self) -> None:
        self.tasks: Counter[int] = Counter()
        self.elapsed_ns: Counter[int] = Counter()
        self.items: Counter[int] = Counter()


class PoolContext(Shared):
    """A pool as its tasks know it: what its workers do first, and where outcomes go.

    Parameters
    ----------
    blob_id : int
        As for ``Shared``.
    context : Context
    resolve : callable
        ``resolve(finished)``: called outside of every lock, again if it was interrupted.
    write_down : callable
        ``write_down(several)``: called with what will be resolved, before it is.
    tally : Tally
        Of the pool.

    Attributes
    ----------
    journaled : bool
        Whether results of some tasks go into a journal.
    """

    def __init__(
        self,
        blob_id: int,
        context: Context,
        resolve: Callable[[Finished], None],
        write_down: Callable[[Iterable[Finished]], None],
        tally: Tally,
    ) -> None:
        super().__init__(blob_id, context.encoded())
        self.pool_id = context.pool_id
        self.isolated = context.limits is not None
        self.resolve = resolve
        self.write_down = write_down
        self.tally = tally
        self.journaled = False


class Segment(Shared):
    """The items of a range, or some of them, that workers share out among themselves.

    Parameters
    ----------
    blob_id, content
        As for ``Shared``; of ``encode_blocks``.
    tickets : int
        How far its counter goes.
    terms : Terms

    Attributes
    ----------
    items : Items or None
        Behind its counter; None as long as it has none.
    turns : int
        Of workers in it, under way.
    """

    def __init__(self, blob_id: int, content: Encoded, tickets: int, terms: Terms) -> None:
        super().__init__(blob_id, content)
        self.tickets = tickets
        self.terms = terms
        self.items: Items | None = None
        self.turns = 0


class Retry(NamedTuple):
    """When a task that has failed is tried again."""

    retries: int
    delay_s: float
    on: tuple[type[BaseException], ...]


class Task:
    """A submitted call, from ``submit`` until its future is resolved.

    Parameters
    ----------
    task_id : int
    kind : TaskKind
    function : callable
        For messages.
    context : PoolContext
    payload : bytes or Packed
        The encoded call; nothing if it lies in the arena, unless it may be needed once more.
    future : object
        Whose task it is.
    retry : Retry, optional
        Whether it is tried again when it fails.
    noted : Noted, optional
        If its results go into a journal, their keys.
    segment : Segment, optional
        If it is a turn in a range, the items.
    """

    __slots__ = (
        "attempt",
        "batch",
        "code",
        "context",
        "crashes",
        "extent",
        "failures",
        "function",
        "future",
        "in_doubt",
        "kind",
        "noted",
        "over",
        "payload",
        "retry",
        "segment",
        "task_id",
    )

    def __init__(
        self,
        task_id: int,
        kind: TaskKind,
        function: Callable[..., Any],
        context: PoolContext,
        payload: Encoded,
        future: Any,
        retry: Retry | None = None,
        noted: Any = None,
        *,
        segment: Segment | None = None,
    ) -> None:
        self.task_id = task_id
        self.kind = kind
        self.function = function
        self.code: SharedCode | None = None
        self.context = context
        self.payload = payload
        self.extent: Extent | None = None  # of its payload alone, until it is over
        self.in_doubt = False  # whether a row that nobody has noted may name it
        self.future = future
        self.segment = segment
        self.noted = noted
        if noted is not None:
            context.journaled = True
        self.batch: Batch | None = None  # in whose row it is
        self.retry = retry
        self.attempt = 0
        self.failures = 0  # attempts that count against its retries
        self.crashes = 0  # processes that have ended under it
        self.over = False  # cancelled, or its outcome is fetched

    def keep(self) -> None:
        """Keep the arguments as they are now, if they are still the caller's own, and not lent."""
        if isinstance(self.payload, Packed):
            self.payload = self.payload.keep()
            if self.batch is not None:
                self.batch.payload = self.payload

    def goes_with(self, other: Task) -> bool:
        """Return whether the two may share a row: they differ in nothing but their arguments."""
        return (
            self.code is other.code
            and self.context is other.context
            and self.kind == CALL
            and not self.attempt
            and (self.extent is None) is (other.extent is None)
            and (self.extent is not None or isinstance(self.payload, bytes))
        )


#: In the place of the row of a batch that was never published.
NOWHERE = Row(-1, 0)

#: Shared bytes that a row needs.
Holds: TypeAlias = tuple[Shared | None, ...]


class Batch:
    """What one row stands for: a task, or several short ones of one function.

    Parameters
    ----------
    tasks : list of Task
        Of one pool, one function and one attempt.
    payload : bytes or Packed
        The task's own, or all of them joined, with the extents of those that lie apart.
    """

    __slots__ = ("claimed_s", "extent", "holds", "incoming", "lost", "payload", "row", "tasks")

    def __init__(self, tasks: list[Task], payload: Encoded) -> None:
        self.tasks = tasks
        self.payload = payload
        self.extent: Extent | None = None  # of the payload, while its row is there
        self.holds: Holds = ()  # what its descriptor names, as well as others'
        self.row = NOWHERE  # as published
        self.incoming: memoryview | None = None  # an outcome that comes in pieces
        self.claimed_s: float | None = None  # when it was first seen to run
        self.lost: Loss | None = None  # why its outcome does not count, though it is there

    def doubt(self, in_doubt: bool) -> None:
        """Say whether a row that nobody has noted may name the payloads, which lie apart."""
        for task in self.tasks:
            task.in_doubt = in_doubt

    @property
    def placed(self) -> bool:
        """Whether something of its payload lies in the arena."""
        return self.extent is not None or any(task.extent is not None for task in self.tasks)


#: What became of a task: the kind of the outcome, and its bytes.
Outcome: TypeAlias = tuple[Task, int, "memoryview | bytes"]


class Finished:
    """What became of the tasks of one row, on its way to their futures.

    Parameters
    ----------
    context : PoolContext
    owner : int
        The member that ran them.
    outcomes : iterable of Outcome
    carried : list of Together
        Contributions to accumulators that nobody has added yet, by their places in the row.

    Attributes
    ----------
    adding : bool
        Whether the last of `carried` is just being added; not for long, unless that was cut off.
    written : bool
        Whether nothing is left to write down before anybody may see the outcomes.
    failures : mapping of Ledger to BaseException
        By journal, why results could not be stored there.
    """

    __slots__ = ("adding", "carried", "context", "failures", "outcomes", "owner", "written")

    def __init__(
        self,
        context: PoolContext,
        owner: int,
        outcomes: Iterable[Outcome],
        carried: Iterable[Together] = (),
    ) -> None:
        self.context = context
        self.owner = owner
        self.outcomes = deque(outcomes)
        self.carried = list(carried)
        self.adding = False
        self.written = not self.carried
        if context.journaled and self.written:  # most pools have no journal
            self.written = all(task.noted is None for task, _, _ in self.outcomes)
        self.failures: Mapping[Any, BaseException] = {}
