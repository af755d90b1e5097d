"""A warning for programs whose tasks would all draw the same random numbers.

A task gets copies of what its function reads.  If that is a generator of random numbers, each task
has one in the state of the script's own, and all of them draw the same.  In pools that fork, or
that import the script on each worker, a generator goes on from task to task: who is used to these
would not see why an average does not get better.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import partial
from types import BuiltinMethodType, CodeType, FunctionType, MethodType
from typing import Any

from ...caches import LruCache, WeakLruCache
from ...serializer import SCRIPT_MODULES, innermost, is_own_generator, reads, task_name
from .warned import warn

#: The types of generators: module and name.  As long as a module is not imported, there are none.
_KINDS = (("random", "Random"), ("numpy.random", "Generator"), ("numpy.random", "RandomState"))

#: Functions that are not looked at again.
_MOST = 256


class GeneratorCheck:
    """Looks from which generators the tasks of a pool draw."""

    def __init__(self) -> None:
        self._seen: LruCache[CodeType] = LruCache(_MOST)
        #: Objects whose methods were tasks: False for each at first, and as soon as several tasks
        #: had it, the code of the method that was looked at.
        self._objects: WeakLruCache[CodeType | bool] = WeakLruCache(_MOST)
        self._drawn_from: object = None  # the generator of which a method was a task last

    def look(self, fn: Callable[..., Any], several: bool = False) -> None:
        """Warn, once for each function, if it draws from a generator that the script has.

        A method does if its object has one, and is given to several tasks; so does an object that
        is called, and a partial function if it brings one along.
        """
        inner = _called(innermost(fn))
        drawn: list[str] = []
        function = inner.__func__ if isinstance(inner, MethodType) else inner
        if is_own_generator(inner):
            return
        if _is_generator(inner):
            generator = getattr(inner, "__self__", inner)
            if several or generator is self._drawn_from:
                drawn.append("its generator")
            self._drawn_from = generator
        elif type(function) is FunctionType:
            code = function.__code__
            if self._seen.use(id(code)) is not code:
                self._seen.keep(id(code), code)
                drawn += dict.fromkeys(_generators(function, set()))
            if isinstance(inner, MethodType) and self._again(inner.__self__, code, several):
                drawn += _attributes(inner)
        if several and isinstance(fn, partial) and not _seeds(function):
            drawn += _brought(fn)
        if drawn:
            warn(
                f"each task of {task_name(fn)} starts with {' and '.join(drawn)} in the same "
                "state, and draws what all others draw: pass each a seed of its own "
                "(numpy.random.SeedSequence.spawn)"
            )

    def _again(self, holder: object, code: CodeType, several: bool) -> bool:
        """Return whether several tasks have had an object, and its method was not looked at yet."""
        looked = self._objects.get(holder)
        if looked is code:
            return False
        several = several or looked is not None
        return self._objects.keep(holder, code if several else False) and several


def _called(fn: Any) -> Any:
    """Return the method that the call of an object of a class is, or the callable itself."""
    call = type(fn).__call__ if callable(fn) else None
    return MethodType(call, fn) if type(call) is FunctionType else fn


def _seeds(function: object) -> bool:
    """Tell whether a function may set the state of its generators itself."""
    return type(function) is FunctionType and "seed" in function.__code__.co_names


def _generators(function: FunctionType, seen: set[CodeType]) -> Iterator[str]:
    """Yield the names of generators that a function reads, or functions of the script it calls."""
    code = function.__code__
    if function.__module__ not in SCRIPT_MODULES or code in seen:
        return  # what a module has is each worker's own
    if _seeds(function):
        return
    seen.add(code)
    for name, value in reads(function):
        if _is_generator(value) and not is_own_generator(value):
            yield repr(name)
        elif type(value) is FunctionType:
            yield from _generators(value, seen)


def _attributes(method: MethodType) -> list[str]:
    """Return the names of the generators that a method finds in its object."""
    names = method.__func__.__code__.co_names
    try:
        state = vars(method.__self__)
    except Exception:  # it has none; or the user's own code
        return []
    found = [] if _seeds(method.__func__) else [name for name in names if name in state]
    return [f"self.{name}" for name in found if _is_generator(state[name])]


def _brought(fn: partial[Any]) -> list[str]:
    """Return what a partial function brings along: the names of generators among its arguments."""
    arguments = [(f"argument {n}", value) for n, value in enumerate(fn.args, 1)]
    arguments += [(repr(name), value) for name, value in fn.keywords.items()]
    return [name for name, value in arguments if _is_generator(value)]


def _is_generator(value: object) -> bool:
    """Tell whether a value is a generator, or a method of one."""
    if type(value) in (MethodType, BuiltinMethodType):
        value = getattr(value, "__self__", None)  # functions of Boost.Python claim to be of these
    found = (getattr(sys.modules.get(module), name, None) for module, name in _KINDS)
    return issubclass(type(value), tuple(kind for kind in found if isinstance(kind, type)))
