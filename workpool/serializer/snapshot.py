"""What a definition of the script reads; whether that is still the same, ``bindings`` tells.

A snapshot is taken of a function, a class or an object only if everything that it reaches is known,
by its bindings or by its bytes:

* an atom (None, a bool, a number, a str, bytes), and what else nothing can change: a range, a
  path, a date, a compiled pattern, a logger;
* a module, or a function, class or builtin that goes by name: pickle does not copy those;
* another function or class by value, by the same rule; itself, for a recursive one;
* what `functools.singledispatch` makes of functions, by those that it chooses among;
* a `functools.lru_cache` around one, whatever it has kept: that makes no difference but of time,
  and stays on a worker as long as its function does;
* a tuple, frozenset or frozendict of such things, or a list, set, dict or mapping proxy of up to
  `MOST`; a slice, an itemgetter, an attrgetter, a partial of such things;
* an object that is nothing but its attributes and slots, if they and its class are such things;
* an array, and anything else that plain pickle makes the same bytes of each time: a longer list, a
  data frame, a random generator, an object that says itself how it is pickled; all of them together
  up to `MOST_NBYTES`, and up to `MOST_WITH_DEFINITIONS` of them with functions and classes of the
  script, which are looked at by the same rule.

What is larger, or cannot be pickled, can change in place, unseen, so such a function has no
snapshot.

It serves on both sides. On the driver: has the user changed something since the code was sent?
On a worker: has a task left something behind (a global, a nonlocal, an attribute of a function)
that the next task would not find in a fresh copy?

Not looked at: annotations, documentation strings and names of functions, and what Python and its
library make of the body of a class.  Nor is it seen when what is known by its bytes gets an equal
copy of an element that it had in common with something else.
"""

from __future__ import annotations

import functools
import operator
import sys
from abc import ABCMeta, get_cache_token
from collections.abc import Iterable
from enum import Enum
from types import (
    BuiltinFunctionType,
    ClassMethodDescriptorType,
    FunctionType,
    GetSetDescriptorType,
    MappingProxyType,
    MemberDescriptorType,
    ModuleType,
    SimpleNamespace,
)
from typing import Any, Final

from ..interrupts import failures
from .atoms import ATOMS, FROZEN_DICT, UNCHANGING, is_unchanging
from .bindings import Bindings, Read, slot_of
from .byname import is_imported, named
from .derived import DERIVED, FIELDS, WRITTEN, field_values, is_written
from .enumerations import own_attributes
from .generic import generic_parts, is_generic
from .instances import (
    FROM_FUNCTION,
    functions_in,
    has_getattr,
    is_below_descriptors,
    is_its_members,
    is_left_to_pickle,
    is_pickled_whole,
    slot_members,
    slots,
)
from .names import CACHED, UNBOUND, content, global_names, global_value
from .states import MOST_NBYTES, known

MOST: Final = 256
"""Elements of a list, set or dict that is looked at; and four times as many bindings in all."""

_OF_CACHED: Final = frozenset({*functools.WRAPPER_ASSIGNMENTS, "cache_parameters"})
"""Attributes of what `functools.lru_cache` makes of a function that follow from it."""

_MADE_OF: Final = (slice, operator.itemgetter, operator.attrgetter)
"""Kinds of which nothing can change what they were made of."""

MOST_PAUSE: Final = 63
"""Times that a definition is met, at the most, until it is looked at again."""

ONE_EACH: Final = (ModuleType, FunctionType, type, Enum, CACHED)
"""What is one object in each process, or does not show its state."""

_DESCRIPTORS: Final = (ClassMethodDescriptorType, GetSetDescriptorType, MemberDescriptorType)
"""Attributes of classes, and of what `functools.wraps` has given those of a class."""

_NOT_COPIED: Final = (*ONE_EACH, tuple, frozenset)
"""Kinds of which it is no matter whether there are two."""

MOST_WITH_DEFINITIONS: Final = 16
"""Objects that are known by bytes in which definitions stand: of more it takes less to send all."""

_BASES: Final[Read] = vars(type)["__bases__"].__get__


def is_definition(fn: object) -> bool:
    """Tell whether something is a function or a class."""
    return type(fn) in (FunctionType, CACHED) or isinstance(fn, type)


class Looks:
    """When to look at a definition that has no snapshot: less and less often, if none serves.

    To find that something in it may change unseen takes longer the more there is to it.

    Parameters
    ----------
    left : int
        How often not to look at first.
    """

    __slots__ = ("_left", "_pause")

    def __init__(self, left: int = 0) -> None:
        self._left = left
        self._pause = 0

    def due(self) -> bool:
        """Count that it is asked about; tell whether to look now."""
        self._left -= 1
        return self._left < 0

    def failed(self) -> None:
        """Look again, but not for so long."""
        self._left = self._pause
        self._pause = min(2 * self._pause + 1, MOST_PAUSE)

    def served(self) -> None:
        """Look again as soon as there is need."""
        self._left = self._pause = 0


class Snapshot(Bindings):
    """The bindings that definitions and objects by value read, directly or through others.

    Attributes
    ----------
    classes : dict of int to type
        Those by value, by their ids.
    copied : list of object
        What two copies have twice: containers, objects, arrays.
    """

    def __init__(self, own_globals: bool) -> None:
        super().__init__()
        self._own_globals = own_globals
        self.classes: dict[int, type] = {}
        self.copied: list[object] = []
        self._elements = 0  # of what is looked at element by element, or slot by slot
        self._nbytes = 0  # of what is known by its bytes
        self._with_definitions = 0  # how many of these have definitions

    @classmethod
    def take(cls, *roots: Any, own_globals: bool = False) -> Snapshot | None:
        """Return a snapshot, or None if something is reached that is not known by its bindings.

        The `roots` are taken as by value, whatever their module.  With `own_globals` the globals
        belong to them, as those of a restored function do, and not to the script: a new one is a
        change.

        Notes
        -----
        Cost: 3 us, and about 1 us for each binding; more at the first sight of its code.
        """
        snapshot = cls(own_globals)
        try:
            found = snapshot._look_into(roots)
        except failures():  # of the user's own code, which is met again where this is pickled
            found = False
        return snapshot if found else None

    def _look_into(self, roots: tuple[Any, ...]) -> bool:
        """Record all that is reached from the roots; return whether it is known."""
        reached: list[object] = [*roots]
        by_value = {id(root) for root in roots}
        seen: dict[int, object] = {}  # it keeps each alive, so that no id is used again
        while reached:
            value = reached.pop()
            if id(value) in seen or (type(value) in UNCHANGING and type(value) is not object):
                continue
            seen[id(value)] = value
            if id(value) not in by_value and (is_unchanging(value) or named(value)):
                if type(value) is object:  # there for nothing but its identity
                    self.copied.append(value)
                if type(value) is BuiltinFunctionType and isinstance(value.__self__, type):
                    reached.append(value.__self__)  # perhaps a class of the script
                continue
            if not isinstance(value, _NOT_COPIED):
                self.copied.append(value)
            parts = self._parts(value)
            if parts is None or self._elements + len(self._bindings) > 4 * MOST:
                return False
            reached.extend(parts)
        more = self._objects, self._attributes, self._contents
        self._plain = not (any(more) or self.has_states)
        return True

    def _parts(self, value: Any) -> Iterable[object] | None:
        """Record what something is bound to, and return that; None if it may change unseen."""
        kind: Any = type(value)
        if kind is FunctionType:
            return self._bind_function(value)
        if issubclass(kind, type):
            return self._bind_class(value)
        if issubclass(kind, ModuleType):
            return self._bind_module(value)
        if kind in (tuple, frozenset):
            return tuple(value)
        if kind in _DESCRIPTORS:
            return [value.__objclass__]
        if kind in _MADE_OF:
            return value.__reduce__()[1]  # type: ignore[no-any-return]
        if kind is functools.partial:
            return [value.func, value.args, value.keywords, *self._bind(vars(value)).values()]
        if kind is FROZEN_DICT:
            return [*value, *value.values()]
        if kind in (list, set, dict, MappingProxyType):
            return self._bind_elements(value)
        if kind is CACHED:
            return self._bind(vars(value), _OF_CACHED).values()
        if issubclass(kind, Enum):
            self._bind(vars(value))
            mutable = isinstance(value, (list, set, dict, bytearray))
            return None if mutable else [kind, value._value_, *own_attributes(value).values()]
        if issubclass(kind, tuple) and not hasattr(value, "__dict__"):
            return [kind, *tuple.__iter__(value)]
        if has_getattr(kind) and is_imported(value):
            return []
        if kind is SimpleNamespace or (is_its_members(kind) and is_pickled_whole(kind)):
            return self._bind_members(value)
        return self._bind_state(value)

    def _bind_function(self, function: FunctionType) -> list[object] | None:
        self._bind_own(function)
        if is_generic(function):
            elements = self._bind_elements(function.registry)  # type: ignore[attr-defined]
            self._bind(vars(function))
            own = (function.__wrapped__, *generic_parts(function)[1].values())  # type: ignore[attr-defined]
            return None if elements is None else [*elements, *own]
        values: list[object] = [function.__defaults__]
        for mapping in (function.__dict__, function.__kwdefaults__):
            if mapping is not None:
                values += self._bind(mapping).values()
        code, names = function.__code__, function.__globals__
        if self._own_globals and names is not vars(sys.modules["__main__"]):
            self._lengths.append((names, len(names)))
        bindings = [(names, name, global_value(names, name)) for name in global_names(code)]
        cells = [(cell, content(cell)) for cell in function.__closure__ or ()]
        self._bindings += bindings
        self._cells += cells
        values += [it for *_, it in (*bindings, *cells)]
        return [value for value in values if value is not UNBOUND]

    def _bind_class(self, cls: type) -> list[object] | None:
        if any(base.__module__ == "_ctypes" for base in cls.__mro__):
            return None
        self.classes[id(cls)] = cls
        if isinstance(cls, ABCMeta):
            self._token = get_cache_token()
        names = vars(cls)
        attributes = names.copy()  # at once: other threads may set some
        self._attributes.append((names, attributes.keys()))
        self._bindings += [(names, name, value) for name, value in attributes.items()]
        self._objects.append((cls, type(cls), None, [(_BASES, _BASES(cls))]))
        parts: list[object] = [type(cls), *cls.__bases__, *field_values(attributes)]
        written = not WRITTEN.isdisjoint(attributes)
        for name, value in attributes.items():
            if is_below_descriptors(type(value)):
                if slots(value):
                    return None
                parts += (type(value), *self._bind(getattr(value, "__dict__", {})).values())
            elif isinstance(value, (staticmethod, classmethod)):
                parts += self._bind(vars(value), FROM_FUNCTION).values()
            if (functions := functions_in(value)) is not None:
                parts += functions
            elif name in DERIVED or isinstance(value, FIELDS):
                continue
            elif hasattr(type(value), "__set_name__") and not is_left_to_pickle(type(value)):
                return None  # its pickle may say no more than where it is
            elif written and is_written(name, value):
                self._bind_own(value)
            else:
                parts.append(value)
        return parts

    def _bind_module(self, module: ModuleType) -> list[object] | None:
        if not is_imported(module):
            return None
        if hasattr(module, "__path__"):
            # What the code finds in a package depends on the submodules imported so far.
            self._lengths.append((sys.modules, len(sys.modules)))
        return []

    def _bind_elements(self, container: Any) -> Iterable[object] | None:
        if len(container) > MOST:
            return self._bind_state(container)
        elements = tuple(container)
        self._contents.append((container, elements))
        if type(container) not in (list, set):
            values = container.values()
            held = tuple(values)
            self._contents.append((values, held))
            elements += held
        self._elements += len(elements)
        return elements

    def _bind_members(self, value: Any) -> Iterable[object]:
        """Record the attributes and slots of an object that is nothing else."""
        kind: Any = type(value)
        attributes = vars(value) if kind.__dictoffset__ else None
        readers: list[Read] = [it.__get__ for it in slot_members(kind)]
        contents = [(read, slot_of(read, value)) for read in readers]
        self._objects.append((value, kind, attributes, contents))
        self._elements += len(contents)
        parts = [] if attributes is None else self._bind(attributes).values()
        return [kind, *parts, *(it for _, it in contents if it is not UNBOUND)]

    def _bind_state(self, value: Any) -> list[Any] | None:
        """Record what is known by its bytes alone, and return the definitions that it has."""
        # Whole on a worker, where tasks use it.
        found = known(value, MOST_NBYTES - self._nbytes, self._own_globals)
        if found is None:
            return None
        self._nbytes += sum(len(part) for part in found.state if type(part) is bytes)
        self._states.append((value, found.pickler, found.state))
        self._with_definitions += bool(found.definitions)
        if self._with_definitions > MOST_WITH_DEFINITIONS:
            return None
        if not self._own_globals:  # a worker asks nobody what there is twice
            met = (it for it in found.met if type(it) not in ATOMS)
            copied = [it for it in met if not isinstance(it, _NOT_COPIED)]
            if len(copied) <= MOST:  # to look for more takes longer than it is worth
                self.copied += copied
            elif found.definitions:
                return None
        return found.definitions
