"""What two pickles of one task must not have twice.

A function and its arguments may come by two pickles, because the function's is kept on the worker.
Each brings copies of its own of the script's functions, and of what they read among the script's
globals and in closures.  That makes no difference as long as nothing that one of them changes is
read by the other, and none of the functions that one passes on is known to the other.  Else they
must be one pickle.  There are two ways to find out:

* of functions that both have by value, what they read and assign is compared (`Reach.touches`);
* what the arguments consist of is searched for what the function's pickle has (`check_torn`).  For
  a function that reads little that takes longer than all the rest, so there plain arguments are
  not searched: only whether one of them is itself such a thing is looked at (`Reach.check`).
"""

from __future__ import annotations

from collections.abc import Iterable, Set
from pickle import Pickler
from types import FunctionType
from typing import Any, NamedTuple, TypeAlias

from .atoms import is_unchanging
from .byname import named
from .instances import functions_in
from .names import bound_cells, bound_names, cells_of, global_names
from .snapshot import ONE_EACH

_Variable: TypeAlias = tuple[int, str]
"""A global, by the id of the dictionary and its name, or a cell by its id."""


class Torn(Exception):
    """Two things must come by one pickle, and were to come by two."""


def check_torn(pickler: Pickler, copied: Set[int]) -> None:
    """Raise Torn if something with one of these ids is in what was pickled.

    Notes
    -----
    Cost: 1 us, and 0.1 us for each object.
    """
    if copied and not pickler.memo.copy().keys().isdisjoint(copied):
        raise Torn


class _Facts(NamedTuple):
    read: dict[_Variable, object]  # with their values
    bound: set[_Variable]  # some function gives them another value
    refers: dict[int, set[int]]  # by the id of each function, those of what it reads


class Reach:
    """What is in a pickle by value: functions and classes, as pickling adds them, and the rest.

    Parameters
    ----------
    copied : iterable of object, optional
        The rest: what another pickle must not have anew.

    Attributes
    ----------
    copied : set of int
        The ids of these.
    """

    __slots__ = ("_classes", "_functions", "_held", "_known", "copied")

    def __init__(self, copied: Iterable[object] = ()) -> None:
        self._held = tuple(copied)  # so that nothing else gets one of these ids
        self.copied: Set[int] = frozenset(map(id, self._held))
        self._functions: list[FunctionType] = []
        self._classes: list[type] = []
        self._known: _Facts | None = None

    def joined(self, more: Reach) -> Reach:
        """Return one of what is in two pickles."""
        other = Reach((*self._held, *more._held))
        other._functions += self._functions + more._functions
        other._classes += self._classes + more._classes
        return other

    def add(self, function: FunctionType) -> None:
        """Take in a function."""
        self._functions.append(function)
        self._known = None

    def add_class(self, cls: type) -> None:
        """Take in a class."""
        self._classes.append(cls)

    def check(self, arguments: Iterable[object]) -> None:
        """Raise Torn if one of these, or an element of a tuple among them, must not be anew.

        Those are the items of a chunk.

        Notes
        -----
        Cost: 0.05 us for each.
        """
        copied = self.copied
        for it in arguments:
            if id(it) in copied or (type(it) is tuple and not copied.isdisjoint(map(id, it))):
                raise Torn

    def touches(self, other: Reach) -> bool:
        """Tell whether the two have something in common that must be one.

        Notes
        -----
        Cost: 1 us where the other one reads nothing; what is known of it is kept.
        """
        theirs = other._facts()
        if theirs.read:
            mine = self._facts()
            for variable in mine.read.keys() & theirs.read.keys():
                if variable in mine.bound or variable in theirs.bound:
                    return True
                if not _stays(mine.read[variable]):
                    return True
        common = theirs.refers.keys() & map(id, self._functions)
        return bool(common) and (self._passes(common) or other._passes(common))

    def _facts(self) -> _Facts:
        if self._known is not None:
            return self._known
        facts = _Facts({}, set(), {})
        for function in self._functions:
            code, names = function.__code__, function.__globals__
            read: dict[_Variable, object] = {
                (id(names), name): names.get(name) for name in global_names(code)
            }
            facts.bound.update((id(names), name) for name in bound_names(code))
            for name, cell, value in cells_of(function):
                read[id(cell), ""] = value
                if name in bound_cells(code):
                    facts.bound.add((id(cell), ""))
            facts.read.update(read)
            facts.refers[id(function)] = set(map(id, read.values()))
        self._known = facts  # now that it has all: that of a code is for several threads
        return facts

    def _passes(self, functions: Set[int]) -> bool:
        """Tell whether one of some functions is passed on as such, so that it may be compared.

        Others are methods, or called by the rest of them: whoever calls them finds its own.
        """
        refers = self._facts().refers
        attributes = (value for cls in self._classes for value in vars(cls).copy().values())
        methods = {id(it) for value in attributes for it in functions_in(value) or (value,)}
        return not all(_is_called(it, refers) for it in functions - methods)


def _is_called(function: int, refers: dict[int, set[int]]) -> bool:
    """Tell whether another function calls one that does not call it in turn, by way of others."""
    callers = {it for it, read in refers.items() if it != function and function in read}
    reached, todo = {function}, [function]
    while callers and todo:
        new = refers.keys() & refers[todo.pop()] - reached
        reached |= new
        todo += new
    return not callers <= reached


def _stays(value: Any) -> bool:
    """Tell whether nobody can see that there are two of a value, whatever is done with one."""
    kind = type(value)
    if kind in (tuple, frozenset):
        values: Iterable[Any] = value
        return all(map(_stays, values))
    if kind is object:  # there for nothing but its identity
        return False
    return is_unchanging(value) or isinstance(value, ONE_EACH) or named(value)
