"""Items that many workers share: one ``Fetch_and_op`` hands out the next ones.

The workers of a ``map`` take their chunks from a counter that stands for its items, and the driver
takes all that are left when nobody wants them any more: whoever adds first has them.

A worker that was taken for dead may still add once more, long after.  So a counter only grows, and
is lent to other items only when it has passed the end of the last ones: the late worker then finds
that nothing is left for it.  But what it has added skips as many of the items that the counter now
stands for, and nobody gets those.  Nobody reports them either, so they are found missing when all
else has been reported, and are shared out anew: see ``pool.mapping.stretch``.
"""

from __future__ import annotations

from collections.abc import Container

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
        self._lent: dict[int, Items] = {}

    def lend(self, total: int, known: Container[int]) -> Items | None:
        """Return `total` items that nobody has taken; None while every counter is lent.

        Parameters
        ----------
        total : int
        known : container of int
            Counters that somebody will take back.  Others that are lent were lost when a signal's
            handler raised in the middle of a step, and are taken back first.

        Notes
        -----
        RMA cost: 1 fetch_add, 2 more for each that was lost.
        """
        for items in tuple(self._lent.values()):
            if items.counter not in known:
                self.take_back(items)
        index = next((i for i in range(self._geometry.rows) if i not in self._lent), None)
        if index is None:
            return None
        # Never set back: a late worker may still add to it, and must find its items all gone.
        base = self._window.fetch_add(self._geometry.counter(index), 0)
        items = self._lent[index] = Items(index, base, total)
        return items

    def exhaust(self, items: Items) -> None:
        """Take all items that are left.  RMA cost: 2 fetch_add, 1 if nothing is."""
        counter = self._geometry.counter(items.counter)
        # No more than what is left: a counter's 63 bits are for all items that it will ever serve.
        left = items.base + items.total - self._window.fetch_add(counter, 0)
        if left > 0:
            self._window.fetch_add(counter, left)

    def take_back(self, items: Items) -> None:
        """Have a counter back, and with it all items that are left.  RMA cost: as `exhaust`."""
        self.exhaust(items)
        del self._lent[items.counter]
