"""The script's module, and what stands for it in a process that does not run the script.

There, what was restored of the script can be found by its name in ``__main__``, as far as it has
come: so a task can pickle an object of a class of the script, as a program does that stores results
by itself, and what the script has once is there once.
"""

from __future__ import annotations

import sys
from typing import Any, Final

__all__ = ["SCRIPT_MODULES", "leave_script", "reduce_to_name", "reduces", "show"]

SCRIPT_MODULES: Final = frozenset({"__main__", "__mp_main__"})
"""Modules that are another module, or none, on a worker."""

_shown: set[str] = set()
_made: set[int] = set()  # ids of what was made to be found by its name: it is there to stay
_away = False


def leave_script() -> None:
    """Say that this process does not run the script."""
    global _away
    _away = True


def show(name: str, value: object) -> None:
    """Have something restored be found by its name in the script; not at home."""
    names = vars(sys.modules["__main__"])
    if _away and "." not in name and (name in _shown or name not in names):
        _shown.add(name)
        names[name] = value


def _find(name: str) -> Any:
    """Return what the script has under a name, or what was shown; None if there is nothing."""
    if _away and name not in _shown:
        return None
    return vars(sys.modules["__main__"]).get(name)


def reduces(kind: type) -> bool:
    """Tell whether a class of the script says how its instances are pickled."""
    return any(
        "__reduce__" in vars(cls) or "__reduce_ex__" in vars(cls)
        for cls in kind.__mro__
        if cls.__module__ in SCRIPT_MODULES
    )


def reduce_to_name(obj: Any) -> Any:
    """Return how to find an object which the script has under a name, and once, as a sentinel."""
    name = obj.__reduce_ex__(5)
    if not isinstance(name, str) or _find(name) is not obj:
        return NotImplemented
    attributes = dict(getattr(obj, "__dict__", {}))
    return _find_or_make, (name, type(obj)), attributes, None, None, _fill


def _find_or_make(name: str, cls: type) -> Any:
    found = _find(name)
    if found is None:
        found = object.__new__(cls)
        if _away:
            show(name, found)
            _made.add(id(found))
    return found


def _fill(obj: Any, attributes: dict[str, Any]) -> None:
    """Give an object its attributes, unless it is the script's own."""
    for name, value in attributes.items() if id(obj) in _made else ():
        object.__setattr__(obj, name, value)
