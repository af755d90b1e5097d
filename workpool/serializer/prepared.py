"""Globals that a pool's initializer sets, and that the functions of its tasks read.

``def setup(): global model; model = load()`` is what an initializer is for.  Yet each function of
the script is restored on a worker with globals of its own, so what one assigns no other would see;
and a task's function brings its own ``model = None`` along.  So what an initializer has assigned in
the globals of the script, or changed there in place, is noted, and put into the globals of each
function that is restored for a task of that pool: the task's own, one among its arguments, a
method of a class of the script.  The last not where worker and driver are one process: there, such
a class is the script's own, and its methods read the script's own globals.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

from ..interrupts import interrupts
from ..lazy import hashlib
from .byvalue import ByValuePickler, dumps_by_value
from .functions import Globals, Prepared
from .names import UNBOUND


def prepared_by(call: Callable[[], object], namespaces: Iterable[Globals]) -> Prepared:
    """Call something, and return what it has set in the globals of functions by value."""
    watched = {id(names): names for names in namespaces}.values()
    before = [(names, _contents(names)) for names in watched]
    call()
    found: Prepared = {}
    for names, contents in before:
        changed = found.setdefault(names.get("__name__"), {})
        for name, (value, content) in _contents(names).items():
            had, was = contents.get(name, (UNBOUND, None))
            if had is not value or was != content:
                changed[name] = value
    return found


def _contents(names: Globals) -> dict[str, tuple[object, object]]:
    """Return the value of each global, and what tells whether it was changed in place."""
    bound = [(name, value) for name, value in names.copy().items() if name != "__builtins__"]
    return {name: (value, _content(value)) for name, value in bound}


class _ContentPickler(ByValuePickler):
    """Writes objects without definitions, which come again with each task that needs them."""

    def persistent_id(self, obj: Any) -> object:
        kinds = (ModuleType, FunctionType, BuiltinFunctionType, type)
        return id(obj) if isinstance(obj, kinds) else None


def _content(value: object) -> object:
    digest = hashlib.blake2b(digest_size=16)
    try:
        pickled = dumps_by_value(value, lambda part: digest.update(part.raw()), _ContentPickler)
    except interrupts():
        raise
    except BaseException:  # it came as bytes and cannot go as such: it is not what it was
        return object()
    digest.update(pickled)
    return digest.digest()
