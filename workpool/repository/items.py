"""Items that many workers share: one ``Fetch_and_op`` hands out the next ones.

The workers of a ``map`` take their chunks from a counter that stands for its items, and the driver
takes all that are left when nobody wants them any more: whoever adds first has them.  A taker may
be taken for dead and still add once more, long after; so counters only grow, and one is lent to
other items only when nothing is left of the last ones.
"""

from __future__ import annotations

from .. import verbs
from ..layout import Geometry, Items


def take_items(window: verbs.Window, geometry: Geometry, items: Items, count: int) -> range:
    """Take up to `count` of what is left; an empty range when nothing is.

    Notes
    -----
    RMA cost: 1 fetch_add.
    """
    # Unconditional: what it hands out is ours alone, whatever others do at the same time.
    start = window.fetch_add(geometry.counter(items.counter), count) - items.base
    return range(min(start, items.total), min(start + count, items.total))


class Counters:
    """Lends the counters of a table; for its driver alone.

    Parameters
    ----------
    window : verbs.Window
    geometry : Geometry
    """

    def __init__(self, window: verbs.Window, geometry: Geometry) -> None:
        self._window = window
        self._geometry = geometry
        self._free = list(range(geometry.rows))

    def lend(self, total: int) -> Items | None:
        """Return `total` items that nobody has taken; None while every counter is lent.

        Notes
        -----
        RMA cost: 1 fetch_add.
        """
        if not self._free:
            return None
        index = self._free.pop()
        # Never set back: a late taker of earlier items adds to it, and must find them all gone.
        return Items(index, self._window.fetch_add(self._geometry.counter(index), 0), total)

    def exhaust(self, items: Items) -> None:
        """Take all items that are left.  RMA cost: 1 fetch_add."""
        take_items(self._window, self._geometry, items, items.total)

    def take_back(self, items: Items) -> None:
        """Have a counter back, and with it all items that are left.  RMA cost: 1 fetch_add."""
        self.exhaust(items)
        self._free.append(items.counter)
