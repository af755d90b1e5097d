"""A worker's part in a range: it takes chunks of the items until its turn is over, then reports.

Many workers run one range at the same time, each with a row of its own.  What they share is the
counter of the range: whoever adds to it has the chunk.  A turn is short, so that results come back
while others are computed, and a worker that is lost costs no more than a turn.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from contextlib import suppress
from typing import Any

from .. import layout
from ..clock import monotonic
from ..errors import ProtocolError, WindowError
from ..layout import Descriptor
from ..reduction import Reduction
from ..schedule import Schedule, chunk
from ..serializer import Blocks, Encoded, Frozen, Packed, as_bytes, pack_value, unpack
from ..turns import TURN_ITEMS, Part, Turn
from .runner import EnteredPool, Evicted, Runner

#: A turn lasts for `TURN_ITEMS` items, but no longer than so many seconds; or, if that is more, for
#: so many chunks.
MOST_TURN_S = 25e-3
TURN_CHUNKS = 4

#: How long a chunk lasts when the schedule is adaptive, but for the last ones: the least, the most,
#: and in between so many times what it takes to get it.  That is a few microseconds; but some fifty
#: after a task that has slept, or whose data have filled the caches, and then all else that a chunk
#: costs grows likewise.
CHUNK_S = 2e-3
MOST_CHUNK_S = 50e-3
TAKES = 400

#: And how many times what comes before its first call: items are restored, and it is checked
#: whether what the function reads has changed, which may take long.  A chunk lasts at least as long
#: as that has taken, even if it is more than `MOST_CHUNK_S`.
READIES = 20

#: Items that take less than `LEAST_S` together are sooner done than shared out.  But the last ones
#: of many may be giants: so this counts only where all items seem to take less than `SHORT_S`.
LEAST_S = 50e-6
SHORT_S = 10e-3

#: How many times larger than the one before a chunk may be: a turn begins with one item, because
#: those of this range may cost more than the last ones did.  A function's first turn ends there,
#: too: what it costs is anybody's guess, and its first result is waited for.
GROWTH = 8

#: Results of so many bytes end a turn.
TURN_NBYTES = 1 << 20


class Pace:
    """How long the items of functions take on this worker, and how long chunks shall last."""

    #: Functions remembered.
    MOST = 1024

    def __init__(self) -> None:
        self._mean_s: dict[Hashable, float] = {}
        self._chunk_s = 0.0

    def turn_s(self, function: Hashable) -> float:
        """Return how long a turn lasts; 0 where nothing is known: it ends with its first chunk."""
        mean_s = self._mean_s.get(function)
        if mean_s is None:
            return 0.0
        return max(min(MOST_TURN_S, TURN_ITEMS * mean_s), TURN_CHUNKS * self._chunk_s)

    def count(self, function: Hashable, left: int, before: int) -> int:
        """Return how many items to take next: as many as a chunk, or a share of what is left."""
        mean_s = self._mean_s.get(function)
        if mean_s is None or not before:
            return 1
        return max(1, min(int(self._chunk_s / mean_s), left, GROWTH * before))

    def share(
        self,
        function: Hashable,
        total: int,
        seen: int,
        workers: int,
        before: int,
        look: Callable[[], int],
    ) -> int:
        """Return how many items to take next of the last ones, which all workers share.

        Others have taken as much while our last chunk ran: a share of the items that were seen to
        be left then may be all that are left.

        Parameters
        ----------
        function : hashable
        total : int
            How many items there were.
        seen : int
            How many were left.
        workers : int
        before : int
            How many were taken last.
        look : callable
            Returns how many are left now.
        """
        mean_s = self._mean_s.get(function, LEAST_S)
        least = int(LEAST_S / mean_s) if total * mean_s < SHORT_S else 0
        wanted = self.count(function, max(least, seen // (2 * workers)), before)
        if wanted > max(1, least) and seen < 4 * workers * wanted:
            wanted = self.count(function, max(least, look() // (2 * workers)), before)
        return wanted

    def measured(
        self,
        function: Hashable,
        items: int,
        elapsed_s: float,
        take_s: float,
        ready_s: float = 0.0,
    ) -> None:
        """Take in how long some items took, and how long it took to get them and to be ready."""
        if function not in self._mean_s:  # this once, the function was fetched as well
            ready_s = 0.0
        all_s = max(TAKES * take_s, READIES * ready_s)
        wanted_s = max(CHUNK_S, min(MOST_CHUNK_S, all_s), ready_s)
        usual_s = self._chunk_s or wanted_s
        # Bounded: now and then it seems long because another process had the core.
        self._chunk_s = usual_s + 0.2 * (min(wanted_s, 2 * usual_s) - usual_s)
        latest_s = max(elapsed_s, 1e-9) / items
        mean_s = self._mean_s.get(function, latest_s)
        if len(self._mean_s) >= self.MOST:
            self._mean_s.clear()
        self._mean_s[function] = mean_s + 0.5 * (latest_s - mean_s)


class TurnRun:
    """One turn of a worker in a range.

    Parameters
    ----------
    runner : Runner
    pool : EnteredPool
        Whose items they are.
    pace : Pace
    take : callable
        ``take(count)``: takes so many items of the range, as far as there are.
    descriptor : Descriptor
        Of the turn.
    terms : Terms
    blocks : Blocks
        The items.
    """

    def __init__(
        self,
        runner: Runner,
        pool: EnteredPool,
        pace: Pace,
        take: Callable[[int], range],
        descriptor: Descriptor,
        terms: layout.Terms,
        blocks: Blocks,
    ) -> None:
        self._runner = runner
        self._pool = pool
        self._pace = pace
        self._take_items = take
        self._items = descriptor.items
        self._code_id = descriptor.code.blob_id
        self._terms = terms
        self._schedule = Schedule(terms.schedule)
        self._blocks = blocks
        self._left = terms.total  # as last seen
        self._count = 0  # of the last chunk
        self._over_s = 0.0  # when the turn is over
        self._parts: list[Part] = []
        self._failed: bytes | None = None
        self._before_failed: list[tuple[int, int]] = []  # in its chunk, if an item has failed
        self.exhausted = False  # whether no items are left to be taken
        sent = blocks.function()
        self._reduction = sent if isinstance(sent, Reduction) else None
        self._sent = self._reduction.function if self._reduction is not None else sent
        # What is measured is kept by the function's number; one that comes with the items has none.
        alone = self._sent is None and self._code_id
        self._function: Hashable = self._code_id if alone else descriptor.items

    def run(self) -> Encoded:
        """Take chunks and run them until the turn is over; return the report.

        Notes
        -----
        RMA cost: for each chunk 1 fetch_add, 1 more towards the end, 1 load, 1 get and 1 flush.
        """
        nbytes = 0
        end = monotonic()
        self._over_s = end + self._pace.turn_s(self._function)
        while taken := self._take():
            self._settle()
            asked, start = end, monotonic()
            if self._schedule is Schedule.ADAPTIVE:  # chunks soon become large, and few
                self._over_s += start - asked  # over a network, two may take as long as a turn
            began = self._run_chunk(taken)
            nbytes += len(self._parts[-1].encoded)
            end = monotonic()
            self._pace.measured(
                self._function, len(taken), end - began, start - asked, began - start
            )
            if end >= self._over_s or nbytes >= TURN_NBYTES or self._failed is not None:
                break
        parts, covered = self._parts, []
        if self._reduction is not None:
            covered = [(part.start, part.total) for part in parts]
            parts = self._folded()
            if self._failed is not None:
                covered = self._before_failed
        return Turn(parts, self._failed, self.exhausted, covered).encoded()

    def _settle(self) -> None:
        """Copy the arrays among the last results, which the next call may change."""
        if self._parts and isinstance(self._parts[-1].encoded, Packed):
            last = self._parts[-1]
            self._parts[-1] = last._replace(encoded=as_bytes(last.encoded))

    def _take(self) -> range:
        """Take the next chunk; empty if none is left."""
        count = 1
        if self._schedule is Schedule.ADAPTIVE:
            count = self._count = self._wanted()
        taken = self._take_items(count)
        self.exhausted = taken.stop == self._items.total
        self._left = self._items.total - taken.stop
        if taken and self._schedule is not Schedule.ADAPTIVE:
            taken = chunk(self._schedule, self._terms.total, self._terms.workers, taken.start)
        return range(self._terms.first + taken.start, self._terms.first + taken.stop)

    def _wanted(self) -> int:
        """Return how many items to take by the worker's own measure."""
        if not self._terms.last:
            return self._pace.count(self._function, self._left, self._count)
        return self._pace.share(
            self._function,
            self._items.total,
            self._left,
            self._terms.workers,
            self._count,
            self._look,
        )

    def _look(self) -> int:
        """Return how many items nobody has taken.  RMA cost: 1 fetch_add."""
        return self._items.total - self._take_items(0).start

    def _run_chunk(self, taken: range) -> float:
        """Run a chunk and keep its part of the results; return when its first call began."""
        began = 0.0
        function = self._sent
        if function is None:
            start = monotonic()
            function = self._pool.callables.get(self._code_id)
            # This does not count as time of the turn, which otherwise would be over after one call
            # of a function that takes long to restore.
            self._over_s += monotonic() - start
        values: list[Any] = []
        pieces = self._blocks.pieces(taken, self._pool.callables.restores)
        while self._failed is None:
            try:
                if self._blocks.repeats:  # as for a task of its own
                    function = self._pool.callables.get(self._code_id)
                sent, items = next(pieces)
            except StopIteration:
                break
            except (Evicted, ProtocolError, WindowError):
                raise  # ours, not the task's
            except BaseException as error:  # restoring an item may run anything
                self._failed = self._runner.failure(error, function)
            else:
                function = function if sent is None else sent
                began = began or monotonic()
                found, self._failed = self._runner.call_items(
                    function, items, self._blocks.several, apart=len(taken) > 1
                )
                values += found
        total = len(values)
        if self._failed is not None:
            self._before_failed = [(taken.start, total)]
        if self._reduction is not None:
            values = self._fold(values)
        encoded, count = self._encode(values, function)
        if isinstance(encoded, Packed) and len(taken) == 1:  # others hold what is theirs
            encoded.held = function, items
        self._parts.append(Part(taken.start, total if count == len(values) else count, encoded))
        return began or monotonic()

    def _fold(self, values: list[Any]) -> list[Any]:
        """Return a list of what some values are folded to; an empty one if anything has failed."""
        assert self._reduction is not None
        if self._failed is not None:
            return []
        try:
            thawed = [value.thaw() if type(value) is Frozen else value for value in values]
            return self._reduction.fold(thawed)
        except BaseException as error:  # the operation is the user's, or the values' own
            self._failed = self._runner.failure(error, self._reduction.operation)
            return []

    def _folded(self) -> list[Part]:
        """Return the parts of a turn as one; none if something has failed: they lack its values."""
        if self._failed is not None:
            return []
        values = [value for part in self._parts for value in unpack(as_bytes(part.encoded))]
        total = sum(part.total for part in self._parts)
        encoded, _ = self._encode(self._fold(values), None)
        if self._failed is not None:  # to count these items would make do without the others
            return []
        return [Part(part.start, total, encoded) for part in self._parts[:1]]

    def _encode(self, values: list[Any], function: object) -> tuple[Encoded, int]:
        """Encode results; what cannot be encoded fails its item, and with it the end of the chunk.

        Returns
        -------
        encoded : bytes or Packed
        count : int
            How many of them.
        """
        with suppress(Exception):  # which says nothing of the item
            return pack_value(values, function), len(values)
        for i, value in enumerate(values):
            try:
                pack_value(value, function)
            except Exception as error:
                self._failed = self._runner.failure(error, function)
                return self._encode(values[:i], function)
        return pack_value(values, function), len(values)
