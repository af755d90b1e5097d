"""Pickling by value: a definition that a worker cannot import is sent whole.

cloudpickle does that; `ByValuePickler` closes some of its gaps:

* **A class that comes home stays as it is.** cloudpickle recognizes the classes of its own
  process, and then still overwrites their attributes and methods with the copies it received. So
  a result that is an instance of a class of the script would put the script's class back to
  what it was when the task was submitted. Here a class sent out is never written to by what comes
  back. A worker's copy is, so a task sees what the driver changed since the task before.
* **A class with ``__slots__``** would be restored without them, and its instances could not come
  home.
* **A class below one whose ``__init_subclass__`` wants arguments** could not be made empty.
* **A function under `functools.lru_cache`** in the script would be sent as a name in ``__main__``,
  which no worker can look up.
* **A NewType, ParamSpec or type alias** of the script likewise, and annotations refer to them.
* **A cached_property** holds a lock before Python 3.12, and **a generic function** of
  `functools.singledispatch`, or a method of that kind, weak references.
"""

from __future__ import annotations

import copyreg
import functools
import sys
import threading
import typing
import uuid
from collections.abc import Callable, Iterator, Set
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from enum import Enum
from io import BytesIO
from pickle import PickleBuffer
from types import BuiltinFunctionType, FunctionType, MemberDescriptorType, ModuleType
from typing import Any, Final, NamedTuple, cast
from weakref import WeakKeyDictionary, WeakValueDictionary

import cloudpickle

__all__ = [
    "ByValuePickler",
    "dumps_by_value",
    "from_earlier_run",
    "generic_parts",
    "importable_module",
    "is_generic",
    "named",
    "on_restored",
    "registered_modules",
]

PROTOCOL: Final = 5

SCRIPT_MODULES: Final = frozenset({"__main__", "__mp_main__"})
"""Modules that are another module, or none, on a worker."""


_TypeAliasType: Final[Any] = getattr(typing, "TypeAliasType", None)  # from Python 3.12


registered_modules: Final[Callable[[], set[str]]] = cloudpickle.list_registry_pickle_by_value
"""Returns the modules given to `cloudpickle.register_pickle_by_value`."""


def _is_by_value(module: str) -> bool:
    """Tell whether `module` is the script, or registered, or inside a registered package."""
    if module in SCRIPT_MODULES:
        return True
    return any(f"{module}.".startswith(f"{name}.") for name in registered_modules())


def importable_module(module: ModuleType) -> bool:
    """Tell whether a worker gets `module` by importing its name."""
    name = module.__name__
    return sys.modules.get(name) is module and not _is_by_value(name)


def named(obj: object) -> bool:
    """Tell whether pickle sends `obj` as a module and a name, and a worker can import that.

    Notes
    -----
    Cost: 2 us; the lookup of one qualified name.
    """
    module, name = getattr(obj, "__module__", None), getattr(obj, "__qualname__", None)
    if type(module) is not str or type(name) is not str or _is_by_value(module):
        return False
    try:
        found: object = sys.modules[module]
        for part in name.split("."):
            found = getattr(found, part)
        if found is not obj or isinstance(obj, (FunctionType, BuiltinFunctionType, type)):
            return found is obj
        reduce = copyreg.dispatch_table.get(type(obj))
        return isinstance(reduce(obj) if reduce else obj.__reduce_ex__(PROTOCOL), str)
    except Exception:  # the module's or the object's own code; what fails here is not a name
        return False


class _Sent(NamedTuple):
    """How a class defined in no importable module is known to every process."""

    class_id: str
    native: bool  # defined by this process, not restored in it


class _ClassRegistry:
    """The classes that this process sent by value or restored, by an id that goes with them.

    There is one in a process, because a class is one object in a process however it got there.
    """

    def __init__(self) -> None:
        self._sent: WeakKeyDictionary[type, _Sent] = WeakKeyDictionary()
        self._by_id: WeakValueDictionary[str, type] = WeakValueDictionary()
        self._attributes: WeakKeyDictionary[type, Set[str]] = WeakKeyDictionary()  # as restored
        self._lock = threading.Lock()

    def renew(self, cls: type, attributes: Set[str]) -> Set[str]:
        """Note the attributes that a restored class has; return which it has no more."""
        before = self._attributes.get(cls, frozenset())
        self._attributes[cls] = attributes
        return before - attributes

    def class_id(self, cls: type) -> str:
        """Return the id of `cls`; a class not seen before is native."""
        with self._lock:
            sent = self._sent.get(cls)
            if sent is None:
                sent = self._sent[cls] = _Sent(uuid.uuid4().hex, native=True)
                self._by_id[sent.class_id] = cls
            return sent.class_id

    def find(self, class_id: str) -> type | None:
        """Return the class with that id, if this process has it."""
        return self._by_id.get(class_id)

    def restored(self, class_id: str, cls: type) -> type:
        """Record a class built from what was received; the first one built for an id stays."""
        with self._lock:
            cls = self._by_id.setdefault(class_id, cls)
            self._sent.setdefault(cls, _Sent(class_id, native=False))
            return cls

    def is_native(self, cls: type) -> bool:
        """Tell whether `cls` was defined by this process."""
        sent = self._sent.get(cls)
        return sent is not None and sent.native


_CLASSES: Final = _ClassRegistry()


def _make_class(
    class_id: str, make: Callable[..., type], args: tuple[Any, ...], qualname: str = ""
) -> type:
    """Return the class with that id, built empty by cloudpickle if it is not here yet."""
    cls = _CLASSES.find(class_id)
    if cls is None and _from_earlier_run.get():
        cls = _of_the_script(qualname, *args[:5])
        if cls is not None:
            _CLASSES.class_id(cls)  # it is native
    if cls is None:
        try:
            made = make(*args)
        except Exception:  # of the ``__init_subclass__`` of a base, which wants its arguments
            made = _make_unhooked(make, args)
        cls = _CLASSES.restored(class_id, made)
        cls.__qualname__ = qualname or cls.__qualname__
    return cls


def _make_unhooked(make: Callable[..., type], args: tuple[Any, ...]) -> type:
    """Return an empty class of which its bases are not told; what they made of it is in its state.

    Raises
    ------
    Exception
        As `make` does.
    """
    bases = args[0] if isinstance(args[0], tuple) else args[2]  # the first for an enumeration
    hook = "__init_subclass__"
    above = {cls for base in bases if isinstance(base, type) for cls in base.__mro__}
    kept = {cls: own for cls in above if type(own := vars(cls).get(hook)) is classmethod}
    try:
        for cls in kept:
            setattr(cls, hook, classmethod(lambda cls, **given: None))
        return make(*args)
    finally:
        for cls, own in kept.items():
            setattr(cls, hook, own)


_from_earlier_run: Final[ContextVar[bool]] = ContextVar("workpool_earlier_run", default=False)


@contextmanager
def from_earlier_run() -> Iterator[None]:
    """Restore what an earlier run of the script has written, with the classes that it has now."""
    token = _from_earlier_run.set(True)
    try:
        yield
    finally:
        _from_earlier_run.reset(token)


def _of_the_script(
    qualname: str, _: object, name: str, __: object, content: Any, module: object
) -> type | None:
    """Return the class of that name in the script, by the arguments that cloudpickle builds it of.

    After the qualified name they are ``(metaclass, name, bases, {"__module__": module, ...}, id)``,
    or, for an enumeration, ``(bases, name, qualname, members, module)``.
    """
    script: object = sys.modules["__main__"]
    found = script
    for part in (qualname or name).split("."):
        found = getattr(found, part, None)
    if found is None:  # made by a function
        found = getattr(script, name, None)
        found = found if getattr(found, "__qualname__", None) == qualname else None
    scripts = content.get("__module__", module) in SCRIPT_MODULES
    return found if scripts and isinstance(found, type) else None


on_restored: Final[ContextVar[Callable[[dict[str, Any]], None] | None]] = ContextVar(
    "workpool_on_restored", default=None
)
"""What is called with the globals of each function that is restored by value."""


def fill_function(function: FunctionType, update: tuple[Callable[[Any, Any], Any], Any]) -> None:
    """Fill a restored function by cloudpickle's setter, and tell who wants to know of it."""
    setter, state = update
    setter(function, state)
    told = on_restored.get()
    if told is not None:
        told(function.__globals__)


def update_class(cls: type, update: tuple[Callable[[type, Any], Any], Any]) -> None:
    """Fill or renew a restored class by cloudpickle's setter; leave a native one alone."""
    if _CLASSES.is_native(cls):
        return
    setter, state = update
    # What has gone since, or is a base's again, is in no state.
    for name in _CLASSES.renew(cls, state[0].keys() - {"_abc_impl"}) & vars(cls).keys():
        with suppress(AttributeError, TypeError):  # its __doc__, which no class is without
            delattr(cls, name)
    setter(cls, state)


def _with_slots(
    cls: type, args: tuple[Any, ...], state: tuple[Any, ...]
) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Return cloudpickle's arguments and state of a class, its slots among what it is built of."""
    slots = vars(cls).get("__slots__")
    if slots is None or issubclass(cls, (Enum, tuple)):
        return args, state  # whose instances do without; named tuples refuse to be told
    members = {name for name, it in vars(cls).items() if isinstance(it, MemberDescriptorType)}
    if not isinstance(slots, (str, tuple, list, dict)):
        slots = tuple(members)  # an iterator, used up
    make, name, bases, content, *rest = args
    left = {key: value for key, value in state[0].items() if key not in (*members, "__slots__")}
    return (make, name, bases, {**content, "__slots__": slots}, *rest), (left, *state[1:])


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


def _reduce_new_type(obj: Any) -> tuple[Any, ...]:
    return typing.NewType, (obj.__name__, obj.__supertype__)


def _reduce_param_spec(obj: Any) -> tuple[Any, ...]:
    return typing.ParamSpec, (obj.__name__,)


def _reduce_cached_property(obj: Any) -> tuple[Any, ...]:
    # Restored as an attribute of its class, it is not told its name.
    return functools.cached_property, (obj.func,), {"attrname": obj.attrname}


def _make_type_alias(name: str, value: object, parameters: tuple[Any, ...]) -> Any:
    return _TypeAliasType(name, value, type_params=parameters)


def _reduce_type_alias(obj: Any) -> tuple[Any, ...]:
    return _make_type_alias, (obj.__name__, obj.__value__, obj.__type_params__)


_REDUCED_TO_NAMES: Final[dict[object, Callable[[Any], tuple[Any, ...]]]] = {
    type(functools.lru_cache(repr)): _reduce_lru_cache,
    functools.cached_property: _reduce_cached_property,
    functools.singledispatchmethod: _reduce_generic_method,
    typing.NewType: _reduce_new_type,
    typing.ParamSpec: _reduce_param_spec,
    _TypeAliasType: _reduce_type_alias,
}
"""How to rebuild what pickle and cloudpickle know only by its name."""


class ByValuePickler(cloudpickle.Pickler):  # type: ignore[misc]  # cloudpickle has no types
    """cloudpickle's pickler without these gaps."""

    def reducer_override(self, obj: Any) -> Any:
        """Return how to rebuild `obj`, or NotImplemented to leave it to pickle."""
        kind = type(obj)
        if kind is FunctionType and is_generic(obj) and not named(obj):
            return _reduce_generic(obj)
        if kind is FunctionType:
            reduced = super().reducer_override(obj)
            if reduced is NotImplemented:
                return reduced
            make, made, state, _, _, setter = reduced
            return make, made, (setter, state), None, None, fill_function
        if issubclass(kind, type):
            reduced = super().reducer_override(obj)
            if reduced is NotImplemented or len(reduced) < 6:
                return reduced
            make, args, state, _, _, setter = reduced
            args, state = _with_slots(obj, args, state)
            made = (_CLASSES.class_id(obj), make, args, obj.__qualname__)
            return _make_class, made, (setter, state), None, None, update_class
        reduce = _REDUCED_TO_NAMES.get(kind)
        return reduce(obj) if reduce and not named(obj) else NotImplemented


def dumps_by_value(
    obj: object,
    keep: Callable[[PickleBuffer], object] | None = None,
    pickler: type[ByValuePickler] = ByValuePickler,
) -> bytes:
    """Pickle `obj`, sending whole what a worker cannot import.

    Notes
    -----
    Cost: 15 us for a small function, 100 us for a small class.
    """
    with BytesIO() as file:
        pickler(file, protocol=PROTOCOL, buffer_callback=keep).dump(obj)
        return file.getvalue()
