"""A stretch of the items of a map, from when it is shared out until its results are used up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...journal.ledger import Plan
from ...loss import Loss
from ...serializer import Code
from ...tasks import Segment, Task
from ...turns import Part

if TYPE_CHECKING:
    from .turns import TurnFuture

#: Spans of items that are noted before they are joined: a range may take days.
TIDY = 1024


class Stretch:
    """Some items of a map: what is shared out of them, and what has come.

    Parameters
    ----------
    segment : Segment
        All of them, as they are shared out first.
    items : int
        How many.
    plan : Plan or None
        What a journal has of the items that they were among.
    code : Code or None
        Of the function: what the items refer to comes with it.
    weight : int
        How many small items would take as much room.
    last : bool
        Whether they are the last of those that the map was given together.
    """

    def __init__(
        self,
        segment: Segment,
        items: int,
        plan: Plan | None,
        code: Code | None,
        weight: int,
        last: bool,
    ) -> None:
        self.segments = [segment]  # what is shared out of it now
        self.items = items
        self.plan = plan
        self.code = code
        self.weight = weight
        self.last = last
        #: Start and stop of spans of items that are not missing: reported, or of no use any more.
        self.covered: list[tuple[int, int]] = []
        #: By its first item each part of the results, and what the item after it has raised.
        self.parts: dict[int, tuple[Part, bytes | None]] = {}
        self.left = items  # items whose results are not used up
        self.fresh = True  # whether results that a journal has are not used up
        self.first = 0  # the place of its first item among all that the map was given
        self.turns = 0  # turns under way
        self._tidy_at = TIDY  # spans at which they are joined
        self.tasks: dict[TurnFuture, Task] = {}  # the tasks of turns under way
        self.taken = False  # whether workers have taken all of it
        self.death: Loss | None = None  # of a worker that had a turn since it was last shared out
        self._deaths: list[tuple[range, int]] = []  # items, and how many workers have died at them

    @property
    def total(self) -> int:
        """How many items there are, with those that a journal has."""
        return self.items if self.plan is None else self.plan.total

    @property
    def has_some(self) -> bool:
        """Whether there may be results that are not used up."""
        return bool(self.fresh or self.parts)

    def place(self, at: int) -> int:
        """Return which one of all that the map was given an item is."""
        return self.first + (at if self.plan is None else self.plan.place(at))

    def cover(self, spans: Sequence[tuple[int, int]]) -> None:
        """Note items that are not missing: the first of a span, and the one after its last."""
        self.covered += spans
        if len(self.covered) < self._tidy_at:
            return
        covered, self.covered = sorted(self.covered), []
        first, end = covered[0]
        for start, stop in covered[1:]:
            if start > end:
                self.covered.append((first, end))
                first = start
            end = max(end, stop)
        self.covered.append((first, end))
        self._tidy_at = TIDY + 2 * len(self.covered)

    def missing(self) -> list[range]:
        """Return the items that nobody has reported, though they were taken and are of use."""
        found, end = [], 0
        for start, stop in [*sorted(self.covered), (self.items, self.items)]:
            if start > end:
                found.append(range(end, start))
            end = max(end, stop)
        return found

    def count_death(self, missing: list[range]) -> int:
        """Count a death against the items that are missing; return the most that any has now."""
        self.death = None
        before, self._deaths = self._deaths, []
        for some in missing:
            known = [deaths for items, deaths in before if _meet(some, items)]
            self._deaths.append((some, 1 + max(known, default=0)))
        return max((deaths for _, deaths in self._deaths), default=0)


def _meet(some: range, others: range) -> bool:
    return some.start < others.stop and others.start < some.stop
