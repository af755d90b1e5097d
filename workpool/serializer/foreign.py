"""What the script has of ctypes: classes, libraries and their functions.

A class is built again by what C has to know of it.  Its fields are descriptors that nothing can
copy: they come into being when ``_fields_`` is set, which can be done once.  What ctypes makes of
another type is made of it again: the type of an array, of a pointer, of a number in the other order
of bytes.

A library is loaded again by its name, and a function looked up in it.
"""

from __future__ import annotations

import ctypes
import sys
from _ctypes import FUNCFLAG_USE_ERRNO, CFuncPtr
from operator import getitem, mul
from typing import Any, Final

#: Without which a class cannot be made.
_PARTS: Final = ("_type_", "_length_", "_flags_", "_restype_", "_argtypes_")

#: What the layout of a structure consists of, in the order in which it is to be set.
_LAYOUT: Final = ("_pack_", "_align_", "_layout_", "_anonymous_", "_fields_")

#: What an object of a library has once it is loaded.
_LOADED: Final = ("_name", "_FuncPtr", "_handle")

_ORDERS: Final = ("__ctype_le__", "__ctype_be__")
_NATIVE, _SWAPPED = _ORDERS if sys.byteorder == "little" else _ORDERS[::-1]


def _derived(cls: Any) -> tuple[Any, ...] | None:
    """Return how ctypes makes a class of another; None if the program has defined it."""
    if cls.__bases__ == (ctypes.Array,) and "_Array_" in cls.__name__:
        return mul, (cls._type_, cls._length_)
    if cls.__bases__ == (ctypes._Pointer,) and cls.__name__.startswith("LP_"):
        return ctypes.POINTER, (cls._type_,)
    if vars(cls).get(_SWAPPED) is cls:
        return getattr, (vars(cls)[_NATIVE], _SWAPPED)
    return None


def reduce_foreign(cls: Any, reduced: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return how to rebuild a class of ctypes, from how cloudpickle would."""
    if (derived := _derived(cls)) is not None:
        return derived
    make, (meta, name, bases, content, *rest), (attributes, slots), _, _, setter = reduced
    parts = {part: vars(cls)[part] for part in _PARTS if part in vars(cls)}
    layout = {part: vars(cls)[part] for part in _LAYOUT if part in vars(cls)}
    left = {
        attribute: value
        for attribute, value in attributes.items()
        if type(value).__name__ != "CField" and attribute not in {*parts, *layout, *_ORDERS}
    }
    args = meta, name, bases, {**content, **parts}, *rest
    return make, args, (left, (slots, layout, setter)), None, None, _fill


def _fill(cls: type, state: tuple[dict[str, Any], tuple[Any, ...]]) -> None:
    """Lay out a class, unless it is already, and give it its attributes."""
    attributes, (slots, layout, setter) = state
    if "_fields_" not in vars(cls):
        for part, value in layout.items():
            setattr(cls, part, value)
    setter(cls, (attributes, slots))


def reduce_library(obj: Any) -> Any:
    """Return how to load a library again, or to look a function of one up again."""
    if isinstance(obj, ctypes.CDLL):
        attributes = {name: it for name, it in vars(obj).items() if name not in _LOADED}
        errno = bool(obj._FuncPtr._flags_ & FUNCFLAG_USE_ERRNO)
        return _load, (type(obj), obj._name, errno), attributes or None
    library = (obj._objects or {}).get("0") if isinstance(obj, CFuncPtr) else None
    if library is None or type(obj) is not getattr(library, "_FuncPtr", None):
        return NotImplemented  # a callback, say, or a function of a prototype
    declared = obj.argtypes, obj.restype, obj.errcheck
    return getitem, (library, obj.__name__), declared, None, None, _declare


def _load(kind: Any, name: str | None, errno: bool) -> Any:
    library = object.__new__(kind)
    ctypes.CDLL.__init__(library, name, use_errno=errno)
    return library


def _declare(function: Any, declared: tuple[Any, Any, Any]) -> None:
    function.argtypes, function.restype, errcheck = declared
    if errcheck is not None:
        function.errcheck = errcheck
