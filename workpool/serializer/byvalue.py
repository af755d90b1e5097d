"""Pickling by value: a definition that a worker cannot import is sent whole.

cloudpickle does that.  `ByValuePickler` closes its gaps: it knows functions itself, asks `classes`
how classes are rebuilt, and for any other object, one after another, the functions of `rebuilt`,
`script`, `foreign` and `byname` that know of objects like it; each says why.

A lock, a threading.local or a ContextVar cannot be pickled.  Where a function reads it among the
script's globals, or an object that has it, or a class has it, there is one made anew on the other
side: a process that imported the script would have made its own as well.  As an argument it would
stand for one that all share.  Where a module has it, it is that of the module on the other side, as
is whatever else a definition has that cannot be copied (``from m import session``).
"""

from __future__ import annotations

import copyreg
import pickle
from collections.abc import Callable, Iterable, Sequence, Set
from concurrent.futures import Future
from contextlib import suppress
from enum import Enum
from importlib import import_module
from io import BytesIO
from types import BuiltinFunctionType, CellType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any, Final, TypeVar

import cloudpickle

from ..interrupts import FAILURES, interrupts
from . import functions
from .atoms import ATOMS
from .byname import (
    PROTOCOL,
    REFUSALS,
    Keep,
    find_at,
    is_found,
    is_imported,
    name_of_mark,
    name_of_refusing,
    named,
    names_of_instances,
    place_of,
    settle,
    settled_at,
)
from .classes import reduce_class
from .derived import annotations_of
from .drawing import generator_reducers
from .enumerations import reduce_member
from .exceptions import reduce_exception
from .functions import Globals, fill_function, make_cell, make_code, make_function
from .generic import dispatched, is_generic, make_dispatch, reduce_generic
from .instances import has_getattr, is_below_descriptors, is_left_to_pickle, is_nameless
from .names import UNBOUND, cells_of, globals_of, submodules
from .reach import Reach, check_torn
from .rebuilt import (
    REDUCED_TO_NAMES,
    instances_kept,
    maker_anew,
    reduce_descriptor,
    reduce_future,
    reduce_kept,
    reduce_past_getattr,
    wants_more,
)
from .script import SCRIPT_MODULES, has_function, reduce_once, the_one
from .tensors import reducers

_MOST_ATTEMPTS: Final = 9

_OF_MODULE: Final[tuple[str, ...]] = "__name__", "__package__", "__path__", "__file__"
"""Globals by which a module is known, and imports relative to it."""

_SLOTS: Final = (
    *("__name__", "__qualname__", "__module__", "__doc__", "__defaults__", "__kwdefaults__"),
    *(("__type_params__",) if hasattr(FunctionType, "__type_params__") else ()),  # Python 3.12
)
"""What a function has besides, that can be assigned to."""

_T = TypeVar("_T")

_REBUILDING: Final = frozenset(
    it
    for it in (*vars(cloudpickle.cloudpickle).values(), *vars(functions).values(), import_module)
    if type(it) is FunctionType
)
"""What the pickle of a function calls, which is known to go by its name."""


class Settled(Exception):
    """Something that cannot be copied goes by its name from now on: all is to be pickled again."""


class ByValuePickler(cloudpickle.Pickler):  # type: ignore[misc]  # cloudpickle has no types
    """cloudpickle's pickler without its gaps."""

    def __init__(self, file: BytesIO, keep: Keep | None = None, reach: Reach | None = None) -> None:
        # One dict: pickle, in C, would ask a ChainMap by code in Python.  And before the base's own
        # ``__init__``, which looks for it once.
        self.dispatch_table: dict[type, Any] = {**reducers(), **generator_reducers()}
        for table in reversed(cloudpickle.Pickler.dispatch_table.maps):
            self.dispatch_table.update(table)
        super().__init__(file, PROTOCOL, keep)
        self._reach = Reach() if reach is None else reach
        self._had: list[object] = []  # what definitions have
        self._searched = 0  # so much of it, for locks
        self._anew: set[int] = set()  # ids of these
        self._places: dict[int, tuple[str, str]] = {}  # of what goes by its name there, by its id
        #: Classes whose instances are left to pickle, but for those that their module has as marks.
        self._ordinary: dict[int, tuple[type, Sequence[str]]] = {}
        self._kept: set[int] = set()  # ids of instances that their class keeps
        self._globals: dict[int, Globals] = {}  # by their id, those that functions here share

    def _is_made_anew(self, lock: object) -> bool:
        """Tell whether a definition of the script has a lock, or has an object with it."""
        if any(it is lock for it in self._had):  # the others would be pickled for it
            return True
        while self._searched < len(self._had) and id(lock) not in self._anew:
            self._searched += 1
            with suppress(*FAILURES):  # met again where it is pickled
                self._anew |= locks_in(self._had[self._searched - 1])
        return id(lock) in self._anew

    def _note(self, values: Iterable[object]) -> None:
        """Note what a definition has."""
        for it in values:
            self._had.append(it)
            if maker_anew(type(it)):
                settle(it)
            if (place := settled_at(it)) is not None:
                self._places[id(it)] = place

    def dump(self, obj: Any) -> None:
        """Pickle `obj`.

        Raises
        ------
        Settled
            It would raise something else next time, or nothing.
        Exception
            Whatever pickle raises.
        """
        try:
            super().dump(obj)
        except interrupts():
            raise
        except BaseException as error:
            if isinstance(error, REFUSALS) and self._settle():
                raise Settled from error
            raise

    def _settle(self) -> bool:
        """Settle what definitions have and pickle refuses; tell whether anything is, newly."""
        unsettled = [it for it in self._had if id(it) not in self._places]
        return bool([it for it in unsettled if _is_refused(it) and settle(it)])

    def _reduce_once(self, obj: Any) -> Any:
        reduced = reduce_once(obj)
        if reduced is not NotImplemented and reduced[0] is the_one:
            self._note(reduced[1][2].values())
        return reduced

    def reducer_override(self, obj: Any) -> Any:
        """Return how to rebuild `obj`, or NotImplemented to leave it to pickle."""
        kind = type(obj)
        if kind is FunctionType:
            return NotImplemented if obj in _REBUILDING else self._reduce_function(obj)
        if kind is CodeType:
            return make_code, (obj.co_filename, self.dispatch_table[CodeType](obj)[1])
        if kind is CellType:  # what it holds comes with a function
            return make_cell, ()
        if kind is ModuleType and is_imported(obj):
            return import_module, (obj.__name__,)
        if self._places and (place := self._places.get(id(obj))) is not None:
            return find_at, (*place, kind.__qualname__)
        if id(obj) in self._kept and is_left_to_pickle(kind):
            return reduce_kept(obj)
        if kind is MethodType:  # which cloudpickle takes apart; functions of pybind11 refuse
            written_in_c = type(obj.__func__) is BuiltinFunctionType
            return obj.__reduce__() if written_in_c and is_found(obj) else NotImplemented
        known = self._ordinary.get(id(kind))
        if known is not None:
            return (known[1] and name_of_mark(obj, known[1])) or NotImplemented
        if anew := maker_anew(kind):
            return anew(obj) if self._is_made_anew(obj) else NotImplemented
        if issubclass(kind, type):
            if kind in copyreg.dispatch_table and obj.__module__ not in SCRIPT_MODULES:
                return NotImplemented  # its metaclass has said how a class like this is made
            if (place := place_of(obj)) is not None:
                return find_at, (*place, obj.__qualname__)
            reduced = self._reduce_class(obj)
            if reduced is NotImplemented or len(reduced) < 6:
                return reduced
            self._note(reduced[2][0].values())
            self._kept.update(map(id, instances_kept(obj, reduced[2][0].values())))
            self._reach.add_class(obj)
            return reduce_class(obj, reduced)
        if any(base.__module__ == "ctypes" for base in kind.__mro__):
            from .foreign import reduce_library  # it has imported ctypes already

            return reduce_library(obj)
        reduce = REDUCED_TO_NAMES.get(kind)
        if reduce is not None:
            return reduce(obj) if not named(obj) else NotImplemented
        plain = is_left_to_pickle(kind)
        if plain and is_below_descriptors(kind):
            return reduce_descriptor(obj)
        if plain and issubclass(kind, Future):
            return reduce_future(obj)
        if has_getattr(kind):
            if is_imported(obj):  # what a module has put in its own place
                return import_module, (obj.__name__,)
            if plain and kind not in self.dispatch_table:
                return reduce_past_getattr(obj)
        if issubclass(kind, Enum):
            return reduce_member(obj)
        # What copyreg says is the same in each process.
        ordinary = plain or kind in copyreg.dispatch_table
        if not ordinary and (
            getattr(obj, "__module__", None) in SCRIPT_MODULES or _reduced_by_script(kind)
        ):
            return self._reduce_once(obj)
        asked = not ordinary or callable(obj)
        if asked and (name := name_of_refusing(obj)) is not None:
            return name  # pickle looks in its __module__
        names = names_of_instances(kind) if ordinary else ()
        if names and (name := name_of_mark(obj, names)) is not None:
            return name
        if plain and wants_more(obj):
            return reduce_kept(obj)
        # An object that is called may have a name, and marks are told apart by theirs.
        if (not names or not callable(obj)) if ordinary else is_nameless(kind):
            self._ordinary[id(kind)] = kind, names
        return NotImplemented

    def _reduce_class(self, definition: Any) -> Any:
        """Return how cloudpickle would rebuild a class."""
        for _ in range(_MOST_ATTEMPTS):
            with suppress(KeyError):  # another thread has just deleted what it is about to read
                return super().reducer_override(definition)
        return super().reducer_override(definition)

    def _reduce_function(self, function: FunctionType) -> Any:
        if named(function):
            return NotImplemented
        if is_generic(function):
            return reduce_generic(function)
        if (implementations := dispatched(function)) is not None:
            return make_dispatch, (dict(implementations),)
        self._reach.add(function)
        module = function.__globals__
        shared = {name: module[name] for name in _OF_MODULE if name in module}
        names = self._globals.setdefault(id(module), shared)
        # Also what the body of a class reads that it defines.
        read = dict(globals_of(function))
        self._note(read.values())
        # The cells themselves, which two closures may share; they are filled later.
        cells = tuple((cell, it) for _, cell, it in cells_of(function) if it is not UNBOUND)
        enclosed = [it for _, it in cells]
        if has_function(function):  # what a decorator has made of it
            self._note(enclosed)
        slots = {name: getattr(function, name) for name in _SLOTS}
        slots["__annotations__"] = annotations_of(function)
        # Also those submodules that only a lambda or a comprehension looks up.
        found = submodules(function.__code__, (*read.values(), *enclosed))
        made = function.__code__, names, function.__closure__
        state = vars(function).copy(), slots, read, cells, found
        return make_function, made, state, None, None, fill_function


class ExceptionPickler(ByValuePickler):
    """Pickles exceptions, those inside a group too."""

    def reducer_override(self, obj: Any) -> Any:
        """Return how to rebuild an exception; leave the rest to the class above."""
        how = super().reducer_override
        return reduce_exception(obj, how) if isinstance(obj, BaseException) else how(obj)


class _LockFinder(ByValuePickler):
    """Takes each lock for one that a definition has, and notes it."""

    def _is_made_anew(self, lock: object) -> bool:
        self._anew.add(id(lock))
        return True

    def _settle(self) -> bool:
        return False


def locks_in(obj: object) -> set[int]:
    """Return the ids of what is in an object that could be made anew, if it does not go by a name.

    Raises
    ------
    Exception
        Whatever pickle raises, because of something else.
    """
    if settled_at(obj) is not None:
        return set()
    finder = _LockFinder(BytesIO(), lambda _: None)
    finder.dump(obj)
    return finder._anew


def _is_refused(obj: Any) -> bool:
    """Tell whether an object refuses to be pickled; not of a definition.

    Nor of an object of a class of the script: a module has it because the script has put it there.
    And what processes share says that it goes "through inheritance", by a RuntimeError.
    """
    kind: Any = type(obj)
    if issubclass(kind, (FunctionType, type)) or kind in ATOMS or kind.__module__ in SCRIPT_MODULES:
        return False
    try:
        locks_in(obj)
    except FAILURES as error:
        return isinstance(error, REFUSALS)
    return False


def _reduced_by_script(kind: type) -> bool:
    """Tell whether a class of the script says how its instances are pickled."""
    return any(
        "__reduce__" in vars(cls) or "__reduce_ex__" in vars(cls)
        for cls in kind.__mro__
        if cls.__module__ in SCRIPT_MODULES
    )


def is_copied(obj: object) -> bool:
    """Tell whether a worker gets a copy of what is no definition, and not its own.

    Notes
    -----
    Cost: that of a copy.
    """
    try:
        return pickle.loads(dumps_by_value(obj)) is not obj
    except FAILURES:  # what refuses goes by its name
        return False


def is_disturbed(error: RuntimeError) -> bool:
    """Tell whether pickling failed because another thread has changed a dict or a set meanwhile."""
    return "during iteration" in str(error)


def undisturbed(dump: Callable[[], _T]) -> _T:
    """Return what `dump` returns, which is called again if another thread has disturbed it.

    And if it has `Settled` something.
    """
    for _ in range(_MOST_ATTEMPTS):
        try:
            return dump()
        except Settled:
            continue
        except RuntimeError as error:
            if not is_disturbed(error):
                raise
    return dump()


def dumps_by_value(
    obj: object,
    keep: Keep | None = None,
    pickler: type[ByValuePickler] = ByValuePickler,
    reach: Reach | None = None,
    copied: Set[int] = frozenset(),
) -> bytes:
    """Pickle `obj`, sending whole what a worker cannot import; `reach` gets what that is.

    Raises
    ------
    Torn
        Something with one of the ids `copied` is in it.
    Exception
        Whatever pickle raises.

    Notes
    -----
    Cost: 15 us for a small function, 100 us for a small class.
    """
    with BytesIO() as file:
        pickles = pickler(file, keep, reach)
        pickles.dump(obj)
        check_torn(pickles, copied)
        return file.getvalue()
