"""A warning for programs whose tasks keep something in a global, for the tasks that come later.

``global model; if model is None: model = load()`` loads once in each process of a pool that forks,
or imports the script on each worker.  Here each task has copies of the script's globals: it finds
None, and loads again.
"""

from __future__ import annotations

from types import CodeType, FunctionType

from ..lazy import dis
from ..serializer import task_name
from ..serializer.names import bound_names
from .warned import warn


def look(function: FunctionType) -> None:
    """Warn if a function makes a global where that is None, as it is on the driver."""
    for name in _made_late(function.__code__):
        if function.__globals__.get(name, function) is None:
            warn(
                f"{task_name(function)} makes the global {name!r} of the script where that is "
                "None, as it is again in each task: have the pool's initializer make it, or a "
                "function with functools.cache, which keeps it on each worker"
            )


def _made_late(code: CodeType) -> list[str]:
    """Return the names of the globals that some code reads before it gives them a value."""
    bound = bound_names(code)
    if not bound:
        return []
    first: dict[str, str] = {}
    for step in dis.get_instructions(code):
        if "GLOBAL" in step.opname and step.argval in bound:
            first.setdefault(step.argval, step.opname)
    return [name for name, operation in first.items() if operation == "LOAD_GLOBAL"]
