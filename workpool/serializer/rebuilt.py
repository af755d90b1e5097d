"""How objects are rebuilt that pickle, and cloudpickle, know only by a name or not at all.

Two tables say it by type: `REDUCED_TO_NAMES`, and `MADE_ANEW` of what each process has for itself.
The other functions are for whatever has something in common, such as a ``__getattr__``; `byvalue`
asks for one after another.
"""

from __future__ import annotations

import contextlib
import copyreg
import dataclasses
import functools
import gc
import inspect
import struct
import sys
import threading
import typing
import weakref
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import suppress
from contextvars import Context, ContextVar
from io import TextIOWrapper
from keyword import iskeyword
from pickle import PicklingError
from types import (
    BuiltinFunctionType,
    ClassMethodDescriptorType,
    FunctionType,
    GetSetDescriptorType,
    MappingProxyType,
)
from typing import Any, Final

from ..errors import FUTURE, UsageError
from .atoms import SENTINEL
from .byname import PROTOCOL
from .instances import DESCRIPTORS, FROM_FUNCTION, functions_in, slots
from .names import CACHED, LAZY
from .script import reduce_sentinel

_TypeAliasType: Final[Any] = getattr(typing, "TypeAliasType", None)  # from Python 3.12
_TypeVarTuple: Final[Any] = getattr(typing, "TypeVarTuple", None)  # from Python 3.11


def _reduce_generic_method(obj: Any) -> tuple[Any, ...]:
    # Its cache, in some versions, holds weak references; it may do without.
    state = {name: None if name == "_method_cache" else it for name, it in vars(obj).items()}
    return object.__new__, (functools.singledispatchmethod,), state


def reduce_descriptor(obj: Any) -> tuple[Any, ...]:
    """Return how to pickle an instance of a class below one of `DESCRIPTORS`, with what C keeps."""
    base = next(base for base in DESCRIPTORS if isinstance(obj, base))
    attributes = getattr(obj, "__dict__", None)
    return _make_descriptor, (base, type(obj), functions_in(obj)), (attributes, slots(obj))


def _make_descriptor(base: Any, kind: Any, functions: tuple[Any, ...]) -> Any:
    """Return one without calling the ``__init__`` of its class, which may want other arguments."""
    descriptor = base.__new__(kind, *functions)  # which Python 3.15 wants there, too
    base.__init__(descriptor, *functions)
    return descriptor


def reduce_future(future: Future[Any]) -> Any:
    """Return how to pickle a future of another executor that has ended.

    Raises
    ------
    UsageError
        If it has not: with its lock made anew, a task would wait for the copy for ever.
    """
    if not future.done():
        raise UsageError(FUTURE)
    return future.__reduce_ex__(PROTOCOL)


def reduce_past_getattr(obj: Any) -> Any:
    """Return how to pickle an object that must not be asked for anything while it is restored.

    Pickle would ask for ``__setstate__`` before it has what its ``__getattr__`` looks into, such as
    the object that it stands for: it would ask itself, again and again.
    """
    reduced = obj.__reduce_ex__(PROTOCOL)
    make, args, state, items, pairs = (*reduced, None, None, None)[:5]
    if state is None or hasattr(type(obj), "__setstate__"):
        return reduced
    return make, args, state, items, pairs, _give_state


def _give_state(obj: Any, state: Any) -> None:
    """Do what pickle does where there is no ``__setstate__``."""
    attributes, slotted = state if isinstance(state, tuple) and len(state) == 2 else (state, None)
    if attributes:
        vars(obj).update(attributes)
    for name, value in (slotted or {}).items():
        setattr(obj, name, value)


def instances_kept(cls: Any, attributes: Iterable[Any]) -> Iterator[object]:
    """Yield the instances among the attributes of a class, and in dictionaries there.

    They are restored before the class has anything, so that its ``__new__`` would not find what it
    looks for: the only instance, say, or one for each key.  None of a class without a ``__new__``
    in Python, nor of a metaclass: its instances are classes, which are rebuilt as such.
    """
    if type(cls.__new__) is FunctionType and not issubclass(cls, type):
        for it in attributes:
            mapping = issubclass(type(it), (dict, weakref.WeakValueDictionary))
            for obj in list(it.values()) if mapping else [it]:
                if cls in type(obj).__mro__:
                    yield obj


def wants_more(obj: Any) -> bool:
    """Tell whether pickle could not restore an object: its ``__new__`` wants what nobody knows."""
    cls = type(obj)
    if type(cls.__new__) is not FunctionType or hasattr(cls, "__getnewargs_ex__"):
        return False
    args = obj.__getnewargs__() if hasattr(cls, "__getnewargs__") else ()
    try:
        inspect.signature(cls.__new__).bind(cls, *args)
    except TypeError:
        return True
    return False


def reduce_kept(obj: Any) -> Any:
    """Return how to rebuild an instance past the ``__new__`` of its class: by a base's, in C."""
    make, (cls, *_), *state = reduce_past_getattr(obj)
    if make is not copyreg.__newobj__:  # type: ignore[attr-defined]
        return NotImplemented
    base = next(it for it in cls.__mro__ if type(vars(it).get("__new__")) is BuiltinFunctionType)
    args = base.__getnewargs__(obj) if hasattr(base, "__getnewargs__") else ()
    return base.__new__, (cls, *args), *state


def _reduce_method(method: Any) -> tuple[Any, ...]:
    # A decorator has perhaps noted something in it, for what collects the methods of a class.
    marks = {name: it for name, it in vars(method).items() if name not in FROM_FUNCTION}
    return type(method), functions_in(method), marks or None


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


def _reduce_type_alias(alias: Any) -> tuple[Any, ...]:
    name, value, parameters = alias.__name__, alias.__value__, alias.__type_params__
    if not name.isidentifier() or iskeyword(name) or (parameters and not _is_within_itself(alias)):
        return _make_type_alias, (name, value, parameters)
    given: list[object] = []
    return _begin_type_alias, (name, given, parameters), (given, value), None, None, _end_type_alias


def _is_within_itself(alias: Any) -> bool:
    """Tell whether an alias stands for something that refers to the alias, as trees do."""
    found, left = dict[int, object](), [alias.__value__]
    while left:
        it = left.pop()
        if it is alias:
            return True
        if id(it) not in found:
            found[id(it)] = it
            left += it if isinstance(it, list) else (typing.get_origin(it), *typing.get_args(it))
            left += [it.__value__] if type(it) is _TypeAliasType else ()
    return False


def _make_type_alias(name: str, value: object, parameters: tuple[Any, ...]) -> Any:
    return _TypeAliasType(name, value, type_params=parameters)


def _begin_type_alias(name: str, given: list[Any], parameters: tuple[Any, ...]) -> Any:
    """Return an alias of what it is given later, because that may refer to the alias.

    Such an alias has type parameters of its own, which it puts in the place of those in there.
    """

    def value(*own: Any) -> object:
        # `*Ts` is put in the place of `Ts`.
        place = {
            there: tuple(here) if type(here) is _TypeVarTuple else (here,)
            for there, here in zip(parameters, own, strict=True)
        }
        free = sum((place[each] for each in getattr(given[0], "__parameters__", ())), ())
        return given[0][free] if free else given[0]

    names = ", ".join(each.__name__ for each in parameters)
    declared = ", ".join(_declared(number, it) for number, it in enumerate(parameters))
    made: dict[str, Any] = {"__name__": __name__, "__value": value, "__parameters": parameters}
    head = f"{name}[{declared}]" if parameters else name
    exec(f"type {head} = __value({names})", made, names_here := dict[str, Any]())
    return names_here[name]


def _declared(number: int, parameter: Any) -> str:
    """Return how a type parameter is written that is like the one with this number."""
    this = f"__parameters[{number}]"
    text: str = parameter.__name__
    if type(parameter) is not typing.TypeVar:
        text = f"{'*' if type(parameter) is _TypeVarTuple else '**'}{text}"
    elif among := parameter.__constraints__:
        text += f": ({', '.join(f'{this}.__constraints__[{each}]' for each in range(len(among)))})"
    elif parameter.__bound__ is not None:
        text += f": {this}.__bound__"
    return text


def _end_type_alias(alias: object, state: tuple[list[object], object]) -> None:
    given, value = state
    given.append(value)


def _reduce_forward_ref(ref: typing.ForwardRef) -> tuple[Any, ...]:
    said = ref.__forward_arg__, ref.__forward_module__, ref.__forward_is_class__
    return _make_forward_ref, said


def _make_forward_ref(text: str, module: Any, is_class: bool) -> typing.ForwardRef:
    return typing.ForwardRef(text, module=module, is_class=is_class)


def _make_ref(referent: object) -> Any:
    return weakref.ref(type("Gone", (), {})() if referent is None else referent)


def _find_attribute(cls: type, name: str) -> Any:
    return vars(cls)[name]


def _imported(what: Any) -> Any:
    return what


class _Plain: ...


def _reduce_getset(it: GetSetDescriptorType) -> tuple[Any, ...]:
    # From Python 3.15 on all classes have the same ``__dict__`` and ``__weakref__``, which are said
    # to be those of `object`: it has none.
    shared = it.__objclass__ is object and it.__name__ in vars(_Plain)
    return _find_attribute, (_Plain if shared else it.__objclass__, it.__name__)


def _reduce_manager(manager: Any) -> Any:
    # As when it decorates a function, and is made again for each call; not if it was entered.
    made_of = vars(manager)
    if "func" not in made_of:
        return NotImplemented
    return type(manager), (made_of["func"], made_of["args"], made_of["kwds"])


def _reduce_file(file: TextIOWrapper) -> Any:
    # For cloudpickle it is what it contains.
    if "+" in getattr(file, "mode", "") and file is not sys.stdout and file is not sys.stderr:
        raise PicklingError(f"what a task writes to a copy of the file {file.name!r} would be lost")
    return NotImplemented  # cloudpickle knows how


REDUCED_TO_NAMES: Final[dict[object, Callable[[Any], tuple[Any, ...] | str]]] = {
    # Not by the name alone: cloudpickle puts copies of them into classes that it has restored.
    type(dataclasses.MISSING): lambda mark: (getattr, (dataclasses, "MISSING")),
    type(dataclasses.KW_ONLY): lambda mark: (getattr, (dataclasses, "KW_ONLY")),
    # `sys.flags`, `sys.float_info` and their like, for whose classes `sys` has no name.
    **{
        type(it): lambda it: (getattr, (sys, type(it).__name__))
        for it in vars(sys).values()
        if type(it).__module__ == "sys"
    },
    CACHED: _reduce_lru_cache,
    # It holds a lock before Python 3.12; restored as an attribute, it is not told its name.
    functools.cached_property: lambda it: (type(it), (it.func,), {"attrname": it.attrname}),
    classmethod: _reduce_method,
    staticmethod: _reduce_method,
    functools.singledispatchmethod: _reduce_generic_method,
    # Which from Python 3.14 on is not made without arguments.
    functools.partialmethod: lambda it: (object.__new__, (functools.partialmethod,), vars(it)),
    # Without what it has of the script, from Python 3.14 on: all its globals.
    typing.ForwardRef: _reduce_forward_ref,
    typing.NewType: lambda it: (typing.NewType, (it.__name__, it.__supertype__)),
    typing.ParamSpec: lambda it: (typing.ParamSpec, (it.__name__,)),
    _TypeAliasType: _reduce_type_alias,
    _TypeVarTuple: lambda it: (_TypeVarTuple, (it.__name__,)),
    # To what comes along, if anything else there refers to it.
    weakref.ref: lambda ref: (_make_ref, (ref(),)),
    weakref.WeakKeyDictionary: lambda known: (weakref.WeakKeyDictionary, (dict(known),)),
    weakref.WeakValueDictionary: lambda known: (weakref.WeakValueDictionary, (dict(known),)),
    # Of the mapping itself: a copy would not show what a task changes there.
    MappingProxyType: lambda view: (MappingProxyType, tuple(gc.get_referents(view))),
    struct.Struct: lambda layout: (struct.Struct, (layout.format,)),
    GetSetDescriptorType: _reduce_getset,
    # Such as ``int.from_bytes``, of what `functools.wraps` has given the attributes of `int`.
    ClassMethodDescriptorType: lambda it: (_find_attribute, (it.__objclass__, it.__name__)),
    contextlib._GeneratorContextManager: _reduce_manager,
    contextlib._AsyncGeneratorContextManager: _reduce_manager,
    TextIOWrapper: _reduce_file,
    LAZY: lambda it: (_imported, (it.resolve(),)),  # or say what the import fails with
    SENTINEL: reduce_sentinel,  # those of `dataclasses` are of this kind then
}
"""How to rebuild what pickle and cloudpickle know only by its name, which may be in the script."""


def _reduce_variable(variable: ContextVar[Any]) -> tuple[Any, ...]:
    with suppress(LookupError):  # it has no default
        return _make_variable, (variable.name, Context().run(variable.get))
    return ContextVar, (variable.name,)


def _make_variable(name: str, default: Any) -> ContextVar[Any]:
    return ContextVar(name, default=default)


def _reduce_local(local: threading.local) -> tuple[Any, ...]:
    kind = type(local)
    if kind is threading.local:
        return kind, ()
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


def maker_anew(kind: Any) -> Callable[[Any], tuple[Any, ...]] | None:
    """Return what says how those of a type are made anew; None of what is not."""
    return MADE_ANEW.get(threading.local if issubclass(kind, threading.local) else kind)
