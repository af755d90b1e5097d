"""Where the items of a map come from: all at once, or a window at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import Any

from ...interrupts import failures
from .call import MapCall
from .cutter import RANGE_ITEMS, SEGMENT_ITEMS

#: Parts of a buffer that are filled and used up one after another; a smaller one is not cut.
WINDOWS = 4
LEAST_BUFFERSIZE = 1024

#: So few items for each worker are not worth sharing out.
FEW = 8


def few(iterables: tuple[Iterable[Any], ...], workers: int) -> bool:
    """Return whether one sees that there are few items: then each had better come by itself."""
    most = FEW * workers
    for items in iterables:
        if isinstance(items, range):
            items = items[: most + 1]  # a long one has no len
        if isinstance(items, (list, tuple, range)) and len(items) <= most:
            return True
    return False


def holds(items: Iterable[Any]) -> bool:
    """Return whether items live as long as what has them: what yields them may reuse one."""
    return isinstance(items, (list, tuple)) or hasattr(items, "__array_interface__")


def arguments(iterables: tuple[Iterable[Any], ...], star: bool) -> Iterator[tuple[Any, ...]]:
    """Return the arguments of each call: the items of one iterable, or one item of each."""
    return map(tuple, iterables[0]) if star else zip(*iterables, strict=False)


class Source:
    """The items of a map: all at once, or a window at a time.

    Parameters
    ----------
    iterables : tuple of iterable
    star : bool
        Whether there is one, of tuples of arguments.
    buffersize : int or None
        Items taken ahead of the results; None: all at once.
    """

    def __init__(
        self, iterables: tuple[Iterable[Any], ...], star: bool, buffersize: int | None
    ) -> None:
        self.several = star or len(iterables) != 1
        # Those that are not taken: a range, or whatever there is.
        self._range: range | None = None
        self._items: Iterator[Any] = iter(())
        if self.several:
            self._items = arguments(iterables, star)
        elif isinstance(iterables[0], range) and buffersize is None:
            self._range = iterables[0]
        else:
            self._items = iter(iterables[0])
        # When one is used up, the next is taken.
        self._window = None if buffersize is None else min(buffersize // WINDOWS, SEGMENT_ITEMS)

    def all(self) -> Sequence[Any]:
        """Return all items."""
        return list(self._items) if self._range is None else self._range

    def begin(self, mapping: MapCall) -> Iterator[tuple[Any, ...]] | None:
        """Give a map its first windows; return all items if it wants none."""
        window = self._next()
        try:
            taken = mapping.begin(window, only=self._window is None)
        except failures():
            if mapping.started:
                raise
            taken = False  # sent one by one, the one that cannot be gets the blame
        if not taken:
            rest = chain(window, self._range or (), self._items)
            return rest if self.several else zip(rest)
        for _ in range(1, WINDOWS):
            self.feed(mapping)
        return None

    def feed(self, mapping: MapCall) -> None:
        """Give a map the next window."""
        window = () if mapping.refused else self._next()
        if window:
            mapping.add(window)

    def _next(self) -> Sequence[Any]:
        """Take the next window."""
        if self._range is None:
            items = list(islice(self._items, self._window))
            if self._window is None:
                self._items = iter(())  # asked once, an iterator need not end for good
            return items
        window, self._range = self._range[:RANGE_ITEMS], self._range[RANGE_ITEMS:]
        return window
