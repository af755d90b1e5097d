"""Results of several calls that are sent together, each as it was when its call returned.

A function may return an array, a list or an object that its next call changes: a workspace that is
filled anew, the state of a solver.  What can change is therefore copied, or encoded at once.  The
encoding stands in the place of the value, and what is restored from it in the end is the value.

Only what a worker knows by name is encoded so.  An object of a class of the script is copied: its
encoding would take the class along, which a chunk of results is to hold once.
"""

from __future__ import annotations

from abc import ABCMeta
from contextlib import suppress
from copy import deepcopy
from enum import Enum
from functools import lru_cache
from pickle import PickleBuffer, loads
from types import FunctionType
from typing import Any

from ..interrupts import FAILURES
from ..lazy import np
from .atoms import ATOMS, are_unchanging
from .frames import Encoded, as_bytes, unpack
from .instances import is_its_attributes
from .script import SCRIPT_MODULES
from .values import encode

FEW = 16
"""Elements that are copied one by one; more of them are encoded in less time."""


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


def frozen(value: Any) -> Any:
    """Return a value as it is now: itself if nothing can change it, a copy, or what stands for one.

    Notes
    -----
    Cost: 0.1 us for atoms and tuples of them, 0.5 us for lists of them and for a small array, 1 us
    for a few of these together.
    """
    kind: Any = type(value)
    if are_unchanging(kind):
        return value
    copy = _flat_copy(value, kind)
    if copy is None and (kind is tuple or kind is list or kind is dict):
        copy = _copy_of_few(value, kind)
    if copy is not None:
        return copy
    if kind.__module__ in SCRIPT_MODULES:
        copy = _plain_copy(value)
        return _copied(value) if copy is None else copy
    with suppress(*FAILURES):
        return Frozen(encode(value, by_value=False))
    return _copied(value)


def _flat_copy(value: Any, kind: Any) -> Any:
    """Return a copy of a list, tuple or dict of atoms, or of an array; None of anything else."""
    if kind is tuple or kind is list:
        if ATOMS.issuperset(map(type, value)):
            return value if kind is tuple else value.copy()
    elif kind is dict:
        if ATOMS.issuperset(map(type, value)) and ATOMS.issuperset(map(type, value.values())):
            return value.copy()
    elif kind.__module__ == "numpy" and kind is np.ndarray and not value.dtype.hasobject:
        return value.copy("K")
    return None


def _copy_of_few(value: Any, kind: Any) -> Any:
    """Return a copy of what holds a few things as above, or that nothing can change; or None."""
    if len(value) > FEW or (kind is dict and not ATOMS.issuperset(map(type, value))):
        return None
    copies: list[Any] = []
    met: set[int] = set()
    for element in value.values() if kind is dict else value:
        of_type: Any = type(element)
        if not are_unchanging(of_type):
            copy = None if id(element) in met else _flat_copy(element, of_type)
            if copy is None:  # or two places have one and the same
                return None
            met.add(id(element))
            element = copy
        copies.append(element)
    if kind is dict:
        return dict(zip(value, copies, strict=True))
    return copies if kind is list else tuple(copies)


def _plain_copy(value: Any) -> Any:
    """Return a copy of an object that is nothing but a few plain values; None of any other.

    Notes
    -----
    Cost: 1 us, where a deep copy takes 15.
    """
    if isinstance(value, Enum):
        return value
    if isinstance(value, tuple) and not hasattr(value, "__dict__"):
        return value if ATOMS.issuperset(map(type, value)) else None
    kind: Any = type(value)
    if type(kind) not in (type, ABCMeta) or not _is_plain(kind):
        return None
    attributes = _flat_copy(vars(value), dict) or _copy_of_few(vars(value), dict)
    if attributes is None:
        return None
    copy = object.__new__(kind)
    vars(copy).update(attributes)
    return copy


@lru_cache(maxsize=64)
def _is_plain(kind: Any) -> bool:
    """Return whether a copy of the dictionary of an object makes a copy of the object."""
    says_how = ("__setstate__", "__deepcopy__", "__getnewargs__", "__getnewargs_ex__")
    return is_its_attributes(kind) and not any(hasattr(kind, name) for name in says_how)


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
