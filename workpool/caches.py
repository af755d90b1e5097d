"""Caches: of what was used last, bounded in number and in bytes; and of one answer per class."""

from __future__ import annotations

import weakref
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Final, Generic, TypeVar

_V = TypeVar("_V")


class LruCache(OrderedDict[int, _V]):
    """A dictionary whose user calls `use` for what may be there and `keep` for each new entry.

    Parameters
    ----------
    capacity : int
        Entries kept.
    max_nbytes : int
        Bytes kept, of all entries together; an entry larger than this is not kept.  Where entries
        are kept without their sizes, only their number counts.
    """

    def __init__(self, capacity: int, max_nbytes: int = 0) -> None:
        super().__init__()
        self._capacity = capacity
        self._max_nbytes = max_nbytes
        self._each_nbytes: dict[int, int] = {}
        self.nbytes = 0

    def use(self, key: int) -> _V | None:
        """Return an entry, the latest now; None if it is not there."""
        try:
            self.move_to_end(key)
        except KeyError:
            return None
        return self.get(key)  # another thread may drop it just now

    def keep(self, key: int, entry: _V, nbytes: int = 0) -> None:
        """Add or replace an entry as the latest, and drop the oldest beyond the bounds."""
        self.drop(key)
        if nbytes > self._max_nbytes:
            return
        self[key] = entry
        self._each_nbytes[key] = nbytes
        self.nbytes += nbytes
        while len(self) > self._capacity or self.nbytes > self._max_nbytes:
            oldest, _ = self.popitem(last=False)  # at once: others may call move_to_end meanwhile
            self.nbytes -= self._each_nbytes.pop(oldest, 0)  # another thread is about to add it

    def drop(self, key: int) -> None:
        """Forget an entry if it is there."""
        if self.pop(key, None) is not None:
            self.nbytes -= self._each_nbytes.pop(key, 0)

    def drop_if(self, over: Callable[[_V], bool]) -> None:
        """Forget the entries of which `over` says so."""
        for key, entry in tuple(self.items()):
            if over(entry):
                self.drop(key)

    def clear(self) -> None:
        """Forget every entry."""
        super().clear()
        self._each_nbytes.clear()
        self.nbytes = 0


class WeakLruCache(Generic[_V]):
    """What is known of the most recently used of some objects, as long as these live.

    Parameters
    ----------
    capacity : int
        Objects.
    """

    def __init__(self, capacity: int) -> None:
        self._entries: LruCache[tuple[weakref.ref[Any], _V]] = LruCache(capacity)

    def get(self, of: object) -> _V | None:
        """Return what is known of an object; None if nothing, or only of one with its id before."""
        found = self._entries.use(id(of))
        return found[1] if found is not None and found[0]() is of else None

    def keep(self, of: object, known: _V) -> bool:
        """Note something of an object; return False if that cannot have weak references."""
        try:
            self._entries.keep(id(of), (weakref.ref(of), known))
        except TypeError:
            return False
        return True


MOST_CLASSES: Final = 256
"""Classes of which an answer is remembered."""


def once_for_each_class(ask: Callable[[Any], _V]) -> Callable[[Any], _V]:
    """Return a function that asks once for each class; the answer must not refer to the class.

    A class is not kept alive for it: its methods may read whatever is large.

    Notes
    -----
    Cost: 0.1 us.
    """
    answers: dict[weakref.ref[type], _V] = {}

    def answer(cls: Any) -> _V:
        try:
            return answers[weakref.ref(cls)]
        except KeyError:
            if len(answers) >= MOST_CLASSES:
                answers.clear()
            return answers.setdefault(weakref.ref(cls), ask(cls))

    return answer
