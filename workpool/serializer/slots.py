"""What objects keep in ``__slots__``, by its descriptors: it may be an iterator, and used up."""

from __future__ import annotations

from types import MemberDescriptorType
from typing import Any

__all__ = ["members", "slots"]


def members(cls: type) -> list[str]:
    """Return the names of the slots that a class adds to those of its bases."""
    return [name for name, it in vars(cls).items() if isinstance(it, MemberDescriptorType)]


def slots(obj: object) -> dict[str, Any]:
    """Return what an object has in its slots, without those of classes written in C."""
    return {
        name: getattr(obj, name)
        for base in type(obj).__mro__
        if "__slots__" in vars(base)
        for name in members(base)
        if hasattr(obj, name)
    }
