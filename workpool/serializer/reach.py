"""What two pickles of one task must not have twice.

Each pickle brings copies of its own of the script's functions, and of what they read among the
script's globals.  A function and its arguments may come by two pickles, because the function's is
kept on the worker.  That makes no difference as long as nothing that one of them changes is read by
the other, and none of the functions that one passes on is known to the other.  Else they must be
one pickle.
"""

from __future__ import annotations

from collections.abc import Iterable
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any, Final, TypeAlias

from .names import global_names, reads, stored_names

__all__ = ["Reach"]

_Name: TypeAlias = tuple[int, str]
"""Of a global: whose, by the id of the dictionary, and its name."""

_UNCHANGED: Final = (
    *(type(None), bool, int, float, complex, str, bytes, range),
    *(ModuleType, FunctionType, BuiltinFunctionType, type),
)
"""What cannot be changed in place, or comes by its name, or is one object in each process."""


class Reach:
    """The functions by value in a pickle, and the globals that they read and may change.

    Attributes
    ----------
    read, changed : set of (int, str)
        What is not known to stay as it is counts as changed.
    functions : set of int
        Ids of those that one could compare: functions of the script itself.
    """

    __slots__ = ("_called", "changed", "functions", "read")

    def __init__(self) -> None:
        self.read: set[_Name] = set()
        self.changed: set[_Name] = set()
        self.functions: set[int] = set()
        self._called: set[int] = set()  # ids of those that others of them refer to

    def __bool__(self) -> bool:
        return bool(self.read or self.functions)

    def add(self, function: FunctionType) -> None:
        """Take in a function that is pickled by value."""
        names, code = function.__globals__, function.__code__
        if "." not in function.__qualname__:
            self.functions.add(id(function))
        stored = stored_names(code)
        for name in global_names(code):
            key = id(names), name
            self.read.add(key)
            if name in stored or not _stays(names.get(name)):
                self.changed.add(key)
        self._called.update(id(value) for _, value in reads(function))

    def touches(self, other: Reach) -> bool:
        """Tell whether the two have something in common that must be one."""
        return not (
            self.changed.isdisjoint(other.read)
            and other.changed.isdisjoint(self.read)
            and (self.functions - self._called).isdisjoint(other.functions)
            and (other.functions - other._called).isdisjoint(self.functions)
        )


def _stays(value: Any) -> bool:
    """Tell whether a value cannot be changed in place."""
    if type(value) in (tuple, frozenset):
        values: Iterable[Any] = value
        return all(map(_stays, values))
    return isinstance(value, _UNCHANGED)
