"""Where the items of a map come from: all at once, or a window at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import Any

from ...whole import failures
from .call import Mapping
from .cutter import SEGMENT_ITEMS

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
    buffersize : int, optional
        Items taken ahead of the results.
    """

    def __init__(
        self, iterables: tuple[Iterable[Any], ...], star: bool, buffersize: int | None
    ) -> None:
        self.several = star or len(iterables) != 1
        self._items: Iterator[Any]  # those that are not taken
        self._all: Sequence[Any] = ()
        if self.several:
            self._items = arguments(iterables, star)
        elif isinstance(iterables[0], range) and buffersize is None:
            self._all, self._items = iterables[0], iter(())
        else:
            self._items = iter(iterables[0])
        # One window is one stretch of a map: the next is taken when it is used up.
        self._window = None if buffersize is None else min(buffersize // WINDOWS, SEGMENT_ITEMS)
        self._begun = False

    def all(self) -> Sequence[Any]:
        """Return all items."""
        return self._all or list(self._items)

    def feed(self, mapping: Mapping) -> Iterator[tuple[Any, ...]] | None:
        """Give a map its first windows, or the next one; return all items if it wants none."""
        if self._begun:
            self._feed_next(mapping)
            return None
        self._begun = True
        window: Sequence[Any] = self._all or list(islice(self._items, self._window))
        try:
            taken = mapping.add(window, last=True)
        except failures():  # sent one by one, the one that cannot be gets the blame
            taken = False
        if not taken:
            rest = chain(window, self._items)
            return rest if self.several else zip(rest)
        for _ in range(1, WINDOWS):
            self._feed_next(mapping)
        return None

    def _feed_next(self, mapping: Mapping) -> None:
        window = list(islice(self._items, self._window)) if self._window else []
        if window and not mapping.add_next(window):
            self._window = 0
