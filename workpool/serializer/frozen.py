"""Results of several calls that are sent together, each as it was when its call returned.

A function may return an array, a list or an object that its next call changes: a workspace that is
filled anew, the state of a solver.  What it has made and returned is mostly held by its caller and
by nobody else, so that no later call comes to it again.  To see that, by counting who holds it and
what is in it, takes a fraction of the time of a copy.

What somebody else holds is copied, or encoded at once: then the encoding stands in the place of the
value, and what is restored from it is the value.  Only what a worker knows by name is encoded so.
An object of a class of the script is copied: its encoding would take the class along, which a chunk
of results is to hold once.

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
from copy import deepcopy
from enum import Enum
from functools import partial
from pickle import PickleBuffer, loads
from types import FunctionType
from typing import Any, Final, TypeAlias
from weakref import getweakrefcount

from ..caches import once_for_each_class
from ..interrupts import FAILURES
from ..lazy import np
from .atoms import ATOMS, are_unchanging
from .frames import Encoded, as_bytes, unpack
from .instances import is_its_attributes, is_pickled_whole, slots_alone
from .script import SCRIPT_MODULES
from .values import encode

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


class Frozen:
    """Stands for a value as it was."""

    __slots__ = ("_encoded", "_restore")

    def __init__(self, encoded: Encoded) -> None:
        self._encoded = as_bytes(encoded)
        # Without frames it is a pickle alone, which takes the driver 0.2 us less.
        self._restore = loads if self._encoded is encoded else unpack

    def __reduce__(self) -> Any:
        return self._restore, (PickleBuffer(self._encoded),)

    def thaw(self) -> Any:
        """Return a copy of the value."""
        return unpack(self._encoded)


def frozen(held: list[Any]) -> Any:
    """Return the only element of a list as it is now.

    That is itself if nothing can change it, or nobody else holds it; else a copy, or what stands
    for one.

    Notes
    -----
    Cost: 0.2 us for a tuple of atoms, 0.4 us for a list or dict of them, and 0.4 us for each
    element that is none.  Of what others hold: 0.5 us for a list of atoms and for a small array,
    3 us for what is encoded, 20 us for an object of the script.
    """
    once = _count(held[0]) == _ONCE
    kind: Any = type(held[0])
    look = _LOOKS.get(kind) or _look_of_other(kind)
    if look(held[0], once, ROOM):
        return held[0]
    value = held[0]
    copy = _flat_copy(value, kind)
    if copy is not None:
        return copy
    if kind.__module__ in SCRIPT_MODULES:
        return _copied(value)
    with suppress(*FAILURES):
        return Frozen(encode(value, by_value=False))
    return _copied(value)


def _flat_copy(value: Any, kind: Any) -> Any:
    """Return a copy of a list or dict of atoms, or of an array; None of anything else."""
    if kind is list:
        if ATOMS.issuperset(map(type, value)):
            return value.copy()
    elif kind is dict:
        if ATOMS.issuperset(map(type, value)) and ATOMS.issuperset(map(type, value.values())):
            return value.copy()
    elif kind.__module__ == "numpy" and kind is np.ndarray and not value.dtype.hasobject:
        return value.copy("K")
    return None


def _copied(value: Any) -> Any:
    """Return a copy of what has something in it that goes by value, or cannot go at all."""
    with suppress(*FAILURES):
        # A function has no copies: they read the same.  And what says itself how it is copied need
        # not be what its pickle is.
        if not isinstance(value, FunctionType) and not hasattr(type(value), "__deepcopy__"):
            return deepcopy(value)
    with suppress(*FAILURES):  # there are no copies of a module in it
        return Frozen(encode(value))
    return value  # whoever sends it meets what is wrong again


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
