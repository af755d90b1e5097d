"""A warning for programs whose tasks keep something in a global, for the tasks that come later.

``global model; if model is None: model = load()`` loads once in each process of a pool that forks,
or imports the script on each worker.  Here each task has copies of the script's globals: it finds
None, and loads again.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import CodeType, FunctionType

from ..caches import LruCache
from ..lazy import dis
from ..serializer import SCRIPT_MODULES, innermost, reads, task_name
from ..serializer.names import bound_names
from .warned import warn

#: Functions that are not looked at again.
_MOST = 256


class KeptCheck:
    """Looks whether functions make a global where that is None, as it is on the driver."""

    def __init__(self) -> None:
        self._seen: LruCache[CodeType] = LruCache(_MOST)

    def look(self, fn: object) -> None:
        """Warn, once for each function, if it does, or one of the script that it calls."""
        inner = innermost(fn)
        for function, name in self._made(getattr(inner, "__func__", inner)):
            warn(
                f"{task_name(function)} makes the global {name!r} of the script where that is "
                "None, as it is again in each task: have the pool's initializer make it, or a "
                "function with functools.cache, which keeps it on each worker"
            )

    def _made(self, function: object) -> Iterator[tuple[FunctionType, str]]:
        if type(function) is not FunctionType or function.__module__ not in SCRIPT_MODULES:
            return
        code = function.__code__
        if self._seen.use(id(code)) is code:
            return
        self._seen.keep(id(code), code)
        for name in _made_late(code):
            if function.__globals__.get(name, code) is None:
                yield function, name
        for _, value in reads(function):
            yield from self._made(value)


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
