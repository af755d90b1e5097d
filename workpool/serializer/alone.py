"""Whether nobody else can change an object, by counting who holds it.

What a function has made and returned is held by its caller and by nobody else: no later call comes
to it again, whatever it does.  To see that takes a fraction of the time of a copy.  What is in the
object is counted likewise, for an element of it may well be held elsewhere.

Objects are counted while they are in a container: its own reference to each is one, that of the
count another.  How the interpreter counts those that are passed on, which it may borrow from
Python 3.14 on, does not matter then.
"""

from __future__ import annotations

import sys
from abc import ABCMeta
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Collection
from contextlib import suppress
from enum import Enum
from functools import partial
from typing import Any, Final, TypeAlias
from weakref import getweakrefcount

from ..caches import once_for_each_class
from ..lazy import np
from .atoms import ATOMS, are_unchanging
from .instances import is_its_attributes, is_pickled_whole, slots_alone

MOST = 16
"""Elements of a container that are looked at one by one; to encode more takes no longer."""

ROOM = 64
"""Likewise of containers in one another, among whose elements it is shared out."""

#: What an object is counted as that its container alone holds.
_ONCE: Final = 2

#: Counts references; where that is not exact, nothing is alone.
_count: Final[Callable[[Any], int]] = (
    sys.getrefcount
    if sys.implementation.name == "cpython" and getattr(sys, "_is_gil_enabled", lambda: True)()
    else lambda it: 0
)

_Look: TypeAlias = Callable[[Any, bool, int], bool]
"""Of an object, whether its container alone holds it, and its share of `ROOM`: is it alone?"""


def is_alone(held: list[Any]) -> bool:
    """Return whether nobody can change the only element of a list, but who gets it from the list.

    Notes
    -----
    Cost: 0.4 us for a list or dict of atoms; where others are in it, 0.4 us more for each of them.
    """
    once = _count(held[0]) == _ONCE
    kind: Any = type(held[0])
    look = _LOOKS.get(kind) or _look_of_other(kind)
    return look(held[0], once, ROOM)


def _are_alone(held: Collection[Any], room: int, once: int = _ONCE + 1) -> bool:
    """Return whether nobody can change what is in a container; `once` counts our variable, too."""
    if len(held) > min(room, MOST):
        return False
    room //= len(held) + 1
    counts = map(_count, held)
    for it in held:
        kind: Any = type(it)
        count = next(counts)
        if kind in ATOMS:
            continue
        look = _LOOKS.get(kind) or _look_of_other(kind)
        if not look(it, count == once, room):
            return False
    return True


def _unchanging(it: Any, once: bool, room: int) -> bool:
    return True


def _tuple(it: Any, once: bool, room: int) -> bool:
    return ATOMS.issuperset(map(type, it)) or (once and _are_alone(it, room))


def _list(it: Any, once: bool, room: int) -> bool:
    return once and (ATOMS.issuperset(map(type, it)) or _are_alone(it, room))


def _dict(it: Any, once: bool, room: int) -> bool:
    if not once or not ATOMS.issuperset(map(type, it)):
        return False
    return ATOMS.issuperset(map(type, it.values())) or _are_alone(it.values(), room)


def _set(it: Any, once: bool, room: int) -> bool:
    return not getweakrefcount(it) and _list(it, once, room)


def _mapping(it: Any, once: bool, room: int) -> bool:
    made_by = getattr(it, "default_factory", None)
    plain = (made_by is None or type(made_by) is type) and not getattr(it, "__dict__", None)
    return plain and not getweakrefcount(it) and _dict(it, once, room)


def _array(it: Any, once: bool, room: int) -> bool:
    return once and it.flags.owndata and not it.dtype.hasobject and not getweakrefcount(it)


def _object(it: Any, once: bool, room: int) -> bool:
    alone = once and not getweakrefcount(it) and _count(vars(it)) == _ONCE
    return alone and _dict(vars(it), True, room)


def _slotted(slots: list[str], it: Any, once: bool, room: int) -> bool:
    with suppress(AttributeError):  # one that is not set
        found = [getattr(it, name) for name in slots]
        return once and not getweakrefcount(it) and _are_alone(found, room, once=_ONCE + 2)
    return False


_LOOKS: Final[dict[Any, _Look]] = {  # and of what is met of NumPy and the standard library
    tuple: _tuple,
    list: _list,
    dict: _dict,
    frozenset: _tuple,
    **dict.fromkeys((set, deque), _set),
    **dict.fromkeys((OrderedDict, Counter, defaultdict), _mapping),
}


@once_for_each_class
def _look_of_other(kind: Any) -> _Look:
    if are_unchanging(kind):
        return _LOOKS.setdefault(kind, _unchanging)
    if kind.__module__ == "numpy" and kind is np.ndarray:
        return _LOOKS.setdefault(kind, _array)
    if issubclass(kind, Enum):
        return _unchanging
    row = kind.__base__ is tuple and hasattr(kind, "_fields") and not kind.__dictoffset__
    if row and kind.__iter__ is tuple.__iter__ and is_pickled_whole(kind):
        return _tuple
    plain = type(kind) in (type, ABCMeta)  # of others it may be an error to ask them
    if plain and not hasattr(kind, "__getnewargs__") and not hasattr(kind, "__getnewargs_ex__"):
        if is_its_attributes(kind):
            return _object
        if slots := slots_alone(kind):
            return partial(_slotted, slots)
    return lambda it, once, room: False
