"""What the items of a map repeat, as in ``map(f, xs, repeat(table))``: it crosses once for all.

Each call gets a copy of its own all the same, as if everything had come with its item.  Plain data
that an item alone has stands in its block.  The *rest* of the item is one pickle, which items with
the very same rest share, and of which each is restored anew.  So that what is one thing within an
item is one thing where it is called as well, neither must have anything of the other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any, Final, NamedTuple

from ..lazy import np
from ..system.memory import empty
from .atoms import ATOMS, is_unchanging
from .common import with_places, without_places
from .frames import Buffer, as_bytes, unpack
from .reach import Reach
from .references import Refer
from .values import encode

SLIGHT: Final = 16
"""Elements of a tuple that stands in each item, though items repeat it."""

SLIGHT_NBYTES: Final = 256
"""Likewise characters of a string."""

FIRST: Final = 4
"""Items that are looked at first, to see whether the rest of them might be one."""


class Repeated(NamedTuple):
    """Items and what they repeat."""

    items: list[tuple[int, Any]]
    """Of each the number of its rest, and itself with places for that."""
    rests: list[list[Any]]
    own: dict[int, Any]
    """By its id, what in single items can be changed."""


def repeated(items: Sequence[Any]) -> Repeated | None:
    """Return what items repeat; None if most have a rest that no other has.

    Notes
    -----
    Cost: 5 us for an item of two atoms.
    """
    found = Repeated([], [], {})
    numbers: dict[tuple[int, ...], int] = {}
    uses = Counter(id(it) for args in map(_arguments, items) for it in args)
    first = chain.from_iterable(map(_arguments, items[:FIRST]))
    if all(uses[id(it)] == 1 or _is_slight(it) for it in first):
        return None
    for item in items:
        rest = []
        for it in _arguments(item):
            parts: dict[int, Any] = {}
            own = _is_slight(it) if uses[id(it)] > 1 else _is_plain(it, parts)
            if own and found.own.keys().isdisjoint(parts):
                found.own.update(parts)
            else:
                rest.append(it)
        number = numbers.setdefault(tuple(map(id, rest)), len(found.rests))
        if number == len(found.rests):
            found.rests.append(rest)
            if 2 * len(found.rests) > len(items):
                return None
        found.items.append((number, *with_places([item], rest)))
    return found


def _arguments(item: Any) -> tuple[Any, ...]:
    return item if type(item) is tuple else (item,)


def _is_slight(value: Any) -> bool:
    """Tell whether a value is small, and nothing can change it."""
    kind = type(value)
    if kind is str or kind is bytes:
        return len(value) <= SLIGHT_NBYTES
    if kind is tuple:
        return len(value) <= SLIGHT and all(map(_is_slight, value))
    return kind is not object and is_unchanging(value)  # one is there for its identity


def _is_plain(value: Any, parts: dict[int, Any]) -> bool:
    """Tell whether a value is plain data; `parts` gets what in it can be changed, by its id."""
    kind = type(value)
    if kind in ATOMS or id(value) in parts:
        return True
    if kind is list or kind is dict or kind is set:
        parts[id(value)] = value
    elif kind.__module__ == "numpy" and kind is np.ndarray:
        parts[id(value)] = value
        return not value.dtype.hasobject
    elif kind is not tuple and kind is not frozenset:
        return _is_slight(value)
    return _is_flat(value) or all(_is_plain(it, parts) for it in _elements(value))


def _is_flat(value: Any) -> bool:
    return ATOMS.issuperset(map(type, _elements(value)))


def _is_copied(value: Any) -> bool:
    kind = type(value)
    return kind in ATOMS or (kind in (list, dict, tuple) and _is_flat(value))


def _elements(value: Any) -> Iterable[Any]:
    return chain(value, value.values()) if type(value) is dict else value


def encode_rests(
    found: Repeated, most_nbytes: int, *, refer: Refer | None, beside: Reach | None
) -> list[bytes] | None:
    """Encode the rests of items; None if they are larger than so much together.

    Raises
    ------
    UnknownDefinition
        As for `encode`.
    Torn
        They have something in common with the function, or with what only the items have.
    Exception
        Whatever pickle raises.
    """
    if refer is None:
        return None
    reach = Reach(found.own.values())
    if beside is not None:
        beside.check(chain(found.own.values(), *found.rests))
        reach = reach.joined(beside)
    refer = refer._replace(copied=refer.copied | found.own.keys())
    encodings: list[bytes] = []
    for rest in found.rests:
        encoded = encode(rest, refer=refer, beside=reach)
        most_nbytes -= len(encoded)
        if most_nbytes < 0:
            return None
        encodings.append(as_bytes(encoded))
    return encodings


class Original:
    """The rest of some items, as a worker keeps it: in bytes.

    But a list or dict of nothing but atoms is copied many times faster than it is restored, and of
    what nothing can change there need not be a copy.
    """

    def __init__(self, encoded: Buffer) -> None:
        self._encoded = memoryview(encoded)
        self._first = self._restored()
        self._flat = all(map(_is_copied, self._first))

    def given(self, item: Any) -> Any:
        """Return an item with a copy of what has places in it."""
        return without_places([item], self._copy())[0]

    def _copy(self) -> list[Any]:
        if self._flat:
            changing = [it for it in self._first if type(it) is list or type(it) is dict]
            copies = {id(it): it.copy() for it in changing}
            return [copies.get(id(it), it) for it in self._first]
        first, self._first = self._first, []
        return first or self._restored()

    def _restored(self) -> list[Any]:
        copy = empty(len(self._encoded))  # of which arrays become views
        copy[:] = self._encoded
        found: list[Any] = unpack(copy, "what items of a map have in common")
        return found
