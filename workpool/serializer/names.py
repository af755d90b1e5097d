"""What a function names, and what that is: its globals, its cells, the submodules it may look up.

What is defined in it is included.
"""

from __future__ import annotations

import functools
import sys
import types
from collections.abc import Iterable, Iterator, Set
from contextlib import suppress
from importlib import import_module
from types import CellType, CodeType, FunctionType, ModuleType
from typing import Any, Final

from ..interrupts import FAILURES
from ..lazy import dis

CACHED: Final = type(functools.lru_cache(repr))
"""What `functools.lru_cache` makes of a function."""

UNBOUND: Final = object()
"""Stands for what a name or a cell holds that is bound to nothing."""

LAZY: Final[Any] = getattr(types, "LazyImportType", None)
"""What ``lazy import`` binds, from Python 3.15 on, until Python reads the name; None before."""


def with_nested(code: CodeType) -> Iterator[CodeType]:
    """Yield a code object, and those of the functions, classes and comprehensions in it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from with_nested(constant)


def _named_by(code: CodeType, *operations: str) -> frozenset[str]:
    """Return the names in the steps of these kinds, of which parts of their names are given."""
    steps = (step for each in with_nested(code) for step in dis.get_instructions(each))
    return frozenset(it.argval for it in steps if any(part in it.opname for part in operations))


@functools.lru_cache(maxsize=1024)
def global_names(code: CodeType) -> tuple[str, ...]:
    """Return the names that may be those of globals; some in the body of a class may be others."""
    # By LOAD_NAME the body of a class reads globals as well as names of its own.
    return tuple(sorted(_named_by(code, "GLOBAL", "LOAD_NAME")))


@functools.lru_cache(maxsize=1024)
def bound_names(code: CodeType) -> frozenset[str]:
    """Return the names of the globals that are given another value, or deleted."""
    return _named_by(code, "STORE_GLOBAL", "DELETE_GLOBAL")


@functools.lru_cache(maxsize=1024)
def bound_cells(code: CodeType) -> frozenset[str]:
    """Return the names of the cells that are given another value, or emptied."""
    return _named_by(code, "STORE_DEREF", "DELETE_DEREF")


def submodules(code: CodeType, values: Iterable[Any]) -> list[ModuleType]:
    """Return the imported submodules that code may find in the packages among `values`."""
    packages = {
        f"{value.__name__}."
        for value in values
        if issubclass(type(value), ModuleType) and hasattr(value, "__path__")
    }
    if not packages:
        return []
    pending = frozenset(getattr(sys, "lazy_modules", ()))  # from Python 3.15 on
    imported = len(sys.modules), next(reversed(sys.modules))
    found = _submodules(code, tuple(sorted(packages)), pending, imported)
    for name in pending.intersection(found):
        with suppress(*FAILURES):  # met again where the code looks it up
            import_module(name)
    return [sys.modules[name] for name in found if name in sys.modules]


@functools.lru_cache(maxsize=1024)
def _submodules(
    code: CodeType, packages: tuple[str, ...], pending: Set[str], _: tuple[int, str]
) -> tuple[str, ...]:
    """Return their names; anew when modules have been imported."""
    known = {name for each in with_nested(code) for name in each.co_names}
    return tuple(
        name
        for name in (*sys.modules.copy(), *pending)
        for package in packages
        if name.startswith(package) and known.issuperset(name[len(package) :].split("."))
    )


def reads(function: object) -> Iterator[tuple[str, object]]:
    """Yield the name and the value of each global and closure variable of a Python function."""
    if type(function) is FunctionType:
        yield from globals_of(function)
        for name, _, value in cells_of(function):
            if value is not UNBOUND:
                yield name, value


def globals_of(function: FunctionType) -> Iterator[tuple[str, object]]:
    """Yield the name and the value of each global."""
    for name in global_names(function.__code__):
        value = global_value(function.__globals__, name)
        if value is not UNBOUND:
            yield name, value


def global_value(names: dict[str, Any], name: str) -> object:
    """Return what a global is bound to, or `UNBOUND`; a lazy import is done, as by its first use.

    One that fails stays as it is.
    """
    value = names.get(name, UNBOUND)
    if type(value) is LAZY:
        with suppress(*FAILURES):
            value = names[name] = value.resolve()
    return value


def cells_of(function: FunctionType) -> Iterator[tuple[str, CellType, object]]:
    """Yield the name, the cell and the value of each variable of a closure."""
    cells = function.__closure__ or ()
    for name, cell in zip(function.__code__.co_freevars, cells, strict=True):
        yield name, cell, content(cell)


def content(cell: CellType) -> object:
    """Return what a cell holds, or `UNBOUND`."""
    try:
        return cell.cell_contents
    except ValueError:
        return UNBOUND


def innermost(fn: Any) -> Any:
    """Return what a `functools.partial` of perhaps other ones calls in the end."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    return fn
