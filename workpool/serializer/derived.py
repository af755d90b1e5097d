"""What a class has that Python, dataclasses, attrs or namedtuple have made from its body."""

from __future__ import annotations

import collections
from collections.abc import Mapping
from importlib import import_module
from types import FunctionType, GetSetDescriptorType, MemberDescriptorType
from typing import Any, Final

from ..interrupts import failures
from ..lazy import dataclasses, inspect

CACHES: Final = frozenset({"__slotnames__", "__msgspec_cache__"})
"""Attributes in which copyreg and msgspec keep what instances have; msgspec's has no pickle."""

WHEN_ASKED: Final = CACHES | {"__annotations__", "__annotate_func__", "__annotations_cache__"}
"""Attributes that a class gets when its instances are pickled, or its annotations looked at."""

DERIVED: Final = WHEN_ASKED | {
    *("__dict__", "__weakref__", "__doc__", "__module__", "__qualname__", "__slots__"),
    "__annotate__",
    "__classdictcell__",  # which NamedTuple leaves there, from Python 3.14 on
    *("__orig_bases__", "__parameters__", "__type_params__", "_abc_impl"),
    *("__dataclass_fields__", "__dataclass_params__", "__attrs_attrs__", "_field_defaults"),
    *("_member_names_", "_member_map_", "_value2member_map_", "_unhashable_values_"),
    *("_hashable_values_", "_unhashable_values_map_", "__non_callable_proto_members__"),
}
"""Attributes of classes that follow from others."""

WRITTEN: Final = frozenset({"__dataclass_fields__", "__attrs_attrs__", "_fields"})
"""Attributes of classes for which `dataclasses`, attrs or `namedtuple` has written methods."""

_WRITERS: Final = ("<string>", "<attrs generated", collections.__file__)
"""The files of such methods, or what stands in the place of one; and that of `dataclasses`."""

_WRITER: Final = "__create_fn__"
"""The function around those that `dataclasses` writes."""

FIELDS: Final = (
    MemberDescriptorType,
    GetSetDescriptorType,
    type(vars(collections.namedtuple("_Fields", "field"))["field"]),
)
"""Kinds of attributes that are where a class keeps something of its instances."""


def field_values(attributes: Mapping[str, Any]) -> list[object]:
    """Return what the fields of a class hold: defaults, factories, converters, metadata."""
    fields = attributes.get("__dataclass_fields__") or {}
    found: list[object] = []
    for field in fields.values():
        found += (field.default, field.default_factory, field.metadata or None)
    for field in attributes.get("__attrs_attrs__") or ():
        found += (getattr(field.default, "factory", field.default), field.metadata or None)
        names = "validator", "converter", "on_setattr", "repr", "eq_key", "order_key"
        found += (getattr(field, name, None) for name in names)
    return [value for value in found if value is not dataclasses.MISSING]


def is_written(name: str, method: Any) -> bool:
    """Tell whether `dataclasses`, attrs or `namedtuple` has written a method of a class."""
    # The ``__getattr__`` that attrs writes has what a cached property of the class calls.
    if type(method) is not FunctionType or not name.startswith("_") or name == "__getattr__":
        return False
    inner = inspect.unwrap(method)  # a ``__repr__`` that looks for itself
    code = inner.__code__ if isinstance(inner, FunctionType) else None
    if code is None or not code.co_filename.startswith((*_WRITERS, dataclasses.__file__)):
        return False
    # A script that is given on the command line has the same name of a file.
    within = getattr(code, "co_qualname", _WRITER)  # from Python 3.11 on
    return code.co_filename != "<string>" or within.startswith(_WRITER)


def annotations_of(definition: Any) -> dict[str, Any]:
    """Return the annotations of a function or class, as they are by now.

    From Python 3.14 on they are worked out when somebody asks for them.  A name in them may stand
    for nothing, because it is imported for a type checker alone: the function works all the same.
    Then they are what ``from __future__ import annotations`` makes of them, text.
    """
    found: dict[str, Any]
    try:
        found = definition.__annotations__
    except failures():
        library: Any = import_module("annotationlib")  # there is one from Python 3.14 on
        found = library.get_annotations(definition, format=library.Format.STRING)
    return found
