"""Globals that a pool's initializer sets, and that the functions of its tasks read.

``def setup(): global model; model = load()`` is what an initializer is for.  Yet each function of
the script is restored on a worker with globals of its own, so what one assigns no other would see;
and a task's function brings its own ``model = None`` along.  So what an initializer has assigned in
the globals of the script, or changed there in place, is noted, and put into the globals of each
function that is restored for a task of that pool: the task's own, one among its arguments, a
method of a class of the script.  Where worker and driver are one process, such a class is the
script's own: its methods read the script's own globals, which get the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any, TypeAlias

from ..lazy import hashlib
from .byvalue import on_restored
from .values import Packed, encode

__all__ = ["Prepared", "collect_globals", "prepared_by", "use"]

Globals: TypeAlias = dict[str, Any]

Prepared: TypeAlias = dict[str | None, Globals]
"""What an initializer has set, by the name of the module that it belongs to."""


def use(prepared: Prepared) -> None:
    """Have functions that are restored from now on, in this context, see what was prepared."""
    if not prepared:
        on_restored.set(None)
        return

    def fill(names: Globals, _: bool) -> None:
        names.update(prepared.get(names.get("__name__"), ()))

    on_restored.set(fill)


def collect_globals() -> list[Globals]:
    """Return a list that gets the globals of each function that is restored from now on."""
    found: list[Globals] = []

    def collect(names: Globals, native: bool) -> None:
        if not native:
            found.append(names)

    on_restored.set(collect)
    return found


def prepared_by(call: Callable[[], object], namespaces: Iterable[Globals]) -> Prepared:
    """Call something, and return what it has set in the globals of functions by value."""
    watched = {id(names): names for names in namespaces}.values()
    before = [(names, dict(names), _contents(dict(names))) for names in watched]
    call()
    found: Prepared = {}
    for names, bound, contents in before:
        after = dict(names)
        names.update(bound)  # what an object looks like may depend on what its methods read
        same = {name for name, value in bound.items() if after.get(name) is value}
        held = _contents({name: bound[name] for name in same})
        names.update(after)
        changed = found.setdefault(after.get("__name__"), {})
        for name, value in after.items():
            if name != "__builtins__" and (name not in same or held[name] != contents[name]):
                changed[name] = value
    return found


def _contents(names: Globals) -> dict[str, object]:
    return {name: _content(value) for name, value in names.items()}


def _content(value: object) -> object:
    """Return what tells whether something was changed in place."""
    if isinstance(value, (ModuleType, FunctionType, BuiltinFunctionType, type)):
        return None  # they come again with each task that needs them
    try:
        encoded = encode(value)
    except KeyboardInterrupt:
        raise
    except BaseException:  # it came as bytes and cannot go as such: it is not what it was
        return object()
    pieces = encoded.segments() if isinstance(encoded, Packed) else [encoded]
    digest = hashlib.blake2b(digest_size=16)
    for piece in pieces:
        digest.update(piece)
    return digest.digest()
