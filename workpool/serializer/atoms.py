"""Values that nothing can change."""

from __future__ import annotations

import builtins
import re
import struct
from types import (
    BuiltinFunctionType,
    EllipsisType,
    MethodDescriptorType,
    ModuleType,
    NotImplementedType,
    WrapperDescriptorType,
)
from typing import Any, Final

from ..lazy import np
from .drawing import is_own_generator

ATOMS: Final = frozenset({type(None), bool, int, float, complex, str, bytes})
"""Types of values that nothing can change; there are others."""

SENTINEL: Final[Any] = getattr(builtins, "sentinel", None)
"""The type of what ``sentinel`` makes, from Python 3.15 on; None before."""

FROZEN_DICT: Final[Any] = getattr(builtins, "frozendict", None)
"""Likewise."""

UNCHANGING: Final = ATOMS | {
    *(object, range, re.Pattern, struct.Struct),
    *(EllipsisType, NotImplementedType, SENTINEL),
}
"""More of them."""

_BY_NAME: Final = frozenset(
    {
        *(("datetime", name) for name in ("date", "datetime", "time", "timedelta", "timezone")),
        *(("pathlib", name) for name in ("PosixPath", "PurePosixPath", "PureWindowsPath")),
        *(("pathlib._local", name) for name in ("PosixPath", "PurePosixPath", "PureWindowsPath")),
        *(("decimal", "Decimal"), ("fractions", "Fraction"), ("uuid", "UUID")),
        *(("zoneinfo", "ZoneInfo"), ("ipaddress", "IPv4Address"), ("ipaddress", "IPv6Address")),
        *(("logging", "Logger"), ("logging", "RootLogger")),  # which go by their names
    }
)
"""And more, without importing their modules."""

_OF_C: Final = (BuiltinFunctionType, WrapperDescriptorType, MethodDescriptorType)


def is_unchanging(value: object) -> bool:
    """Return whether nothing can change a value, or it goes without what has changed in it."""
    kind: Any = type(value)
    if kind in _OF_C:  # of a module or a class, not of an object
        owner = getattr(value, "__self__", None)
        return isinstance(owner, (type, ModuleType, type(None))) or is_own_generator(value)
    if kind.__module__ == "numpy.dtypes":
        return getattr(value, "names", ()) is None  # names of fields can be changed
    return are_unchanging(kind) or is_own_generator(value)


def are_unchanging(kind: Any) -> bool:
    """Return whether nothing can change a value of a type, whichever it is."""
    if kind in UNCHANGING:
        return True
    if kind.__module__ == "numpy":
        # Numbers, but a record can be changed; and functions that go by names, if they go at all.
        return issubclass(kind, (np.generic, np.ufunc)) and not issubclass(kind, np.void)
    return (kind.__module__, kind.__qualname__) in _BY_NAME
