"""What an object consists of: its attributes alone, or slots, or more.

Slots are found by their descriptors: ``__slots__`` may be an iterator, and used up.
"""

from __future__ import annotations

import copyreg
from functools import WRAPPER_ASSIGNMENTS, cached_property
from struct import calcsize
from types import DynamicClassAttribute, MemberDescriptorType
from typing import Any, Final

from ..caches import once_for_each_class

DESCRIPTORS: Final[tuple[Any, ...]] = (property, staticmethod, classmethod)
"""Attributes of classes that keep in C what they are made of."""

FROM_FUNCTION: Final = frozenset({*WRAPPER_ASSIGNMENTS, "__annotations__"})
"""Attributes that a static or class method has from its function, besides those it was given."""

HEAP_TYPE: Final = 1 << 9
"""In the flags of a type: made by a class statement (Py_TPFLAGS_HEAPTYPE)."""

_SLOT_NBYTES: Final = calcsize("P")


def is_below_descriptors(kind: Any) -> bool:
    """Tell whether a class is below one of `DESCRIPTORS`, and no such class itself."""
    return issubclass(kind, DESCRIPTORS) and kind not in DESCRIPTORS


def functions_in(attribute: Any) -> tuple[Any, ...] | None:
    """Return the functions that an attribute of a class is made of; None of any other."""
    if isinstance(attribute, (staticmethod, classmethod)):
        return (attribute.__func__,)
    if isinstance(attribute, (property, DynamicClassAttribute)):
        return attribute.fget, attribute.fset, attribute.fdel
    return (attribute.func,) if type(attribute) is cached_property else None


def is_left_to_pickle(kind: Any) -> bool:
    """Tell whether a class has no ``__reduce__`` of its own, nor ``__reduce_ex__``."""
    plain: Any = object
    return kind.__reduce__ is plain.__reduce__ and kind.__reduce_ex__ is plain.__reduce_ex__


def is_pickled_whole(kind: Any) -> bool:
    """Tell whether pickle takes all that there is to instances of a class, as it does by itself."""
    return (
        is_left_to_pickle(kind)
        and getattr(kind, "__getstate__", None) is getattr(object, "__getstate__", None)
        and kind not in copyreg.dispatch_table
    )


def has_getattr(kind: Any) -> bool:
    """Tell whether instances of a class are asked for attributes that they do not have."""
    return any("__getattr__" in vars(base) for base in kind.__mro__)


@once_for_each_class
def is_nameless(kind: Any) -> bool:
    """Tell whether no instance of a class has a name, nor another module than its class."""
    if kind.__dictoffset__ or has_getattr(kind):
        return False
    said = [vars(base) for base in kind.__mro__]
    return (
        kind.__getattribute__ is object.__getattribute__
        and not any("__name__" in names or "__qualname__" in names for names in said)
        and all(type(names.get("__module__", "")) is str for names in said)
    )


def slot_members(kind: Any) -> tuple[MemberDescriptorType, ...]:
    """Return the slots of instances of a class, without those of classes written in C."""
    slotted = (base for base in kind.__mro__ if "__slots__" in vars(base))
    return tuple(vars(base)[name] for base in slotted for name in members(base))


@once_for_each_class
def is_its_members(kind: Any) -> bool:
    """Tell whether there is nothing to instances of a class but a dictionary and slots, if any.

    However they are pickled.
    """
    weak, own = kind.__weakrefoffset__ > 0, kind.__dictoffset__ > 0  # below 0 before the object
    nbytes = object.__basicsize__ + _SLOT_NBYTES * (len(slot_members(kind)) + weak + own)
    plain = kind.__getattribute__ is object.__getattribute__
    return plain and kind.__basicsize__ == nbytes and not kind.__itemsize__


def is_its_attributes(kind: Any) -> bool:
    """Tell whether there is nothing to instances of a class but what is in their dictionary.

    They have no slots, and nothing that C keeps, and it is their dictionary that is pickled.
    """
    own = bool(kind.__dictoffset__) and not slot_members(kind)
    return own and is_its_members(kind) and is_pickled_whole(kind)


def slots_alone(kind: Any) -> list[str]:
    """Return the names of the slots of a class whose instances have nothing else; none of others.

    A property that hides a slot of a base is pickled in its place: it may be anything.
    """
    found = slot_members(kind)
    hidden = any(getattr(kind, slot.__name__, None) is not slot for slot in found)
    alone = not kind.__dictoffset__ and is_its_members(kind) and is_pickled_whole(kind)
    return [] if hidden or not alone or has_getattr(kind) else [slot.__name__ for slot in found]


def members(cls: type) -> list[str]:
    """Return the names of the slots that a class adds to those of its bases."""
    return [name for name, it in vars(cls).copy().items() if isinstance(it, MemberDescriptorType)]


def slots(obj: object) -> dict[str, Any]:
    """Return what an object has in its slots, without those of classes written in C."""
    names = [slot.__name__ for slot in slot_members(type(obj))]
    return {name: getattr(obj, name) for name in names if hasattr(obj, name)}


def attributes_of(obj: object) -> dict[str, Any]:
    """Return the attributes that an object has itself, in slots as well."""
    return {**slots(obj), **getattr(obj, "__dict__", {})}


def set_attributes(obj: object, attributes: dict[str, Any]) -> None:
    """Set attributes of an object, past the ``__setattr__`` of its class."""
    for name, value in attributes.items():
        object.__setattr__(obj, name, value)
