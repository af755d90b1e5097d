"""Classes of the script: sent by value, built again by each process, and known when they come home.

A class is one object in a process, however it got there, and has an id that goes with it.
cloudpickle recognizes the classes of its own process, and then still overwrites their attributes
and methods with the copies it received.  So a result that is an instance of a class of the script
would put the script's class back to what it was when the task was submitted.  Here a class sent out
is never written to by what comes back.  A worker's copy is, so a task sees what the driver changed
since the task before.

The rest of this module closes gaps in what cloudpickle sends of a class, see `reduce_class`.
"""

from __future__ import annotations

import os
import sys
import threading
from abc import ABCMeta
from collections.abc import Callable, Iterator, Set
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from enum import Enum
from pickle import UnpicklingError
from types import FunctionType
from typing import Any, Final, NamedTuple, Protocol, TypedDict, is_typeddict
from weakref import WeakValueDictionary, ref

from .atoms import is_unchanging
from .byname import named
from .derived import CACHES, WHEN_ASKED, annotations_of
from .empty import hidden_in, make_empty, metaclass_of, parameters, parametrize
from .enumerations import reduce_enumeration
from .instances import functions_in, members
from .script import found_in_script, is_in_script, show, tasks_are_here


class _Known:
    """What this process knows of a class that is defined in no importable module."""

    def __init__(
        self, class_id: str, native: bool, in_script: bool = False, has_name: bool = False
    ) -> None:
        self.class_id = class_id  # the same in every process
        self.native = native  # defined by this process, not restored in it
        self.in_script = in_script  # of another process, where it is an attribute of the script
        self.has_name = has_name  # or in a class of it, or made by a function of it
        self.bases: tuple[type, ...] | None = None  # with which a native one has this id
        self.own: Set[str] | None = None  # names that it has beside those that come with it


class _ClassRegistry:
    """The classes that this process sent by value or restored, by an id that goes with them.

    There is one in a process, because a class is one object in a process however it got there.

    Attributes
    ----------
    away : bool
        Whether some of them are those of a script that another process runs.
    """

    def __init__(self) -> None:
        self.away = False
        # By ``id``, whatever their metaclass takes for equal, as long as they live.
        self._known: dict[int, tuple[ref[type], _Known]] = {}
        self._by_id: WeakValueDictionary[str, type] = WeakValueDictionary()
        self._lock = threading.Lock()

    def get(self, cls: type) -> _Known | None:
        """Return what is known of a class that was sent by value or restored; None of others."""
        found = self._known.get(id(cls))
        return None if found is None else found[1]

    def class_id(self, cls: type) -> str:
        """Return the id of a class; one not seen before is native, and other bases make another."""
        with self._lock:
            known = self.get(cls)
            if known is None or (known.native and known.bases is not cls.__bases__):
                known = self._add(cls, _Known(os.urandom(16).hex(), native=True))
                known.bases = cls.__bases__
            return known.class_id

    def find(self, class_id: str) -> type | None:
        """Return the class with that id, if this process has it."""
        return self._by_id.get(class_id)

    def restored(self, class_id: str, cls: type, in_script: bool, has_name: bool) -> type:
        """Record a class built from what was received; the first one built for an id stays."""
        with self._lock:
            self.away |= in_script
            first = self.find(class_id)
            if first is not None:
                return first
            if self.get(cls) is not None:  # this process has made it, and sent it
                self._by_id[class_id] = cls
                return cls
            made_of = parameters(cls)
            native = made_of is not None and self.is_native(made_of[0])
            known = self._add(cls, _Known(class_id, native, in_script, has_name))
            known.bases = cls.__bases__
            return cls

    def is_native(self, cls: type) -> bool:
        """Tell whether this process defines or imports a class."""
        known = self.get(cls)
        return known is None or known.native

    def _add(self, cls: type, known: _Known) -> _Known:
        key = id(cls)
        self._by_id[known.class_id] = cls
        self._known[key] = ref(cls, lambda _: self._known.pop(key, None)), known
        return known


_CLASSES: Final = _ClassRegistry()


def _make_class(
    class_id: str,
    make: Callable[..., type],
    args: tuple[Any, ...],
    qualname: str,
    in_script: bool,
    has_name: bool,
) -> type:
    """Return the class with that id, built empty if it is not here yet.

    The second of `args` is its name.  `in_script`: the script has it under that name.  `has_name`:
    the same, or in another class, or made by a function.
    """
    cls = None
    if has_name and _from_earlier_run.get():  # of this process, too, which may have defined it anew
        cls = _found_in_script(qualname, args[1])
        if cls is not None:
            _CLASSES.class_id(cls)  # it is native
    if cls is None:
        cls = _CLASSES.find(class_id)
    if cls is None:
        cls = _CLASSES.restored(class_id, make(*args), in_script, has_name)
        _set_each(cls, {"__qualname__": qualname})
    if in_script:
        show(qualname, cls)
    return cls


def known_class(class_id: str, qualname: str) -> type:
    """Return a class that this process has.

    Raises
    ------
    LookupError
        It no longer has it.
    """
    cls = None if _from_earlier_run.get() else _CLASSES.find(class_id)
    if cls is None:  # not `or`: a metaclass may have a class be false
        cls = _named_in_script(qualname)
    if cls is None:
        cls = _CLASSES.find(class_id)
    if cls is None:
        raise LookupError(f"there is no class {qualname} in the script any more")
    return cls


def refer_to(cls: type) -> tuple[Any, ...]:
    """Return how a process that has a class finds it, as ``__reduce__`` does."""
    return known_class, (_CLASSES.class_id(cls), cls.__qualname__)


def away() -> bool:
    """Tell whether this process may have classes that come home by their names."""
    return _CLASSES.away or tasks_are_here()


def refer_home(definition: Any) -> tuple[Any, ...] | None:
    """Return how the process that a class is from finds it; None if it may not have it for good."""
    if not isinstance(definition, type):
        return None  # a function comes home with what it reads
    if tasks_are_here():
        there = is_in_script(definition.__qualname__, definition)
    else:
        known = _CLASSES.get(definition)
        there = known is not None and known.in_script
    return refer_to(definition) if there else None


def _make_empty(metaclass: Any, name: str, bases: tuple[Any, ...], content: dict[str, Any]) -> type:
    # JAX is told of the fields of a class as it is defined: what adds up the leaves of a copy finds
    # none.
    if metaclass.__module__.partition(".")[0] == "equinox":
        raise UnpicklingError(f"define class {name} in a module: JAX knows no copy of it")
    return make_empty(metaclass, name, bases, content, _CLASSES.get)


def _make_parametrized(metaclass: Any, name: str, *given: Any) -> type:
    """Return what ``origin[args]`` is here, or an empty class as long as its origin is one."""
    *otherwise, origin, args = given
    known = _CLASSES.get(origin)
    if known is None or known.native or known.own is not None:
        with suppress(Exception):  # of what refuses an argument that is still empty
            return parametrize(origin, args, lambda cls: not _CLASSES.is_native(cls))
    return _make_empty(metaclass, name, *otherwise)


_from_earlier_run: Final[ContextVar[bool]] = ContextVar("workpool_earlier_run", default=False)


@contextmanager
def from_earlier_run() -> Iterator[None]:
    """Restore what an earlier run of the script has written, with the classes that it has now."""
    token = _from_earlier_run.set(True)
    try:
        yield
    finally:
        _from_earlier_run.reset(token)


def _found_in_script(qualname: str, name: str) -> type | None:
    """Return the class that the script has under its names; the second if a function made it."""
    found = _named_in_script(qualname)
    if found is None:  # made by a function
        found = getattr(sys.modules["__main__"], name, None)
        found = found if getattr(found, "__qualname__", None) == qualname else None
    return found if isinstance(found, type) else None


def _named_in_script(qualname: str) -> type | None:
    """Return what the script has under a name, if that is a class."""
    found = found_in_script(qualname)
    return found if isinstance(found, type) else None


def update_class(cls: type, update: tuple[object, Callable[[type, Any], Any], Any]) -> None:
    """Fill or renew a restored class by cloudpickle's setter; leave a native one alone."""
    known = _CLASSES.get(cls)
    assert known is not None
    if known.native:
        return
    _, setter, state = update
    if known.own is not None:
        # What it has no more, and what a task has added.
        for name in vars(cls).keys() - known.own - state[0].keys() - WHEN_ASKED:
            with suppress(AttributeError, TypeError):  # its __doc__, which no class is without
                delattr(cls, name)
    setter(cls, state)
    if known.own is None:
        known.own = vars(cls).keys() - state[0].keys()


def _set_each(cls: type, attributes: dict[str, Any]) -> None:
    """Set attributes of a class, past what the script has its metaclass do then."""
    meta: Any = next(meta for meta in type.mro(type(cls)) if not _CLASSES.get(meta))
    for name, value in attributes.items():
        meta.__setattr__(cls, name, value)


def _set_attributes(cls: type, state: tuple[dict[str, Any], object]) -> None:
    """Give a class its attributes; what its metaclass does when one is set, it has done before."""
    attributes = dict(state[0])
    registered = attributes.pop("_abc_impl", ())  # with an abstract base class
    _set_each(cls, attributes)
    if "__firstlineno__" in attributes:  # which goes when others are set
        _set_each(cls, {"__firstlineno__": attributes["__firstlineno__"]})
    for subclass in registered:
        ABCMeta.register(cls, subclass)  # type: ignore[arg-type]


_FIRST: Final = frozenset(
    {"__new__", "__init__", "__post_init__", "__setstate__", "__dataclass_fields__"}
    | {"__eq__", "__hash__"}
)
"""What an instance cannot be restored without, nor be in a set or be a key."""


class _First:
    """Stands before the other attributes of a class, among which may be instances that need these.

    What it is restored to is of no interest.
    """

    def __init__(self, cls: type, attributes: dict[str, Any]) -> None:
        self._parts = cls, attributes

    def __reduce__(self) -> tuple[Any, ...]:
        return set_first, self._parts


def _first_of(cls: type, attributes: dict[str, Any]) -> list[_First]:
    """Return what comes before all: what instances need, and then what the code of that reads."""

    def among(names: Set[str]) -> _First:
        return _First(cls, {name: it for name, it in attributes.items() if name in names})

    found: Set[str] = _FIRST & attributes.keys()
    new = found
    while new:
        values = [attributes[name] for name in new]
        functions = [it for value in values for it in functions_in(value) or (value,)]
        codes = [it.__code__ for it in functions if isinstance(it, FunctionType)]
        new = {name for code in codes for name in code.co_names} & attributes.keys() - found
        found = found | new
    return [among(_FIRST), among(found)]


def set_first(cls: type, attributes: dict[str, Any]) -> None:
    """Give a restored class some of its attributes; leave a native one alone."""
    if not _CLASSES.is_native(cls):
        _set_each(cls, attributes)


def _slots_of(cls: type) -> dict[str, Any]:
    """Return the slots that a class must be built with, lest its instances have none."""
    slots = vars(cls).get("__slots__")
    if slots is None or NamedTuple in vars(cls).get("__orig_bases__", ()):
        return {}  # whose maker sees to it, and refuses to be told
    if not isinstance(slots, (str, tuple, list, dict)):
        slots = tuple(members(cls))  # an iterator, used up
    return {"__slots__": slots}


class _Protocol(Protocol): ...


_of_protocols: Final[Any] = _Protocol.__init__
"""What a class below a protocol inherits until its first instance, which gives it another one."""


def _init_below_protocols(cls: type) -> object:
    """Return the other one: sent with it, so that the first instance in a task changes nothing."""
    inherited = (vars(base).get("__init__", _of_protocols) for base in cls.__mro__)
    return next(init for init in inherited if init is not _of_protocols)


def _had_again(cls: type) -> Iterator[tuple[str, Any]]:
    """Yield the attributes of a class that are the very objects that a base has there.

    cloudpickle leaves them out.  Yet to have it again may mean to have nothing else: what another
    base has, or the metaclass gives.  What an imported base has may be the worker's own; of that
    there is only what has a name, or cannot change.
    """
    own = vars(cls).copy()
    for base in cls.__bases__:
        above, imported = vars(base), named(base)
        for name in own.keys() & above.keys() - WHEN_ASKED:
            it = own[name]
            sent = not imported or is_unchanging(it) or (type(it) is FunctionType and named(it))
            if above.get(name) is it and sent:
                yield name, it


def _as_defined(cls: type, attributes: dict[str, Any]) -> None:
    """Put attributes, sorted by name until now, into the order of their class: of fields, say."""
    attributes.update(_had_again(cls))
    place = {name: number for number, name in enumerate(vars(cls).copy())}
    in_order = sorted(attributes.items(), key=lambda item: place.get(item[0], -1))
    attributes.clear()
    attributes.update(in_order)


def reduce_class(cls: type, reduced: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return how to rebuild a class, from how cloudpickle would."""
    for name in CACHES & reduced[2][0].keys():
        del reduced[2][0][name]
    _as_defined(cls, reduced[2][0])
    if vars(cls).get("__annotate_func__") is not None:
        reduced[2][0]["__annotations__"] = annotations_of(cls)
    if cls.__init__ is _of_protocols and not getattr(cls, "_is_protocol", False):  # type: ignore[misc]
        reduced[2][0]["__init__"] = _init_below_protocols(cls)
    if issubclass(cls, Enum):
        reduced = reduce_enumeration(cls, reduced)
    if any(base.__module__ == "_ctypes" for base in cls.__mro__):
        from .foreign import reduce_foreign  # and with it ctypes

        reduced = reduce_foreign(cls, reduced)
        if len(reduced) == 2:  # made of another
            return reduced
    make, args, state, _, _, setter = reduced
    if make.__name__ == "_make_skeleton_class":  # which knows classes by what is equal to them
        slots, hidden = _slots_of(cls), hidden_in(cls, state[0])
        _, name, bases, content, *_ = args
        if bases == (dict,) and is_typeddict(cls):  # below another, before Python 3.12
            bases = (TypedDict,)
        make, args = _make_empty, (metaclass_of(cls), name, bases, {**content, **slots, **hidden})
        if (made_of := parameters(cls)) is not None:
            make, args = _make_parametrized, (*args, *made_of)
        built = {*slots, *hidden, *(members(cls) if slots else ())}
        state = {key: it for key, it in state[0].items() if key not in built}, *state[1:]
        setter = _set_attributes if setter.__name__ == "_class_setstate" else setter
    first = _first_of(cls, state[0]) if setter is _set_attributes else None
    name = cls.__qualname__
    known = _CLASSES.get(cls)
    if known is None or known.native:
        has_name = _found_in_script(name, cls.__name__) is cls
    else:
        has_name = known.has_name
    made = (_CLASSES.class_id(cls), make, args, name, is_in_script(name, cls), has_name)
    return _make_class, made, (first, setter, state), None, None, update_class
