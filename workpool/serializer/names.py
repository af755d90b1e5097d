"""What a function names, and what that is: its globals, its cells, the submodules it may look up.

What is defined in it is included.
"""

from __future__ import annotations

import dis
import functools
import sys
from collections.abc import Iterable, Iterator
from types import CellType, CodeType, FunctionType, ModuleType
from typing import Final

__all__ = ["UNBOUND", "content", "global_names", "reads", "stored_names", "submodules"]

UNBOUND: Final = object()
"""Stands for what a name or a cell holds that is bound to nothing."""


def _nested(code: CodeType) -> Iterator[CodeType]:
    """Yield the code of the functions, classes and comprehensions in a code object."""
    return (constant for constant in code.co_consts if isinstance(constant, CodeType))


@functools.lru_cache(maxsize=1024)
def global_names(code: CodeType) -> tuple[str, ...]:
    """Return the names that may be those of globals; some in the body of a class may be others."""
    names = {i.argval for i in dis.get_instructions(code) if _names_global(i.opname)}
    return tuple(sorted(names.union(*map(global_names, _nested(code)))))


def _names_global(opname: str) -> bool:
    """Tell whether an instruction's argument may be a global name; a class body uses LOAD_NAME."""
    return "GLOBAL" in opname or opname == "LOAD_NAME"


@functools.lru_cache(maxsize=1024)
def stored_names(code: CodeType) -> frozenset[str]:
    """Return the names of the globals that are bound or deleted."""
    ops = ("STORE_GLOBAL", "DELETE_GLOBAL")
    names = {i.argval for i in dis.get_instructions(code) if i.opname in ops}
    return frozenset(names.union(*map(stored_names, _nested(code))))


@functools.lru_cache(maxsize=1024)
def _attributes(code: CodeType) -> frozenset[str]:
    return frozenset(code.co_names).union(*map(_attributes, _nested(code)))


def submodules(code: CodeType, values: Iterable[object]) -> list[ModuleType]:
    """Return the imported submodules that nested code may find in the packages among `values`."""
    inner = frozenset[str]().union(*map(_attributes, _nested(code)))
    packages = [value for value in values if isinstance(value, ModuleType)]
    prefixes = tuple(f"{module.__name__}." for module in packages if hasattr(module, "__path__"))
    if not inner or not prefixes:
        return []
    known = inner | set(code.co_names)
    found = []
    for name, module in list(sys.modules.items()):
        for prefix in prefixes:
            if name.startswith(prefix) and known.issuperset(name[len(prefix) :].split(".")):
                found.append(module)
    return found


def reads(function: object) -> Iterator[tuple[str, object]]:
    """Yield the name and the value of each global and closure variable of a Python function."""
    if type(function) is FunctionType:
        for name in global_names(function.__code__):
            if name in function.__globals__:
                yield name, function.__globals__[name]
        cells = function.__closure__ or ()
        for name, cell in zip(function.__code__.co_freevars, cells, strict=True):
            value = content(cell)
            if value is not UNBOUND:
                yield name, value


def content(cell: CellType) -> object:
    """Return what a cell holds, or `UNBOUND`."""
    try:
        return cell.cell_contents
    except ValueError:
        return UNBOUND
