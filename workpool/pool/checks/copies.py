"""A warning for programs whose tasks change an object of a module, for functions of that module.

After ``from m import config`` a task, or an initializer, sets ``config.tolerance``.  In the
processes of other pools the functions of ``m`` find it there.  Here a function of the script has a
copy of what it imports by its name, and they have the worker's own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from types import FunctionType, ModuleType

from ...lazy import dis
from ...serializer import reads, task_name
from ...serializer.byname import held_at
from .kept import indexed, loaded
from .warned import warn

#: Methods that change their object.
_CHANGE = re.compile("set|add|append|clear|extend|update|enable|disable|register")


def look(function: FunctionType, prepares: bool = False) -> None:
    """Warn if a function changes what a module has, and uses that module; or `prepares` its use."""
    code = function.__code__
    stores = {"STORE_ATTR", "STORE_SUBSCR"}
    if not (
        any(map(_CHANGE.match, code.co_names))
        or stores & {dis.opname[operation] for operation in code.co_code[::2]}
    ):
        return
    values = {name: it for name, it in reads(function) if not isinstance(it, (ModuleType, type))}
    for name in dict.fromkeys(_changed([*dis.get_instructions(code)])):
        if name not in values or (place := held_at(values[name])) is None:
            continue
        module = place[0]
        package = module.partition(".")[0]
        others = (it for other, it in reads(function) if other != name)
        if (prepares or any(_package(it) == package for it in others)) and _is_copied(values[name]):
            warn(
                f"{task_name(function)} changes {name!r}, which is a copy of what module {module} "
                f"has: the module's own functions do not see that; in all functions, write "
                f"{'.'.join(place)} for it, after `import {module}`"
            )


def _changed(steps: Sequence[dis.Instruction]) -> Iterator[str]:
    """Yield the variables whose attributes or items are set, or that a method may change."""
    for at, step in enumerate(steps):
        if step.opname == "STORE_SUBSCR":
            yield indexed(steps[:at])
        elif step.opname == "STORE_ATTR" or (
            step.opname in ("LOAD_ATTR", "LOAD_METHOD") and _CHANGE.match(step.argval)
        ):
            root = at - 1
            while steps[root].opname == "LOAD_ATTR":
                root -= 1
            yield loaded(steps[root])


def _package(value: object) -> str:
    """Return the package of a module, or of what is defined in one."""
    attribute = "__name__" if isinstance(value, ModuleType) else "__module__"
    return str(getattr(value, attribute, "")).partition(".")[0]


def _is_copied(value: object) -> bool:
    from ...serializer.byvalue import is_copied  # with cloudpickle, which few functions need

    return is_copied(value)
