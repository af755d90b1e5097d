"""Functions that were sent whole, made where they arrive.

By nothing that takes long to import: most of what workers get are such functions, and a worker that
gets no class of the script does without cloudpickle and all that it imports.
"""

from __future__ import annotations

import builtins
from collections import defaultdict
from collections.abc import Callable
from contextvars import ContextVar
from types import CellType, CodeType, FunctionType, ModuleType
from typing import Any, Final, TypeAlias

Globals: TypeAlias = dict[str, Any]

State: TypeAlias = tuple[
    dict[str, Any],  # the attributes in its __dict__
    dict[str, Any],  # the others, such as __defaults__
    Globals,  # what it reads
    tuple[tuple[CellType, object], ...],  # what its cells hold
    list[ModuleType],  # submodules of the packages that it reads: being here, they are imported
]
"""What a function has besides its code."""

Prepared: TypeAlias = dict[str | None, Globals]
"""What an initializer has set, by the name of the module that it belongs to; see `prepared`."""

_on_restored: Final[ContextVar[Callable[[Globals], None] | None]] = ContextVar(
    "workpool_on_restored", default=None
)
"""What is called with the globals of each function that is restored by value."""

_warned: Final[defaultdict[object, dict[object, object]]] = defaultdict(dict)
"""By the name of a module: what `warnings` keeps in it, for all functions restored of it.

With globals of its own, each would give the same warning anew, in each task.
"""


def make_code(filename: str, made: tuple[Any, ...]) -> CodeType:
    """Return a code object with its file, without which a traceback shows none of its lines."""
    return CodeType(*made).replace(co_filename=filename)


def make_cell() -> CellType:
    """Return an empty cell, as pickle cannot."""
    return CellType()


def make_function(
    code: CodeType, names: Globals, cells: tuple[CellType, ...] | None
) -> FunctionType:
    """Return a function that has nothing yet but its code; its globals others may have as well."""
    names["__builtins__"] = vars(builtins)
    return FunctionType(code, names, None, None, cells)


def fill_function(function: FunctionType, state: State) -> None:
    """Give a function the rest, and tell whoever waits for its globals."""
    attributes, slots, read, cells, _ = state
    vars(function).update(attributes)
    for name, value in slots.items():
        setattr(function, name, value)
    names = function.__globals__
    names.update(read)
    for cell, value in cells:  # after the function is there, which may be in one of them
        cell.cell_contents = value
    names["__warningregistry__"] = _warned[names.get("__name__")]
    told = _on_restored.get()
    if told is not None:
        told(names)


def use_prepared(prepared: Prepared) -> None:
    """Have functions that are restored from now on, in this context, see what was prepared."""

    def fill(names: Globals) -> None:
        names.update(prepared.get(names.get("__name__"), ()))

    _on_restored.set(fill if prepared else None)


def collect_globals() -> list[Globals]:
    """Return a list that gets the globals of each function that is restored from now on."""
    found: list[Globals] = []
    _on_restored.set(found.append)
    return found
