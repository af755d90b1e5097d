"""Globals that a pool's initializer sets, and that the functions of its tasks read.

``def setup(): global model; model = load()`` is what an initializer is for.  Yet each function of
the script is restored on a worker with globals of its own, so what one assigns no other would see;
and a task's function brings its own ``model = None`` along.  So what an initializer has assigned is
noted, and put into the globals of each function by value of that pool.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from types import FunctionType
from typing import Any

from .byvalue import named

__all__ = ["changed_globals", "prepare"]


def prepare(fn: object, prepared: Mapping[str, Any]) -> None:
    """Let a function by value see the globals that the pool's initializer has set.

    Each function by value is restored with globals of its own.  What an initializer of the same
    script has assigned there goes before what the function brought along.
    """
    function = _plain_function(fn)
    if prepared and function is not None and not named(function):
        function.__globals__.update(prepared)


def changed_globals(fn: Callable[..., object], call: Callable[[], object]) -> dict[str, Any]:
    """Call something, and return what it has assigned in the globals of a function by value."""
    function = _plain_function(fn)
    if function is None or named(function):
        call()
        return {}
    before = dict(function.__globals__)
    call()
    return {
        name: value
        for name, value in function.__globals__.items()
        if name != "__builtins__" and (name not in before or before[name] is not value)
    }


def _plain_function(fn: object) -> FunctionType | None:
    """Return the function in a function, a method or a partial."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    fn = getattr(fn, "__func__", fn)
    return fn if isinstance(fn, FunctionType) else None
