"""Pickling by value: a definition that a worker cannot import is sent whole.

cloudpickle does that; `ByValuePickler` closes some of its gaps, those of classes in `classes`:

* **A function under `functools.lru_cache`** in the script would be sent as a name in ``__main__``,
  which no worker can look up.
* **A NewType, ParamSpec, TypeVarTuple or type alias** of the script likewise, and annotations refer
  to them.
* **A variable that two closures share** would be one for each of them.
* **What the body of a class reads** that a function defines, and **a submodule** that only a lambda
  or a comprehension looks up, do not come with the function.
* **An object whose ``__reduce__`` gives the name** that it has in the script, see `script`: of a
  class of the script, or what a decorator has made of a function of the script.
* **Annotations** from Python 3.14 on, see `annotations`.
* **A functools.partialmethod** could not be restored from Python 3.14 on.
* **Weak references**: to what comes along, if anything else there refers to it.
* **A cached_property** holds a lock before Python 3.12, and **a generic function** of
  `functools.singledispatch`, or a method of that kind, weak references.
* **Marks of `dataclasses`** that a class refers to would be others there, and no field without a
  default be known as such.
* **The file of a function** is not sent by version 3.1.3: a traceback would show none of its lines.
* **A lock, a threading.local or a ContextVar** cannot be pickled. Where a function reads it among
  the script's globals, or an object that has it, or a class has it, there is one made anew on the
  other side: a process that imported the script would have made its own as well. As an argument it
  would stand for one that all share.
* **A struct.Struct, and a library that ctypes has loaded** with its functions: made again of their
  format, and their names.
"""

from __future__ import annotations

import copyreg
import dataclasses
import functools
import inspect
import struct
import threading
import typing
import weakref
from collections.abc import Callable, Set
from contextlib import suppress
from contextvars import Context, ContextVar
from enum import Enum
from io import BytesIO
from pickle import PickleBuffer
from types import CellType, CodeType, FunctionType, MethodType
from typing import Any, Final, cast

import cloudpickle

from ..whole import FAILURES
from .annotations import annotations_of, reduce_forward_ref
from .atoms import SENTINEL
from .byname import PROTOCOL, named
from .classes import reduce_class
from .instances import is_left_to_pickle
from .names import CACHED, UNBOUND, cells_of, global_names, reads, submodules
from .reach import Reach, check_apart
from .script import SCRIPT_MODULES, is_in_script, reduce_once, reduce_sentinel, the_one

__all__ = [
    "MADE_ANEW",
    "ByValuePickler",
    "dispatched",
    "dumps_by_value",
    "generic_parts",
    "is_generic",
    "locks_in",
    "on_restored",
]

_TypeAliasType: Final[Any] = getattr(typing, "TypeAliasType", None)  # from Python 3.12
_TypeVarTuple: Final[Any] = getattr(typing, "TypeVarTuple", None)  # from Python 3.11


_MOST_ATTEMPTS: Final = 9

on_restored: Final[ContextVar[Callable[[dict[str, Any]], None] | None]] = ContextVar(
    "workpool_on_restored", default=None
)
"""What is called with the globals of each function that is restored by value."""


def fill_function(
    function: FunctionType,
    update: tuple[Callable[[Any, Any], Any], Any, tuple[tuple[CellType, object], ...]],
) -> None:
    """Fill a restored function by cloudpickle's setter, and call `on_restored`."""
    setter, state, cells = update
    setter(function, state)
    for cell, value in cells:  # after the function is there, which may be in one of them
        cell.cell_contents = value
    told = on_restored.get()
    if told is not None:
        told(function.__globals__)


_GENERIC: Final = cast("FunctionType", functools.singledispatch(repr)).__code__


def is_generic(function: FunctionType) -> bool:
    """Tell whether a function is what `functools.singledispatch` returns."""
    return function.__code__ is _GENERIC


def _make_generic(name: str = "") -> Any:
    """Return a generic function without implementations; they may refer to it."""

    def nothing(*args: Any, **kwargs: Any) -> None: ...

    nothing.__name__ = name
    return functools.singledispatch(nothing)


def _fill_generic(generic: Any, state: tuple[dict[type, Any], dict[str, Any], Any]) -> None:
    implementations, attributes, wrapped = state
    for cls, implementation in implementations.items():
        generic.register(cls, implementation)
    functools.update_wrapper(generic, wrapped)
    vars(generic).update(attributes)


def generic_parts(function: Any) -> tuple[dict[type, Any], dict[str, Any]]:
    """Return the implementations of a generic function, and its attributes."""
    own = vars(_make_generic()).keys()
    attributes = {name: value for name, value in vars(function).items() if name not in own}
    return dict(function.registry), attributes


def _reduce_generic(function: Any) -> tuple[Any, ...]:
    state = (*generic_parts(function), function.__wrapped__)
    return _make_generic, (function.__name__,), state, None, None, _fill_generic


_DISPATCH: Final = functools.singledispatch(repr).dispatch.__code__


def dispatched(function: FunctionType) -> dict[type, Any] | None:
    """Return the implementations among which a ``dispatch`` of a generic function chooses.

    A bound method has it from Python 3.13 on.  None for any other function.
    """
    if function.__code__ is not _DISPATCH:
        return None
    return next(value for name, _, value in cells_of(function) if name == "registry")  # type: ignore[return-value]


def _make_dispatch(implementations: dict[type, Any]) -> Callable[[type], Any]:
    generic = _make_generic()
    for cls, implementation in implementations.items():
        generic.register(cls, implementation)
    dispatch: Callable[[type], Any] = generic.dispatch
    return dispatch


def _reduce_generic_method(obj: Any) -> tuple[Any, ...]:
    # Its cache, in some versions, holds weak references; it may do without.
    state = {name: None if name == "_method_cache" else it for name, it in vars(obj).items()}
    return object.__new__, (functools.singledispatchmethod,), state


def _make_lru_cache(parameters: dict[str, Any]) -> functools._lru_cache_wrapper[Any]:
    """Return an empty `functools.lru_cache` around the ``__wrapped__`` it is given later.

    Later, because a recursive function refers to its own wrapper.
    """

    def call(*args: Any, **kwargs: Any) -> Any:
        return wrapper.__wrapped__(*args, **kwargs)

    wrapper: functools._lru_cache_wrapper[Any] = functools.lru_cache(**parameters)(call)
    return wrapper


def _reduce_lru_cache(obj: Any) -> tuple[Any, ...]:
    attributes = {k: v for k, v in vars(obj).items() if k != "cache_parameters"}
    return _make_lru_cache, (obj.cache_parameters(),), attributes


def _make_code(filename: str, make: Callable[..., CodeType], made: tuple[Any, ...]) -> CodeType:
    return make(*made).replace(co_filename=filename)


def _make_type_alias(name: str, value: object, parameters: tuple[Any, ...]) -> Any:
    return _TypeAliasType(name, value, type_params=parameters)


def _make_ref(referent: object) -> Any:
    return weakref.ref(type("Gone", (), {})() if referent is None else referent)


def _stand_in(function: FunctionType) -> FunctionType:
    """Return what is the same function, but reads nothing.

    Where it reads a package, cloudpickle goes through all modules that there are, each time.
    """
    same = FunctionType(_NOTHING, function.__globals__, function.__name__, function.__defaults__)
    for name in ("__module__", "__qualname__", "__doc__", "__kwdefaults__"):
        setattr(same, name, getattr(function, name))
    vars(same).update(vars(function))
    same.__annotations__ = annotations_of(function)
    return same


def _nothing() -> None: ...


_NOTHING: Final = _nothing.__code__


def _complete(function: FunctionType, state: dict[str, Any]) -> None:
    """Add what a function reads to cloudpickle's state of one that reads nothing."""
    for name in global_names(function.__code__):
        value = function.__globals__.get(name, UNBOUND)
        if value is not UNBOUND:
            state["__globals__"][name] = value
    values = (value for _, value in reads(function))
    state["_cloudpickle_submodules"] += submodules(function.__code__, values)


_REDUCED_TO_NAMES: Final[dict[object, Callable[[Any], tuple[Any, ...] | str]]] = {
    # Not by the name alone: cloudpickle puts copies of them into classes that it has restored.
    type(dataclasses.MISSING): lambda mark: (getattr, (dataclasses, "MISSING")),
    type(dataclasses.KW_ONLY): lambda mark: (getattr, (dataclasses, "KW_ONLY")),
    CACHED: _reduce_lru_cache,
    # Restored as an attribute of its class, it is not told its name.
    functools.cached_property: lambda it: (type(it), (it.func,), {"attrname": it.attrname}),
    functools.singledispatchmethod: _reduce_generic_method,
    # Which from Python 3.14 on is not made without arguments.
    functools.partialmethod: lambda it: (object.__new__, (functools.partialmethod,), vars(it)),
    typing.ForwardRef: reduce_forward_ref,
    typing.NewType: lambda it: (typing.NewType, (it.__name__, it.__supertype__)),
    typing.ParamSpec: lambda it: (typing.ParamSpec, (it.__name__,)),
    _TypeAliasType: lambda it: (_make_type_alias, (it.__name__, it.__value__, it.__type_params__)),
    _TypeVarTuple: lambda it: (_TypeVarTuple, (it.__name__,)),
    weakref.ref: lambda ref: (_make_ref, (ref(),)),
    weakref.WeakKeyDictionary: lambda known: (weakref.WeakKeyDictionary, (dict(known),)),
    weakref.WeakValueDictionary: lambda known: (weakref.WeakValueDictionary, (dict(known),)),
    struct.Struct: lambda layout: (struct.Struct, (layout.format,)),
    SENTINEL: reduce_sentinel,  # those of `dataclasses` are of this kind then
}
"""How to rebuild what pickle and cloudpickle know only by its name."""


def _reduce_variable(variable: ContextVar[Any]) -> tuple[Any, ...]:
    with suppress(LookupError):  # it has no default
        return _make_variable, (variable.name, Context().run(variable.get))
    return ContextVar, (variable.name,)


def _make_variable(name: str, default: Any) -> ContextVar[Any]:
    return ContextVar(name, default=default)


def _reduce_local(local: threading.local) -> tuple[Any, ...]:
    kind = type(local)
    try:
        inspect.signature(kind.__init__).bind(local)
    except TypeError:  # it cannot be made without arguments, which nobody knows any more
        return copyreg.__newobj__, (kind,), vars(local)  # type: ignore[attr-defined]
    return kind, ()


MADE_ANEW: Final[dict[type, Callable[[Any], tuple[Any, ...]]]] = {
    type(threading.Lock()): lambda _: (threading.Lock, ()),
    type(threading.RLock()): lambda _: (threading.RLock, ()),
    threading.local: _reduce_local,
    ContextVar: _reduce_variable,
}
"""What a definition of the script has of its own in each process."""


_REBUILDING: Final = frozenset(
    it
    for it in (*vars(cloudpickle.cloudpickle).values(), fill_function, _make_code)
    if type(it) is FunctionType
)
"""What the pickle of a function calls, which is known to go by its name."""


class ByValuePickler(cloudpickle.Pickler):  # type: ignore[misc]  # cloudpickle has no types
    """cloudpickle's pickler without these gaps."""

    def __init__(self, *args: Any, reach: Reach | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._reach = Reach() if reach is None else reach
        self._had: list[object] = []  # what definitions have, not searched for locks yet
        self._anew: set[int] = set()  # ids of the locks in it
        self._ordinary: dict[int, type] = {}  # classes whose instances are left to pickle

    def _is_made_anew(self, lock: object) -> bool:
        """Tell whether a definition of the script has a lock, or has an object with it."""
        while self._had and id(lock) not in self._anew:
            with suppress(*FAILURES):  # met again where it is pickled
                self._anew |= locks_in(self._had.pop())
        return id(lock) in self._anew

    def _reduce_once(self, obj: Any) -> Any:
        reduced = reduce_once(obj)
        if reduced is not NotImplemented and reduced[0] is the_one:
            self._had += reduced[1][2].values()
        return reduced

    def reducer_override(self, obj: Any) -> Any:
        """Return how to rebuild `obj`, or NotImplemented to leave it to pickle."""
        kind = type(obj)
        if id(kind) in self._ordinary or kind is MethodType:  # which cloudpickle takes apart
            return NotImplemented
        if anew := MADE_ANEW.get(threading.local if issubclass(kind, threading.local) else kind):
            return anew(obj) if self._is_made_anew(obj) else NotImplemented
        if kind is CellType:  # what it holds comes with a function
            return CellType, ()
        if kind is CodeType:
            return _make_code, (obj.co_filename, *self.dispatch_table[CodeType](obj))
        if kind is FunctionType:
            return NotImplemented if obj in _REBUILDING else self._reduce_function(obj)
        if issubclass(kind, type):
            if kind in copyreg.dispatch_table and obj.__module__ not in SCRIPT_MODULES:
                return NotImplemented  # its metaclass has said how a class like this is made
            reduced = self._reduce_definition(obj)
            if reduced is NotImplemented or len(reduced) < 6:
                return reduced
            self._had += reduced[2][0].values()
            self._reach.add_class(obj)
            return reduce_class(obj, reduced)
        if any(base.__module__ == "ctypes" for base in kind.__mro__):
            from .foreign import reduce_library  # it has imported ctypes already

            return reduce_library(obj)
        reduce = _REDUCED_TO_NAMES.get(kind)
        if reduce is not None:
            return reduce(obj) if not named(obj) else NotImplemented
        # What an Enum says, or copyreg, is the same in each process.
        if is_left_to_pickle(kind) or issubclass(kind, Enum) or kind in copyreg.dispatch_table:
            self._ordinary[id(kind)] = kind
        elif getattr(obj, "__module__", None) in SCRIPT_MODULES or _is_of_script(kind):
            return self._reduce_once(obj)
        return NotImplemented

    def _reduce_definition(self, definition: Any) -> Any:
        """Return how cloudpickle would rebuild a function or a class."""
        for _ in range(_MOST_ATTEMPTS):
            with suppress(KeyError):  # another thread has just deleted what it is about to read
                return super().reducer_override(definition)
        return super().reducer_override(definition)

    def _reduce_function(self, function: FunctionType) -> Any:
        if is_generic(function) and not named(function):
            return _reduce_generic(function)
        if (implementations := dispatched(function)) is not None:
            return _make_dispatch, (dict(implementations),)
        if named(function):
            return NotImplemented
        make, made, state, _, _, setter = self._reduce_definition(_stand_in(function))
        _complete(function, state[1])
        self._reach.add(function)
        self._had += state[1]["__globals__"].values()
        # The cells themselves, which two closures may share; they are filled later.
        state[1]["__closure__"] = None
        made = (function.__code__, *made[1:4], function.__closure__)
        cells = tuple((cell, it) for _, cell, it in cells_of(function) if it is not UNBOUND)
        if is_in_script(function.__name__, function):  # what a decorator has made of it
            self._had += (it for _, it in cells)
        return make, made, (setter, state, cells), None, None, fill_function


class _LockFinder(ByValuePickler):
    """Takes each lock for one that a definition has, and notes it."""

    def _is_made_anew(self, lock: object) -> bool:
        self._anew.add(id(lock))
        return True


def locks_in(obj: object) -> set[int]:
    """Return the ids of what is in an object that could be made anew.

    Raises
    ------
    Exception
        Whatever pickle raises, because of something else.
    """
    finder = _LockFinder(BytesIO(), protocol=PROTOCOL, buffer_callback=lambda _: None)
    finder.dump(obj)
    return finder._anew


def _is_of_script(kind: type) -> bool:
    """Tell whether a class of the script says how its instances are pickled."""
    return any(
        "__reduce__" in vars(cls) or "__reduce_ex__" in vars(cls)
        for cls in kind.__mro__
        if cls.__module__ in SCRIPT_MODULES
    )


def dumps_by_value(
    obj: object,
    keep: Callable[[PickleBuffer], object] | None = None,
    pickler: type[ByValuePickler] = ByValuePickler,
    reach: Reach | None = None,
    apart: Set[int] = frozenset(),
) -> bytes:
    """Pickle `obj`, sending whole what a worker cannot import; `reach` gets what that is.

    Raises
    ------
    Torn
        Something with one of the ids `apart` is in it.
    Exception
        Whatever pickle raises.

    Notes
    -----
    Cost: 15 us for a small function, 100 us for a small class.
    """
    with BytesIO() as file:
        pickles = pickler(file, protocol=PROTOCOL, buffer_callback=keep, reach=reach)
        pickles.dump(obj)
        check_apart(pickles, apart)
        return file.getvalue()
