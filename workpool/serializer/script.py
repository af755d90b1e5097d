"""The script's module, and what stands for it in a process that does not run the script.

There, ``__main__`` has the classes of the script that the task brought along, by their names: so a
task can pickle their instances by itself, as a program does that stores results, or starts
processes.  What the script has exactly once, such as a sentinel, it has for good.
"""

from __future__ import annotations

import builtins
import sys
from types import FunctionType, ModuleType
from typing import Any, Final

from .instances import attributes_of, set_attributes

SCRIPT_MODULES: Final = frozenset({"__main__", "__mp_main__"})
"""Modules that are another module, or none, on a worker."""

_shown: dict[str, object] = {}
_tasks_here = False
_left: list[ModuleType] = []  # our own ``__main__``, where this process does not run the script


def leave_script() -> None:
    """Say that this process does not run the script."""
    if not _left:
        _left.append(sys.modules["__main__"])
        sys.modules["__main__"] = ModuleType("__main__", "What tasks have of the script.")


def stay_in_script() -> None:
    """Say that this process runs the script, and its tasks as well."""
    global _tasks_here
    _tasks_here = True


def tasks_are_here() -> bool:
    """Tell whether this process runs the script, and its tasks as well."""
    return _tasks_here


def show(name: str, value: object) -> None:
    """Let something restored be found in ``__main__`` for one task; the script is left alone."""
    if _left:
        _shown[name] = value
        vars(sys.modules["__main__"])[name] = value


def shown() -> dict[str, object]:
    """Return what was shown since the task began."""
    return _shown.copy()


def clear_script() -> None:
    """Forget what the last task has brought along: the next one finds only its own."""
    if _shown:
        names = vars(sys.modules["__main__"])
        while _shown:
            names.pop(_shown.popitem()[0], None)


def is_in_script(name: str, value: object) -> bool:
    """Tell whether the script has something under that name."""
    return vars(sys.modules["__main__"]).get(name) is value


def found_in_script(path: str) -> Any:
    """Return what the script has under a name, perhaps in one of its classes; None if nothing."""
    found: object = sys.modules["__main__"]
    for part in path.split("."):
        found = getattr(found, part, None)
    return found


def has_function(function: FunctionType) -> bool:
    """Tell whether the script, or one of its classes, has a function under its own name.

    It runs no code of the script, as a descriptor of its own would have.
    """
    found: object = sys.modules["__main__"]
    for part in function.__qualname__.split("."):
        found = vars(found).get(part) if isinstance(found, (ModuleType, type)) else None
    if isinstance(found, (classmethod, staticmethod)):
        found = found.__func__
    return found is function or is_in_script(function.__name__, function)


def reduce_once(obj: Any) -> Any:
    """Return how to pickle an object whose class says how: perhaps by a name in the script.

    It is found under that name, or made there, once in each process; but what ``curry`` of toolz or
    cytoolz has made is made again of its function, and what would be looked up in a class that has
    it, as what ``cachedmethod`` of cachetools has made, of its attributes: the class comes with it.
    """
    reduced = obj.__reduce_ex__(5)
    cls = type(obj)
    if not isinstance(reduced, str):
        if _is_curried(cls):
            return _of_function(obj, reduced)
        if any(_has(it, obj) for it in reduced[1]):
            return object.__new__, (cls,), attributes_of(obj), None, None, set_attributes
        return reduced
    try:
        object.__new__(cls)
    except TypeError:  # a number, a text: there is more to it than attributes
        return NotImplemented
    if not is_in_script(reduced, obj):
        return NotImplemented
    return the_one, (reduced, cls, attributes_of(obj))


def _has(it: object, attribute: object) -> bool:
    return isinstance(it, type) and any(value is attribute for value in vars(it).copy().values())


def _is_curried(kind: type) -> bool:
    return kind.__name__ == "curry" and kind.__module__ in {"toolz.functoolz", "cytoolz.functoolz"}


def _of_function(curried: Any, reduced: tuple[Any, ...]) -> tuple[Any, ...]:
    restore, (cls, func, *rest, _) = reduced
    if isinstance(func, str):  # "__main__:name"
        func = curried.func
    return restore, (cls, func, *rest, None)  # not what is found under that name


def the_one(name: str, cls: type, attributes: dict[str, Any]) -> Any:
    """Return what the script has under a name; where that does not run, it is made once."""
    names = vars(sys.modules["__main__"])
    found = names.get(name)
    if type(found) is not cls:
        found = object.__new__(cls)
    elif not _left:
        return found  # the script's own
    set_attributes(found, attributes)  # whatever an earlier task has made of them
    if _left:
        names[name] = found
    return found


_marks: Final[dict[str, Any]] = {}  # sentinels by what they are known by


def reduce_sentinel(mark: Any) -> Any:
    """Return how to pickle a ``sentinel``, of Python 3.15 and up: one of the script once as above.

    By its name, which may be ``Class.NAME``; what the script has not under that, or another as
    well, is told apart by strokes behind its name.
    """
    if mark.__module__ not in SCRIPT_MODULES:
        return NotImplemented
    key = next((key for key, it in _marks.copy().items() if it is mark), mark.__name__)
    while (_sentinel_known_by(key) or _marks.setdefault(key, mark)) is not mark:
        key += "'"
    return _the_sentinel, (key, mark.__name__, repr(mark))


def _sentinel_known_by(key: str) -> Any:
    found = found_in_script(key)
    make: Any = builtins.sentinel  # type: ignore[attr-defined]
    return found if type(found) is make else _marks.get(key)


def _the_sentinel(key: str, name: str, shown: str) -> Any:
    found = _sentinel_known_by(key)
    if found is None:
        found = _marks[key] = builtins.sentinel(name, repr=shown)  # type: ignore[attr-defined]
        found.__module__ = "__main__"
        if _left:
            vars(sys.modules["__main__"])[key] = found
    return found
