"""Results of several calls that are sent together, each as it was when its call returned.

A function may return an array, a list or an object that its next call changes: a workspace that is
filled anew, the state of a solver.  What somebody else holds is therefore copied, or encoded at
once.  The encoding stands in the place of the value, and what is restored from it is the value.

Only what a worker knows by name is encoded so.  An object of a class of the script is copied: its
encoding would take the class along, which a chunk of results is to hold once.
"""

from __future__ import annotations

from contextlib import suppress
from copy import deepcopy
from pickle import PickleBuffer, loads
from types import FunctionType
from typing import Any

from ..interrupts import FAILURES
from ..lazy import np
from .alone import is_alone
from .atoms import ATOMS
from .frames import Encoded, as_bytes, unpack
from .script import SCRIPT_MODULES
from .values import encode


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

    That is itself if nobody else holds it, or nothing can change it; else a copy, or what stands
    for one.

    Notes
    -----
    Cost: as `is_alone`, 0.2 us for a tuple of atoms.  Of what others hold: 0.5 us for a list of
    atoms and for a small array, 3 us for what is encoded, 20 us for an object of the script.
    """
    if is_alone(held):
        return held[0]
    value = held[0]
    kind: Any = type(value)
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
