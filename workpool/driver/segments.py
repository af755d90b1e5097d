"""Which ranges have a counter, from which workers take their items."""

from __future__ import annotations

from weakref import WeakSet

from .. import verbs
from ..layout import Geometry
from ..repository import Counters
from ..tasks import Segment


class Segments:
    """The ranges of one driver.  Not thread-safe: its driver holds the lock.

    Parameters
    ----------
    window : verbs.Window
    geometry : Geometry
    """

    def __init__(self, window: verbs.Window, geometry: Geometry) -> None:
        self._counters = Counters(window, geometry)
        #: Those that may have a counter.  One that was lost when a signal's handler raised is gone
        #: from here as soon as nobody has its map; then `lend` has its counter back.
        self._living: WeakSet[Segment] = WeakSet()

    def lend(self, segment: Segment) -> bool:
        """Return whether a range has its counter; lend it one if there is any.

        Notes
        -----
        RMA cost: as ``Counters.lend``.
        """
        if segment.items is None:
            others = (other.items for other in self._living)
            known = {items.counter for items in others if items is not None}
            items = self._counters.lend(segment.tickets, known)
            self._living.add(segment)  # first: else the counter might be taken for lost
            segment.items = items
        return segment.items is not None

    def exhaust(self, segment: Segment) -> None:
        """Take what is left of a range: no worker shall have it.  RMA cost: 2 fetch_add."""
        if segment.items is not None:
            self._counters.exhaust(segment.items)

    def take_back(self, segment: Segment) -> None:
        """Have the counter of a range back.  RMA cost: 2 fetch_add."""
        items, segment.items = segment.items, None  # first: never twice, for it is lent again
        self._living.discard(segment)
        if items is not None:
            self._counters.take_back(items)
